"""Runs over their time: what a second's requests saw, and what the components used in it.

As lines, and every run as a strip coloured by latency: where within a run, and in which runs, it was slow.

What a median over runs hides stands out here: one run that stalled, one second in which all did, a start that was not
warm. A second is held against the middle second of its own treatment: what treatments differ in is shown elsewhere, and
would drown what happens within them. The colour is one hue of growing strength, so that it reads the same on a light
page, a dark one and in print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from meshtrial.design.load import Load, RestartUnderLoad
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty

# What is drawn, in this order, where a study has it: measure, title of its panel, factor to the unit of its axis.
_PANELS = (
    ("p50_s", "p50 latency of the second / ms", 1e3),
    ("p99_s", "p99 latency of the second / ms", 1e3),
    ("sent", "requests sent in the second", 1.0),
    ("failed", "requests failed in the second", 1.0),
    ("cpu_cores", "CPU of the data plane / cores", 1.0),
)
_LONGEST = 2000  # points of a panel and treatment; above that neighbouring seconds are thinned out
HEAT = "#cf5a17"  # at least 3:1 against both pages at full strength
FAINTEST, LEVELS = 0.06, 4
# A quantile of the tail where seconds have enough requests for one, else the median.
_STRIPPED = (("p99_s", "p99"), ("p50_s", "p50"))
_RUN_IN, _TALLEST_IN = 0.07, 7.0  # height of a run, and of all


def course(data: StudyData, load: str = "") -> Figure:
    """Every included run second by second, and the median over the runs.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; without it the last of the study that searches nothing, which has the highest rate.
    """
    load = load or frames.last_asked(data)
    rows = _rows(data, load)
    if why := _without_course(rows):
        return empty(why)
    drawn = [
        rows.filter(measure=measure).with_columns(pl.lit(title).alias("what"), pl.col("value") * scale)
        for measure, title, scale in _PANELS
        if _worth(rows, measure)
    ]
    middle = pl.col("value").median().alias("median")
    ends = (pl.col("value").min().alias("least"), pl.col("value").max().alias("most"))
    keys = ["what", "treatment", "second"]
    table = pl.concat([panel.group_by(keys).agg(middle, *ends).sort("treatment", "second") for panel in drawn])
    caption = (
        "Thin: every included run, second by second. Thick: the median of the runs in that second; it describes the "
        "course and decides nothing. A quantile of a second is that of its own requests, drawn where at least five lie "
        "beyond it. What rises or falls over the runs alike was not warm, or was heated up."
    )
    asked = data.plan.study.load(load)
    if isinstance(asked, RestartUnderLoad):
        caption += " Shaded: what counts as around the restart."
    return Figure(lambda: _draw(data, drawn, table, asked), _alt(table), caption, table)


def _without_course(rows: pl.DataFrame) -> str:
    """Why there is nothing to draw; empty where there is."""
    if rows.is_empty():
        return "The runs' course over time was not recorded, and their requests are not here to make it from."
    return "" if rows["second"].max() else "No run kept its course over more than a second."


def _rows(data: StudyData, load: str) -> pl.DataFrame:
    """Course of every included run; of components those of the data plane together."""
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
    return rows.join(_named(runs), on="run", maintain_order="left").select(
        *("slice", "second", "measure", "value", "treatment"), pl.format("{}/{}", "run_id", "slice").alias("run")
    )


def _named(runs: Sequence[RunRecord]) -> pl.DataFrame:
    """Each run by its place."""
    found = [(place, run.run_id, run.treatment, run.repetition) for place, run in enumerate(runs)]
    kinds = {"run": pl.Int32, "run_id": pl.String, "treatment": pl.String, "block": pl.Int32}
    return pl.DataFrame(found, schema=kinds, orient="row")


def _whole_seconds(data: StudyData, load: str) -> tuple[pl.DataFrame, list[RunRecord]]:
    """The course of every included run in the seconds that it sent in to their end: the last one seldom is."""
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


def _worth(rows: pl.DataFrame, measure: str) -> bool:
    values = rows.filter(pl.col("measure") == measure)["value"]
    if values.is_empty():
        return False
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    # Rates that were kept all along say nothing in a picture.
    return {"failed": high > 0, "sent": low < 0.9 * high}.get(measure, True)


def _draw(data: StudyData, panels: Sequence[pl.DataFrame], table: pl.DataFrame, load: Load) -> Canvas:
    looks = [look for look, _ in frames.by_treatment(data, table)]
    first = 2.0 + sheet.key_in([look.name for look in looks])
    figure, axes = sheet.panels([first, *[1.7] * (len(panels) - 1)], sharex=True)
    for axis, panel in zip(axes, panels, strict=True):
        title = panel["what"][0]
        for look, mine in frames.by_treatment(data, panel):
            step = max(1, mine.height // _LONGEST)
            for _, run in mine.gather_every(step).sort("second").group_by("run", maintain_order=True):
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


def _alt(table: pl.DataFrame) -> str:
    ends = (pl.col("median").min().alias("low"), pl.col("median").max().alias("high"))
    lines = table.group_by("what", "treatment", maintain_order=True).agg(*ends).iter_rows()
    parts = (
        f"{what}, {treatment}: medians from {wording.number(low)} to {wording.number(high)}"
        for what, treatment, low, high in lines
    )
    return alt_text("Course of the runs over their seconds", parts)


def strip(data: StudyData, load: str = "") -> Figure:
    """Latency of every second of every included run, a strip a run.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; without it the last of the study that searches nothing.
    """
    load = load or frames.last_asked(data)
    whole, runs = _whole_seconds(data, load)
    found = ((label, _seconds(whole, runs, measure)) for measure, label in _STRIPPED)
    label, rows = next(((label, rows) for label, rows in found if not rows.is_empty()), ("", pl.DataFrame()))
    if why := _without_course(rows):
        return empty(why)
    low, high = (float(rows["times"].quantile(q, "nearest") or 0.0) for q in (0.01, 0.99))
    high = max(high, low * 1.05)
    caption = (
        f"The {label} of each second of every included run{frames.at(data, load)}, a strip a run, the first block on "
        "top, against the middle second of its treatment. The stronger the colour, the slower: "
        f"{wording.number(low, 2)} to {wording.number(high, 2)} times the middle, on a logarithmic scale; one second "
        "in a hundred lies beyond either end. A row that stands out is a run of its own kind, a column a time at which "
        "all runs were slow."
    )
    return Figure(
        lambda: _draw_strips(data, rows, (low, high), label),
        _alt_of_strips(data, rows, label),
        caption,
        _slowest_seconds(rows, label),
    )


def _seconds(whole: pl.DataFrame, runs: Sequence[RunRecord], measure: str) -> pl.DataFrame:
    """One row per run and second; slices of a run follow one another."""
    own = whole.filter(pl.col("measure") == measure, pl.col("component") == "", pl.col("value") > 0)
    seconds = own.sort("run", "slice", "second").join(_named(runs), on="run", maintain_order="left")
    middle = pl.col("ms").median().over("treatment")
    return seconds.select(
        pl.col("run_id").alias("run"),
        *("treatment", "block"),
        pl.int_range(pl.len(), dtype=pl.Int64).over("run").alias("second"),
        (1e3 * pl.col("value")).alias("ms"),
    ).with_columns((pl.col("ms") / middle).alias("times"))


def _draw_strips(data: StudyData, rows: pl.DataFrame, ends: tuple[float, float], label: str) -> Canvas:
    parts = list(frames.by_treatment(data, rows))
    counts = [mine["run"].n_unique() for _, mine in parts]
    shrink = min(1.0, _TALLEST_IN / (_RUN_IN * sum(counts)))
    figure, axes = sheet.panels([0.34 + max(0.3, shrink * _RUN_IN * count) for count in counts], sharex=True)
    longest = max(rows["second"]) + 1
    for axis, (look, mine) in zip(axes, parts, strict=True):
        _strips(axis, mine, longest, ends)
        axis.set_title(look.name, color=look.colour)
    levels = np.linspace(0, 1, LEVELS)
    handles = [
        Patch(
            facecolor=(*to_rgb(HEAT), _strength(level)),
            label=f"{wording.number(ends[0] * (ends[1] / ends[0]) ** level, 2)}{wording.TIMES}",
        )
        for level in levels
    ]
    sheet.legend(axes[0], handles, loc="lower right", bbox_to_anchor=(1, 1.0), handlelength=1.2, title=label)
    axes[-1].set_xlabel("measured seconds of the run")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.TICKS, integer=True))
    return figure


def _strength(level: float) -> float:
    return FAINTEST + (1 - FAINTEST) * level


def _strips(axis: Axes, mine: pl.DataFrame, longest: int, ends: tuple[float, float]) -> None:
    order = mine.select("run", "block").unique().sort("block", "run")["run"].to_list()
    image: NDArray[np.float64] = np.zeros((len(order), longest, 4))
    image[..., :3] = to_rgb(HEAT)
    low, high = (math.log(end) for end in ends)
    place = {run: index for index, run in enumerate(order)}
    for run, second, times in mine.select("run", "second", "times").iter_rows():
        level = min(1.0, max(0.0, (math.log(times) - low) / (high - low)))
        image[place[run], second, 3] = _strength(level)
    axis.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, len(order), 0))
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)


def _alt_of_strips(data: StudyData, rows: pl.DataFrame, label: str) -> str:
    parts = []
    for look, mine in frames.by_treatment(data, rows):
        worst, middle = mine.sort("ms", descending=True).row(0, named=True), float(np.median(mine["ms"]))
        parts.append(
            f"{look.name}: {mine['run'].n_unique()} runs, median second {wording.number(middle)} ms, "
            f"slowest {wording.number(worst['ms'])} ms in second {worst['second']} of run {worst['run']}"
        )
    return alt_text(f"The {label} of every second of every run as strips of colour", parts)


def _slowest_seconds(rows: pl.DataFrame, label: str) -> pl.DataFrame:
    """One row per run: its own seconds' range, and which was the slowest."""
    return (
        rows.sort("ms", descending=True)
        .group_by("run", "treatment", "block", maintain_order=True)
        .agg(
            pl.len().alias("seconds"),
            pl.col("ms").median().alias(f"median second's {label} / ms"),
            pl.col("ms").max().alias(f"slowest second's {label} / ms"),
            pl.col("second").first().alias("slowest second"),
        )
        .sort("block", "treatment")
    )
