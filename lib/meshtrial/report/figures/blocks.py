"""Every run as a dot, block by block: what the verdict was computed from, with nothing hidden."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, log_axis, spread
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet


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
        "they rise and fall together the machine moved, and pairing within blocks takes that out. "
        + (
            f"Crosses mark {excluded} attempt{'s' * (excluded != 1)} excluded."
            if excluded
            else "Every run takes part in the inference."
        )
    )
    return Figure(lambda sheet: _draw(data, rows, name, sheet), _alt(data, rows, name), caption, _table(rows, name))


def _draw(data: StudyData, rows: pl.DataFrame, name: str, sheet: Sheet) -> Canvas:
    loads = [load for load in frames.loads(data) if load in rows["load"]]
    looks = [look for look, _ in frames.by_treatment(data, rows)]
    first = 2.8 + (sheet.key_in([look.name for look in looks]) if sheet.narrow else 0)
    figure, axes = sheet.panels([first] + [2.2] * (len(loads) - 1))
    for axis, load in zip(axes, loads, strict=True):
        _panel(axis, list(frames.by_treatment(data, rows.filter(load=load))), name, sheet)
        scale = " (log scale)" if axis.get_yscale() == "log" else ""
        title = frames.panel_title(frames.load_title(data, load), frames.with_unit(name) + scale)
        axis.set_title(title)
    if sheet.narrow:
        sheet.key(axes[0], looks)
    axes[-1].set_xlabel("block")
    return figure


def _panel(axis: Axes, runs: Sequence[tuple[palette.Look, pl.DataFrame]], name: str, sheet: Sheet) -> None:
    for look, mine in runs:
        kept, gone = mine.filter("included").sort("block"), mine.filter(~pl.col("included"))
        if not kept.is_empty():
            style = look.marks(5.5) | look.line(1.1)
            (line,) = axis.plot(kept["block"], kept["shown"], **style, markeredgewidth=1.2)
            said = kept.select("block", "value", "run_id").iter_rows()
            svg.tip(line, *(f"{look.name}, block {b}: {wording.in_unit(name, v)} (run {run})" for b, v, run in said))
        axis.plot(gone["block"], gone["shown"], marker="x", markersize=6, linestyle="none", color=look.colour, mew=1.5)
    shown = [value for _, mine in runs for value in mine["shown"]]
    low, high = min(shown), max(shown)
    if low > 0 and high / low > 3:
        log_axis(axis, "y", low / 1.15, high * 1.15)
    elif low >= 0:
        axis.set_ylim(0, high * 1.12 if high else 1)
    # What is measured stands over the panel: along a low panel its name has no room.
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
    axis.grid(axis="x", visible=False)
    if not sheet.narrow:
        _names_beside(axis, runs)


def _names_beside(axis: Axes, runs: Sequence[tuple[palette.Look, pl.DataFrame]]) -> None:
    """Names at the end of each line, moved apart where lines end close together; crosses alone are named too."""
    ends = []
    for look, mine in runs:
        kept = mine.filter("included")
        last = (mine if kept.is_empty() else kept).sort("block").row(-1, named=True)
        ends.append((look, f"{look.name} ✕" if kept.is_empty() else look.name, (last["block"], last["shown"])))
    to_axes = axis.transData + axis.transAxes.inverted()
    heights = [float(to_axes.transform((0, end[1]))[1]) for _, _, end in ends]
    for (look, label, end), height in zip(ends, spread(heights, 0.09, 0.02, 0.98), strict=True):
        axis.annotate(
            label,
            xy=end,
            xytext=(1.02, height),
            textcoords=axis.transAxes,
            va="center",
            size=SMALL,
            weight="bold",
            color=look.colour,
            arrowprops={"arrowstyle": "-", "color": INK, "alpha": 0.25, "lw": 0.6, "shrinkA": 1, "shrinkB": 4},
        )


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
