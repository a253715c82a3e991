"""Runs over their time: latency, requests and component use, second by second.

`course` draws all runs as lines, `strip` each run as a strip coloured by latency; `requests_over_time` and
`components_over_time` draw one run in detail. They show what a median over runs hides: one run that stalled, a second
in which all runs did, a start that was not warm. In a strip, a second is compared with the median second of its own
treatment, because differences between treatments would hide those within. The colour is one hue of growing strength,
which reads the same on a light page, on a dark page and in print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from meshtrial.design.load import Load, RestartUnderLoad
from meshtrial.design.responses import QUANTILES
from meshtrial.errors import RecordError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import GREY, INK
from meshtrial.report.sheet import log_axis

# The panels in order: measure, title, factor to the unit of the axis. A panel without data is left out.
_PANELS = (
    ("p50_s", "p50 latency of the second / ms", 1e3),
    ("p99_s", "p99 latency of the second / ms", 1e3),
    ("sent", "requests sent in the second", 1.0),
    ("failed", "requests failed in the second", 1.0),
    ("cpu_cores", "CPU of the data plane / cores", 1.0),
)
_LONGEST = 2000  # points per panel and treatment; longer courses are thinned
HEAT = "#cf5a17"  # at least 3:1 against both pages at full strength
FAINTEST, LEVELS = 0.06, 4
# The tail's quantile if seconds have enough requests for it, else the median.
_STRIPPED = (("p99_s", "p99"), ("p50_s", "p50"))
_RUN_IN, _TALLEST_IN = 0.07, 7.0  # heights of one run, and of all runs


def course(data: StudyData, load: str = "") -> Figure:
    """Draw every included run second by second, and the median over the runs.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; default: the last that is not a search, which has the highest rate.
    """
    load = load or frames.last_rate(data)
    rows = _rows(data, load)
    if why := _why_no_course(rows):
        return empty(why)
    panels = []
    for measure, title, scale in _PANELS:
        panel = rows.filter(measure=measure).with_columns(pl.lit(title).alias("what"), pl.col("value") * scale)
        least, most = (float(end or 0) for end in (panel["value"].min(), panel["value"].max()))  # type: ignore[arg-type]
        # A rate that never dropped is not worth a panel.
        if not panel.is_empty() and {"failed": most > 0, "sent": least < 0.9 * most}.get(measure, True):
            panels.append(panel)
    middle = pl.col("value").median().alias("median")
    ends = (pl.col("value").min().alias("least"), pl.col("value").max().alias("most"))
    keys = ["what", "treatment", "second"]
    table = pl.concat([panel.group_by(keys).agg(middle, *ends).sort("treatment", "second") for panel in panels])
    caption = (
        "Thin: every included run, second by second. Thick: the median of the runs in that second, which describes the "
        "course and decides nothing. A quantile of a second is computed from its own requests if at least five lie "
        "beyond it. A trend that all runs share means that warm-up was too short or that the machine slowed down."
    )
    planned_load = data.plan.study.load(load)
    if isinstance(planned_load, RestartUnderLoad):
        caption += " Shaded: the time that counts as around the restart."
    medians = (pl.col("median").min().alias("low"), pl.col("median").max().alias("high"))
    parts = (
        f"{what}, {treatment}: medians from {wording.number(low)} to {wording.number(high)}"
        for what, treatment, low, high in table.group_by("what", "treatment", maintain_order=True)
        .agg(*medians)
        .iter_rows()
    )
    alt = alt_text("Course of the runs over their seconds", parts)
    return Figure(lambda: _draw_course(data, panels, table, planned_load), alt, caption, table)


def _why_no_course(rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return "No course of the runs over time was recorded, and their requests are not available to compute it from."
    return "" if rows["second"].max() else "No run recorded its course over more than one second."


def _rows(data: StudyData, load: str) -> pl.DataFrame:
    """Return the course of every included run, with the CPU of all data plane components summed."""
    whole, runs = _whole_seconds(data, load)
    proxies = [
        (place, used.component) for place, run in enumerate(runs) for used in run.usage if used.role == "data plane"
    ]
    parts = pl.DataFrame(proxies, schema={"run": pl.Int32, "component": pl.String}, orient="row").unique()
    requests = whole.filter(pl.col("component") == "", ~pl.col("measure").str.starts_with("failed "))
    cpu = whole.filter(measure="cpu_cores").join(parts, on=["run", "component"], how="semi")
    keys = ["run", "slice", "second", "measure"]
    summed = cpu.group_by(keys, maintain_order=True).agg(pl.col("value").sum())
    rows = pl.concat([requests.select(*keys, "value"), summed]).sort("run", maintain_order=True)
    return rows.join(_run_names(runs), on="run", maintain_order="left").select(
        *("slice", "second", "measure", "value", "treatment"), pl.format("{}/{}", "run_id", "slice").alias("run")
    )


def _run_names(runs: Sequence[RunRecord]) -> pl.DataFrame:
    rows = [(place, run.run_id, run.treatment, run.repetition) for place, run in enumerate(runs)]
    kinds = {"run": pl.Int32, "run_id": pl.String, "treatment": pl.String, "block": pl.Int32}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _whole_seconds(data: StudyData, load: str) -> tuple[pl.DataFrame, list[RunRecord]]:
    """Return the course of every included run without a last second that the run did not fill with requests."""
    runs = [run for run in data.included_runs() if run.load == load]
    every = data.courses(runs)
    ordered, value = ("second", "slice"), pl.col("value")
    sent = (
        every.filter(measure="sent")
        .group_by("run")
        .agg(
            pl.len().alias("n"),
            pl.col("second").max().alias("last"),
            (value.sort_by(*ordered).last() > 0.8 * value.median()).alias("full"),
        )
    )
    whole = pl.when(pl.col("n") < 2).then("n").otherwise(pl.col("last") + pl.col("full").cast(pl.Int32))
    ends = sent.select("run", whole.alias("end"))
    kept = every.join(ends, on="run", maintain_order="left").filter(pl.col("second") < pl.col("end"))
    return kept.drop("end"), runs


def _draw_course(data: StudyData, panels: Sequence[pl.DataFrame], table: pl.DataFrame, load: Load) -> Canvas:
    looks = [look for look, _ in frames.by_treatment(data, table)]
    first = 2.0 + sheet.key_in([look.name for look in looks])
    figure, axes = sheet.panels([first, *[1.7] * (len(panels) - 1)], sharex=True)
    for axis, panel in zip(axes, panels, strict=True):
        title = panel["what"][0]
        for look, rows in frames.by_treatment(data, panel):
            step = max(1, rows.height // _LONGEST)
            for _, run in rows.gather_every(step).sort("second").group_by("run", maintain_order=True):
                axis.plot(run["second"], run["value"], color=look.colour, linewidth=0.5, alpha=0.25)
            medians = table.filter(what=title, treatment=look.name)
            style = look.marks(3.5) | look.line(1.5) | ({} if medians.height <= 30 else {"marker": None})
            axis.plot(medians["second"], medians["median"], **style)
        axis.set_ylim(bottom=0)
        axis.set_title(title, loc="left")
        if isinstance(load, RestartUnderLoad):
            end_s = load.restart_at_s + load.around_s
            axis.axvspan(load.restart_at_s, end_s, color=palette.GREY, alpha=0.12, linewidth=0)
    sheet.key(axes[0], looks)
    axes[-1].set_xlabel("seconds since the run's start")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.TICKS, integer=True))
    return figure


def strip(data: StudyData, load: str = "") -> Figure:
    """Draw the latency of every second of every included run, as one strip per run.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; default: the last that is not a search.
    """
    load = load or frames.last_rate(data)
    whole, runs = _whole_seconds(data, load)
    candidates = ((label, _seconds(whole, runs, measure)) for measure, label in _STRIPPED)
    label, rows = next(((label, rows) for label, rows in candidates if not rows.is_empty()), ("", pl.DataFrame()))
    if why := _why_no_course(rows):
        return empty(why)
    low, high = (float(rows["times"].quantile(q, "nearest") or 0.0) for q in (0.01, 0.99))
    high = max(high, low * 1.05)
    caption = (
        f"The {label} of each second of every included run{frames.at(data, load)}, one strip per run with the first "
        "block on top, relative to the median second of its treatment. The stronger the colour, the slower: "
        f"{wording.number(low, 2)} to {wording.number(high, 2)} times the median, on a logarithmic scale. One second "
        "in a hundred lies beyond either end. A row that differs is an unusual run; a column is a time at which all "
        "runs were slow."
    )
    parts = []
    for look, seconds in frames.by_treatment(data, rows):
        worst, middle = seconds.sort("ms", descending=True).row(0, named=True), float(np.median(seconds["ms"]))
        parts.append(
            f"{look.name}: {seconds['run'].n_unique()} runs, median second {wording.number(middle)} ms, "
            f"slowest {wording.number(worst['ms'])} ms in second {worst['second']} of run {worst['run']}"
        )
    alt = alt_text(f"The {label} of every second of every run as strips of colour", parts)
    slowest_first = rows.sort("ms", descending=True).group_by("run", "treatment", "block", maintain_order=True)
    table = slowest_first.agg(
        pl.len().alias("seconds"),
        pl.col("ms").median().alias(f"median second's {label} / ms"),
        pl.col("ms").max().alias(f"slowest second's {label} / ms"),
        pl.col("second").first().alias("slowest second"),
    ).sort("block", "treatment")
    return Figure(lambda: _draw_strips(data, rows, (low, high), label), alt, caption, table)


def _seconds(whole: pl.DataFrame, runs: Sequence[RunRecord], measure: str) -> pl.DataFrame:
    """Return one row per run and second; the slices of a run follow one another."""
    rows = whole.filter(pl.col("measure") == measure, pl.col("component") == "", pl.col("value") > 0)
    seconds = rows.sort("run", "slice", "second").join(_run_names(runs), on="run", maintain_order="left")
    middle = pl.col("ms").median().over("treatment")
    return seconds.select(
        pl.col("run_id").alias("run"),
        *("treatment", "block"),
        pl.int_range(pl.len(), dtype=pl.Int64).over("run").alias("second"),
        (1e3 * pl.col("value")).alias("ms"),
    ).with_columns((pl.col("ms") / middle).alias("times"))


def _draw_strips(data: StudyData, rows: pl.DataFrame, ends: tuple[float, float], label: str) -> Canvas:
    parts = list(frames.by_treatment(data, rows))
    counts = [rows["run"].n_unique() for _, rows in parts]
    shrink = min(1.0, _TALLEST_IN / (_RUN_IN * sum(counts)))
    figure, axes = sheet.panels([0.34 + max(0.3, shrink * _RUN_IN * count) for count in counts], sharex=True)
    longest = max(rows["second"]) + 1
    low, high = (math.log(end) for end in ends)

    def colour(level: float) -> tuple[float, float, float, float]:
        return (*to_rgb(HEAT), FAINTEST + (1 - FAINTEST) * level)

    for axis, (look, rows) in zip(axes, parts, strict=True):
        order = rows.select("run", "block").unique().sort("block", "run")["run"].to_list()
        place = {run: index for index, run in enumerate(order)}
        image: NDArray[np.float64] = np.full((len(order), longest, 4), (*to_rgb(HEAT), 0.0))
        for run, second, times in rows.select("run", "second", "times").iter_rows():
            image[place[run], second] = colour(min(1.0, max(0.0, (math.log(times) - low) / (high - low))))
        axis.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, len(order), 0))
        axis.set_yticks([])
        axis.grid(visible=False)
        axis.spines["left"].set_visible(False)
        axis.set_title(look.name, color=look.colour)
    handles = [
        Patch(
            facecolor=colour(level),
            label=f"{wording.number(ends[0] * (ends[1] / ends[0]) ** level, 2)}{wording.TIMES}",
        )
        for level in np.linspace(0, 1, LEVELS)
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.2, title=label)
    axes[-1].set_xlabel("measured seconds of the run")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.TICKS, integer=True))
    return figure


_MOST = 3000  # dots; of more requests the failed ones, the slowest and an even sample are drawn
_SLOWEST = 400
_MARKED = {key: QUANTILES[key] for key in ("p50", "p90", "p99")}
_MEASURES = (("cpu_cores", "CPU / cores", 1.0), ("memory_bytes", "memory / MiB", 1 / 2**20))


def requests_over_time(data: StudyData, run_id: str, attempt: int = 1) -> Figure:
    """Draw every request of one run: when it was sent and how long it took.

    Parameters
    ----------
    data : StudyData
    run_id : str
        As in ``study.runs()``.
    attempt : int, optional
        2 for the repeat of a run that was not valid.
    """
    run = data.find_run(run_id, attempt)
    try:
        recorded = data.latency(run)
    except RecordError as error:
        return empty(f"{error}.")
    requests = (
        recorded.filter(~pl.col("imputed") & pl.col("actual_start_s").is_not_null())
        .sort("slice", "actual_start_s")
        .select(
            (pl.col("slice") + 1).alias("slice"),
            pl.col("actual_start_s").alias("sent / s"),
            (pl.col("latency_s") * 1e3).alias("latency / ms"),
            pl.col("ok").fill_null(True),
        )
    )
    if requests.is_empty():
        return empty(f"Run {run_id} recorded no request.")
    latency, good = pl.col("latency / ms"), requests.filter("ok")["latency / ms"]
    lines = {name: float(good.quantile(q, "linear") or 0.0) for name, q in _MARKED.items() if good.len() * (1 - q) >= 5}
    failed = requests.height - good.len()
    dots = thinned(requests)
    caption = (
        "One dot per request: when it was sent, and how long its response took. Lines: percentiles of this run, if at "
        "least five requests lie beyond. A column of dots is a stall of several connections. The table summarises each "
        "second; study.requests has every request."
    )
    if failed:
        caption += f" Crosses: {wording.count(failed)} failed."
    if dots.height < requests.height:
        caption += f" Drawn are {wording.count(dots.height)}: the failed ones, the slowest and an even sample."
    percentiles = ", ".join(f"{name} {wording.number(value)} ms" for name, value in lines.items()) or "no percentile"
    most = wording.number(float(requests["latency / ms"].max()))  # type: ignore[arg-type]
    total = wording.count(requests.height)
    alt = f"{total} requests of run {run_id} over its time: {percentiles}, slowest {most} ms, {failed} failed."
    seconds = requests.group_by("slice", pl.col("sent / s").floor().cast(pl.Int64).alias("second"))
    table = seconds.agg(
        pl.len().cast(pl.Int64).alias("requests"),
        (~pl.col("ok")).sum().cast(pl.Int64).alias("failed"),
        latency.min().alias("fastest / ms"),
        latency.median().alias("median / ms"),
        latency.max().alias("slowest / ms"),
    ).sort("slice", "second")
    return Figure(lambda: _draw_requests(data, run, dots, lines), alt, caption, table)


def thinned(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the failed requests, the slowest, and every n-th of the others, if there are too many to draw."""
    if requests.height <= _MOST:
        return requests
    numbered = requests.with_row_index("n")
    slow = numbered.filter("ok").top_k(_SLOWEST, by="latency / ms")["n"]
    rest = numbered.filter((pl.col("n") % -(-requests.height // (_MOST - _SLOWEST)) == 0) | ~pl.col("ok"))["n"]
    return numbered.filter(pl.col("n").is_in(pl.concat([slow, rest]).implode())).drop("n")


def _draw_requests(data: StudyData, run: RunRecord, dots: pl.DataFrame, lines: dict[str, float]) -> Canvas:
    figure, (axis,) = sheet.panels([3.2])
    look = palette.looks(data.plan.study)[run.treatment]
    several = dots["slice"].n_unique() > 1
    good, bad = dots.filter("ok"), dots.filter(~pl.col("ok"))
    axis.plot(good["sent / s"], good["latency / ms"], ".", color=look.colour, markersize=4.5, alpha=0.5, mew=0)
    axis.plot(bad["sent / s"], bad["latency / ms"], "x", color=INK, markersize=5)
    low, high = min(dots["latency / ms"]), max(dots["latency / ms"])
    log_axis(axis, "y", max(low, high * 1e-5, 1e-4) / 1.2, high * 1.25)
    for name, value in lines.items():
        axis.axhline(value, color=INK, linewidth=0.9, linestyle=(0, (5, 3)))
        text = f"{name} {wording.number(value)} ms"
        axis.text(1.01, value, text, transform=axis.get_yaxis_transform(), va="center", size=sheet.SMALL)
    axis.set_title(f"{run.run_id}" + (", all slices over one another" if several else ""))
    axis.set_xlabel("seconds since the run's start")
    axis.set_ylabel("latency / ms (log scale)")
    axis.xaxis.set_major_locator(MaxNLocator(sheet.TICKS))
    return figure


def components_over_time(data: StudyData, run_id: str, attempt: int = 1) -> Figure:
    """Draw CPU and memory of every component of one run, second by second.

    Parameters
    ----------
    data : StudyData
    run_id : str
    attempt : int, optional
    """
    run = data.find_run(run_id, attempt)
    series = data.series(run).filter(pl.col("component") != "")
    if series.is_empty():
        return empty(f"Run {run_id} has no CPU and memory second by second; only its totals were recorded.")
    table = pl.concat(
        series.filter(measure=measure).select(
            pl.lit(title).alias("what"), "component", "slice", "second", pl.col("value") * scale
        )
        for measure, title, scale in _MEASURES
    )
    caption = (
        "Each component by itself, second by second. A rise over time means that the component was not warm or keeps "
        "memory; a jump of one component alone is work of its own."
    )
    peaks = table.group_by("what", "component", maintain_order=True).agg(pl.col("value").max())
    parts = "; ".join(f"{measure} of {name} up to {wording.number(top)}" for measure, name, top in peaks.iter_rows())
    alt = f"CPU and memory of the components of run {run_id} over its seconds: {parts}."
    return Figure(lambda: _draw_components(table), alt, caption, table)


def _draw_components(table: pl.DataFrame) -> Canvas:
    titles = table["what"].unique(maintain_order=True)
    figure, axes = sheet.panels([2.0] * len(titles), sharex=True)
    looks = [
        palette.TreatmentStyle(name, (GREY, *palette.HUES)[i % 9], "os^Dv"[i % 5], ("-", "--", ":")[i % 3], True)
        for i, name in enumerate(table["component"].unique(maintain_order=True))
    ]
    for axis, title in zip(axes, titles, strict=True):
        for look in looks:
            values = table.filter(what=title, component=look.name)
            for _, part in values.sort("second").group_by("slice", maintain_order=True):
                axis.plot(part["second"], part["value"], **look.marks(3.5) | look.line())
        axis.set_ylim(bottom=0)
        axis.set_title(title)
    sheet.key(axes[0], looks)
    axes[-1].set_xlabel("seconds since the run's start")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.TICKS, integer=True))
    return figure
