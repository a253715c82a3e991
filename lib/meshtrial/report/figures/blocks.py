"""Every run as a dot, block by block: what the verdict was computed from, with nothing hidden."""

from __future__ import annotations

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, load_title, log_value_axis, panel_title, spread
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
    rows = _with_excluded(data, name)
    if rows.is_empty():
        floor = data.plan.study.gates.sample_floor
        why = f": fewer than {floor:g} requests of a run lie beyond it" if name.startswith("latency_") else ""
        return empty(f"No run reports {wording.short_label(name)}{why}.")
    excluded = rows.filter(~pl.col("included")).height
    caption = (
        f"{_axis_label(name)} of every run, by block. Lines join the runs that take part in the inference: where "
        "they rise and fall together the machine moved, and pairing within blocks takes that out. "
        + (
            f"Crosses mark {excluded} attempt{'s' * (excluded != 1)} excluded."
            if excluded
            else "Every run takes part in the inference."
        )
    )
    return Figure(lambda sheet: _draw(data, rows, name, sheet), _alt(data, rows, name), caption, _table(rows, name))


def _with_excluded(data: StudyData, name: str) -> pl.DataFrame:
    return frames.runs_of(data, name, included=False).with_columns(
        (pl.col("value") * wording.known(name).scale).alias("shown")
    )


def _axis_label(name: str) -> str:
    label = wording.short_label(name)
    return f"{label} / {wording.unit(name)}" if wording.unit(name) else label


def _draw(data: StudyData, rows: pl.DataFrame, name: str, sheet: Sheet) -> Canvas:
    looks = palette.looks(data.plan.study)
    present = [label for label in frames.loads(data) if not rows.filter(pl.col("load") == label).is_empty()]
    names = frames.order(data, rows["treatment"].to_list())
    first = 2.8 + (sheet.key_in(names) if sheet.narrow else 0)
    figure, axes = sheet.panels([first] + [2.2] * (len(present) - 1))
    for axis, load in zip(axes, present, strict=True):
        part = rows.filter(pl.col("load") == load)
        _panel(data, axis, part, looks, name, sheet)
        scale = " (log scale)" if axis.get_yscale() == "log" else ""
        axis.set_title(sheet.wrapped(panel_title(load_title(data, load), _axis_label(name) + scale)))
    if sheet.narrow:
        sheet.key(axes[0], [palette.look_of(looks, treatment) for treatment in names])
    axes[-1].set_xlabel("block")
    return figure


def _panel(
    data: StudyData, axis: Axes, part: pl.DataFrame, looks: dict[str, palette.Look], name: str, sheet: Sheet
) -> None:
    names = frames.order(data, part["treatment"].to_list())
    kept = part.filter(pl.col("included"))
    for treatment in names:
        look = palette.look_of(looks, treatment)
        runs = kept.filter(pl.col("treatment") == treatment).sort("block")
        if not runs.is_empty():
            sns.lineplot(
                data=frames.for_seaborn(runs.select("block", "shown")),
                x="block",
                y="shown",
                ax=axis,
                color=look.colour,
                linestyle=look.dash,
                linewidth=1.1,
                marker=look.marker,
                markersize=5.5,
                markerfacecolor=look.face,
                markeredgecolor=look.colour,
                markeredgewidth=1.2,
                errorbar=None,
                legend=False,
            )
            said = runs.select("block", "value", "run_id").iter_rows()
            texts = (f"{treatment}, block {b}: {wording.in_unit(name, v)} (run {run})" for b, v, run in said)
            svg.tip(axis.lines[-1], *texts)
        gone = part.filter((pl.col("treatment") == treatment) & ~pl.col("included"))
        axis.plot(gone["block"], gone["shown"], marker="x", markersize=6, linestyle="none", color=look.colour, mew=1.5)
    low, high = float(part["shown"].min()), float(part["shown"].max())  # type: ignore[arg-type]
    if low > 0 and high / low > 3:
        axis.set_yscale("log")
        axis.set_ylim(low / 1.15, high * 1.15)
        log_value_axis(axis.yaxis, low / 1.15, high * 1.15)
    elif low >= 0:
        axis.set_ylim(0, high * 1.12 if high else 1)
    # What is measured stands over the panel: along a low panel its name has no room.
    axis.set(xlabel="", ylabel="")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
    axis.grid(axis="x", visible=False)
    if not sheet.narrow:
        _names_beside(axis, part, names, looks)


def _names_beside(axis: Axes, part: pl.DataFrame, names: list[str], looks: dict[str, palette.Look]) -> None:
    """Names at the end of each line, moved apart where lines end close together; crosses alone are named too."""
    kept = part.filter(pl.col("included"))
    ends = []
    for name in names:
        runs = kept.filter(pl.col("treatment") == name)
        label = name if not runs.is_empty() else f"{name} ✕"
        runs = runs if not runs.is_empty() else part.filter(pl.col("treatment") == name)
        ends.append((name, label, runs.sort("block")))
    to_axes = axis.transData + axis.transAxes.inverted()
    heights = [float(to_axes.transform((0, runs["shown"][-1]))[1]) for _, _, runs in ends]
    for (name, label, runs), height in zip(ends, spread(heights, 0.09, 0.02, 0.98), strict=True):
        look = palette.look_of(looks, name)
        axis.annotate(
            label,
            xy=(runs["block"][-1], runs["shown"][-1]),
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
        part = rows.filter((pl.col("load") == load) & pl.col("included"))
        for treatment in frames.order(data, part["treatment"].to_list()):
            values = part.filter(pl.col("treatment") == treatment)["value"].to_list()
            where = f" at {load}" if len(frames.loads(data)) > 1 else ""
            spread_text = f"{wording.in_unit(name, min(values))} to {wording.in_unit(name, max(values))}"
            parts.append(f"{treatment}{where}: {len(values)} runs from {spread_text}")
    gone = rows.filter(~pl.col("included")).height
    return f"{_axis_label(name)} of every run by block. " + "; ".join(parts) + f". {gone} excluded."


def _table(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.select(
        pl.col("run_id").alias("run"),
        "load",
        "block",
        "position",
        "treatment",
        "attempt",
        pl.col("shown").alias(_axis_label(name)),
        pl.col("valid"),
        pl.col("included").alias("in the inference"),
    )
