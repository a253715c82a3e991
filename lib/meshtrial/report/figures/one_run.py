"""One run over its time: each of its requests, and what its components used second by second."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.design.responses import QUANTILES
from meshtrial.errors import RecordError
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import palette, sheet, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, log_axis
from meshtrial.report.palette import GREY, INK

_MOST = 3000  # dots; beyond that the slowest, the failed ones and evenly spread others are drawn
_SLOWEST = 400
_MARKED = {key: QUANTILES[key] for key in ("p50", "p90", "p99")}
_MEASURES = (("cpu_cores", "CPU / cores", 1.0), ("memory_bytes", "memory / MiB", 1 / 2**20))


def requests_over_time(data: StudyData, run_id: str, attempt: int = 1) -> Figure:
    """Every request of one run, when it was sent and how long it took.

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
        found = _sent(data.latency(run))
    except RecordError as error:
        return empty(f"{error}.")
    if found.is_empty():
        return empty(f"Run {run_id} recorded no request.")
    good = found.filter("ok")
    lines = {name: float(v) for name, q in _MARKED.items() if (v := _quantile(good, q)) is not None}
    failed = found.height - good.height
    dots = thinned(found)
    fewer = "" if dots.height == found.height else f" Drawn are {wording.count(dots.height)}: the slowest and a sample."
    caption = (
        "One dot per request: when it was sent, and how long its answer took. Lines: percentiles of this run, where at "
        "least five requests lie beyond. A column of dots is a stall that several connections met. The table sums up "
        "each second; study.requests has every request."
        + (f" Crosses: {wording.count(failed)} failed." if failed else "")
        + fewer
    )
    said = ", ".join(f"{name} {wording.number(value)} ms" for name, value in lines.items()) or "no percentile"
    most = wording.number(float(found["latency / ms"].max()))  # type: ignore[arg-type]
    total = wording.count(found.height)
    alt = f"{total} requests of run {run_id} over its time: {said}, slowest {most} ms, {failed} failed."
    return Figure(lambda: _draw_requests(data, run, dots, lines), alt, caption, _by_second(found))


def _sent(requests: pl.DataFrame) -> pl.DataFrame:
    sent = requests.filter(~pl.col("imputed") & pl.col("actual_start_s").is_not_null())
    return sent.sort("slice", "actual_start_s").select(
        (pl.col("slice") + 1).alias("slice"),
        pl.col("actual_start_s").alias("sent / s"),
        (pl.col("latency_s") * 1e3).alias("latency / ms"),
        (pl.col("thread") + 1).alias("connection"),
        pl.col("ok").fill_null(True),
        "code",
    )


def _by_second(found: pl.DataFrame) -> pl.DataFrame:
    latency = pl.col("latency / ms")
    return (
        found.group_by("slice", pl.col("sent / s").floor().cast(pl.Int64).alias("second"))
        .agg(
            pl.len().cast(pl.Int64).alias("requests"),
            (~pl.col("ok")).sum().cast(pl.Int64).alias("failed"),
            latency.min().alias("fastest / ms"),
            latency.median().alias("median / ms"),
            latency.max().alias("slowest / ms"),
        )
        .sort("slice", "second")
    )


def _quantile(good: pl.DataFrame, q: float) -> float | None:
    return good["latency / ms"].quantile(q, "linear") if good.height * (1 - q) >= 5 else None


def thinned(found: pl.DataFrame) -> pl.DataFrame:
    """The failed ones, the slowest, and every n-th of the others: no dot is moved, none is made up."""
    if found.height <= _MOST:
        return found
    numbered = found.with_row_index("n")
    slow = numbered.filter("ok").top_k(_SLOWEST, by="latency / ms")["n"]
    rest = numbered.filter((pl.col("n") % -(-found.height // (_MOST - _SLOWEST)) == 0) | ~pl.col("ok"))["n"]
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
    axis.set_title(f"{run.run_id}" + (", its slices over one another" if several else ""))
    axis.set_xlabel("seconds since the run's start")
    axis.set_ylabel("latency / ms (log scale)")
    axis.xaxis.set_major_locator(MaxNLocator(sheet.TICKS))
    return figure


def components_over_time(data: StudyData, run_id: str, attempt: int = 1) -> Figure:
    """CPU and memory of every component of one run, second by second.

    Parameters
    ----------
    data : StudyData
    run_id : str
    attempt : int, optional
    """
    run = data.find_run(run_id, attempt)
    series = data.series(run).filter(pl.col("component") != "")
    if series.is_empty():
        return empty(f"Run {run_id} was recorded without CPU and memory second by second; its sums are kept.")
    scaled = [
        series.filter(measure=measure).select(
            pl.lit(title).alias("what"), "component", "slice", "second", pl.col("value") * scale
        )
        for measure, title, scale in _MEASURES
    ]
    table = pl.concat(scaled)
    titles = [title for _, title, _ in _MEASURES if title in table["what"]]
    caption = (
        "Each component by itself, second by second: what rises with time was not warm or keeps what it gets, what "
        "jumps alone did work of its own."
    )
    peaks = table.group_by("what", "component", maintain_order=True).agg(pl.col("value").max())
    said = "; ".join(f"{what} of {who} up to {wording.number(top)}" for what, who, top in peaks.iter_rows())
    alt = f"CPU and memory of the components of run {run_id} over its seconds: {said}."
    return Figure(lambda: _draw_components(table, titles), alt, caption, table)


def _draw_components(table: pl.DataFrame, titles: list[str]) -> Canvas:
    figure, axes = sheet.panels([2.0] * len(titles), sharex=True)
    names = list(dict.fromkeys(table["component"]))
    looks = [
        palette.TreatmentStyle(name, (GREY, *palette.HUES)[i % 9], "os^Dv"[i % 5], ("-", "--", ":")[i % 3], True)
        for i, name in enumerate(names)
    ]
    for axis, title in zip(axes, titles, strict=True):
        for look in looks:
            mine = table.filter(what=title, component=look.name)
            for (_,), one in mine.sort("second").group_by("slice", maintain_order=True):
                axis.plot(one["second"], one["value"], **look.marks(3.5) | look.line())
        axis.set_ylim(bottom=0)
        axis.set_title(title)
    sheet.key(axes[0], looks)
    axes[-1].set_xlabel("seconds since the run's start")
    axes[-1].xaxis.set_major_locator(MaxNLocator(sheet.TICKS, integer=True))
    return figure
