"""Every run as a dot, block by block: what the verdict was computed from, with nothing hidden."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, svg, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, log_axis, strip
from meshtrial.report.palette import INK

_STRIPS = 0.4  # width of the strips by treatment, of the blocks'


def runs_by_block(data: StudyData, response: str) -> Figure:
    """One response of every run over the blocks, one line a treatment.

    Parameters
    ----------
    data : StudyData
    response : str
        Full or short name (``p50``).
    """
    name = wording.known(response).name
    shown = (pl.col("value") * wording.known(name).scale).alias("shown")
    rows = frames.runs_of(data, name, included=False).with_columns(shown)
    if rows.is_empty():
        floor = data.plan.study.gates.sample_floor
        why = f": fewer than {floor:g} requests of a run lie beyond it" if name.startswith("latency_") else ""
        return empty(f"No run reports {wording.short_label(name)}{why}.")
    excluded = rows.filter(~pl.col("included")).height
    caption = (
        f"{frames.with_unit(name)} of every run, by block. Lines join the runs that take part in the inference: where "
        "they rise and fall together the machine moved, and pairing within blocks takes that out. To the right all "
        "runs of a treatment stand over one another, which shows their spread. "
        + (
            f"Crosses mark {excluded} attempt{'s' * (excluded != 1)} excluded."
            if excluded
            else "Every run takes part in the inference."
        )
    )
    return Figure(lambda: _draw(data, rows, name), _alt(data, rows, name), caption, _table(rows, name))


def _draw(data: StudyData, rows: pl.DataFrame, name: str) -> Canvas:
    loads = [load for load in frames.loads(data) if load in rows["load"]]
    looks = [look for look, _ in frames.by_treatment(data, rows)]
    figure, axes = sheet.panels([2.6 + sheet.key_in([look.name for look in looks]), *[2.2] * (len(loads) - 1)])
    for axis, load in zip(axes, loads, strict=True):
        _panel(axis, list(frames.by_treatment(data, rows.filter(load=load))), name)
        scale = " (log scale)" if axis.get_yscale() == "log" else ""
        # What is measured stands over the panel: along a low panel its name has no room.
        axis.set_title(frames.panel_title(frames.load_title(data, load), frames.with_unit(name) + scale))
    sheet.key(axes[0], looks)
    axes[-1].set_xlabel("block; to the right all runs of a treatment")
    return figure


def _panel(axis: Axes, runs: Sequence[tuple[palette.TreatmentStyle, pl.DataFrame]], name: str) -> None:
    shown = pl.concat([mine for _, mine in runs])
    first, last = (int(end) for end in (shown["block"].min(), shown["block"].max()))  # type: ignore[arg-type]
    apart = (last - first + 1) * _STRIPS / len(runs)
    for index, (look, mine) in enumerate(runs):
        kept, gone = mine.filter("included").sort("block"), mine.filter(~pl.col("included"))
        if not kept.is_empty():
            style = look.marks(5) | look.line(1.1)
            (line,) = axis.plot(kept["block"], kept["shown"], **style, markeredgewidth=1.2)
            said = kept.select("block", "value", "run_id").iter_rows()
            svg.tip(line, *(f"{look.name}, block {b}: {wording.in_unit(name, v)} (run {run})" for b, v, run in said))
            strip(axis, [last + 1 + apart * index] * kept.height, kept["shown"].to_list(), look)
        axis.plot(gone["block"], gone["shown"], marker="x", markersize=6, linestyle="none", color=look.colour, mew=1.5)
    axis.axvline(last + 0.5, color=INK, linewidth=0.6, alpha=0.4)
    low, high = min(shown["shown"]), max(shown["shown"])
    if low > 0 and high / low > 3:
        log_axis(axis, "y", low / 1.15, high * 1.15)
    elif low >= 0:
        axis.set_ylim(0, high * 1.12 if high else 1)
    ticks = MaxNLocator(sheet.TICKS, integer=True).tick_values(first, last)
    axis.set_xticks([tick for tick in ticks if first <= tick <= last])
    axis.grid(axis="x", visible=False)


def _alt(data: StudyData, rows: pl.DataFrame, name: str) -> str:
    parts = []
    for load in frames.loads(data):
        for look, mine in frames.by_treatment(data, rows.filter(pl.col("included"), load=load)):
            values = mine["value"].to_list()
            ends = f"{wording.in_unit(name, min(values))} to {wording.in_unit(name, max(values))}"
            parts.append(f"{look.name}{frames.at(data, load)}: {len(values)} runs from {ends}")
    gone = rows.filter(~pl.col("included")).height
    return f"{alt_text(f'{frames.with_unit(name)} of every run by block', parts)} {gone} excluded."


def _table(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.select(
        pl.col("run_id").alias("run"),
        "load",
        "block",
        "position",
        "treatment",
        "attempt",
        pl.col("shown").alias(frames.with_unit(name)),
        pl.col("valid"),
        pl.col("included").alias("in the inference"),
    )
