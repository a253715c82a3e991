"""Did the machine hold still? The baseline and its twin over time, what a place in the block did, and its own state."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, sheet, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, strip
from meshtrial.report.palette import INK, TreatmentStyle

_PROBES = ("wakeup_s", "spin_s")


def drift(data: StudyData, response: str | None = None) -> Figure:
    """Baseline and twin over the study's time, and every run's residual by its position in the block.

    Parameters
    ----------
    data : StudyData
    response : str, optional
        The first primary response without it.
    """
    name = wording.known(response or data.plan.study.primary[0]).name
    rows = frames.runs_of(data, name)
    if rows.is_empty():
        return empty(f"No included run recorded {wording.short_label(name)}.")
    rows = rows.with_columns(
        ((pl.col("start_unix_s") - pl.col("start_unix_s").min()) / 60).alias("minutes"),
        (pl.col("value") * wording.known(name).scale).alias("shown"),
    )
    residuals = _residuals(rows)
    caption = (
        f"Above: {wording.short_label(name)} of the baseline and of its A/A twin against the time since the first run; "
        "the same thing measured twice, so their distance is noise and their common course is the machine. Below: how "
        "far each run lies from what its treatment and its block would give, by its place in the block: a slope would "
        "mean that coming later changes the result. Randomised blocks keep both from favouring any treatment."
    )
    state = _state(data)
    if not state.is_empty():
        caption += (
            " At the bottom: how long a sleeping thread took to wake before each run, and a fixed piece of work, "
            "relative to their own middles. Small latencies follow them, so another session in another state has other "
            "ratios."
        )
    if len(data.plan.study.loads) > 1:
        caption += " Values are shown relative to their load's middle, so that loads can stand on one axis."
    return Figure(
        lambda: _draw(data, rows, residuals, state, name),
        _alt(data, rows, residuals, name) + _state_said(state),
        caption,
        _table(rows, residuals, name),
    )


def _of_baseline(data: StudyData, rows: pl.DataFrame) -> pl.DataFrame:
    """The runs of the baseline and its twin, in their order in time."""
    study = data.plan.study
    names = [study.baseline.name, *([study.twin.name] if study.twin else [])]
    return rows.filter(pl.col("treatment").is_in(names)).sort("minutes")


def _residuals(rows: pl.DataFrame) -> pl.DataFrame:
    """Log residuals after the medians of treatment and block; nothing where values are not positive."""
    keys = ["load", "treatment"]
    return (
        rows.filter(pl.col("value") > 0)
        .with_columns(pl.col("value").log().alias("log"))
        .with_columns((pl.col("log") - pl.col("log").median().over(keys)).alias("log"))
        .with_columns((pl.col("log") - pl.col("log").median().over("load", "block")).alias("residual"))
    )


def _state(data: StudyData) -> pl.DataFrame:
    """The probes before every run, excluded ones too, with the time since the first run; none of an older study."""
    probes = data.table.filter(pl.col("response").is_in(_PROBES)).sort("start_unix_s")
    return probes.select(
        "response",
        ((pl.col("start_unix_s") - pl.col("start_unix_s").min()) / 60).alias("minutes"),
        pl.col("value"),
        (pl.col("value") / pl.col("value").median().over("response")).alias("relative"),
    )


def _state_said(state: pl.DataFrame) -> str:
    said = []
    for (name,), own in state.group_by("response", maintain_order=True):
        low, middle, high = (own["value"].quantile(q, "linear") for q in (0.1, 0.5, 0.9))
        ends = " to ".join(wording.in_unit(str(name), value) for value in (low, high))
        said.append(f" {wording.short_label(str(name))}: median {wording.in_unit(str(name), middle)}, mostly {ends}.")
    return "".join(said)


def _draw(data: StudyData, rows: pl.DataFrame, residuals: pl.DataFrame, state: pl.DataFrame, name: str) -> Canvas:
    figure, (time, place, *more) = sheet.panels([2.3, 2.0, *([1.6 + 0.3] if not state.is_empty() else [])])
    several = len(data.plan.study.loads) > 1
    mine = _of_baseline(data, rows)
    if several:
        mine = mine.with_columns(pl.col("shown") / pl.col("shown").median().over("load"))
    looks = []
    for look, runs in frames.by_treatment(data, mine):
        style = look.marks(5.5) | ({} if several else look.line(1.1))
        time.plot(runs["minutes"], runs["shown"], **style, markeredgewidth=1.2)
        looks.append(look)
    time.set_ylim(0, (max(mine["shown"], default=0) or 1) * 1.15)
    what = f"{wording.short_label(name)}, relative to its load's middle" if several else frames.with_unit(name)
    time.set_title(f"{what}, over the study's time")
    time.set_xlabel("minutes since the first run")
    sheet.key(time, looks)
    _positions(place, residuals)
    for axis in more:
        for marker, probe in zip("o^", _PROBES, strict=True):
            own = state.filter(response=probe)
            label = wording.short_label(probe)
            axis.plot(own["minutes"], own["relative"], marker, color=INK, markersize=3.5, alpha=0.5, label=label)
        axis.axhline(1, color=INK, linewidth=0.8)
        axis.set_ylim(bottom=0)
        axis.set_title("the machine before each run, relative to its middle")
        axis.set_xlabel("minutes since the first run")
        sheet.legend(axis, axis.lines[: len(_PROBES)], loc="lower left", bbox_to_anchor=(0, 1.0))
    return figure


def _positions(axis: Axes, residuals: pl.DataFrame) -> None:
    shown = residuals.with_columns((100 * (pl.col("residual").exp() - 1)).alias("percent"))
    if not shown.is_empty():
        strip(
            axis,
            shown["position"].to_list(),
            shown["percent"].to_list(),
            TreatmentStyle("every run", INK, "o", "-", True),
        )
        for position, middle in shown.group_by("position").agg(pl.col("percent").median()).sort("position").iter_rows():
            axis.plot([position - 0.28, position + 0.28], [middle, middle], color=INK, linewidth=2.2)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{wording.signed(value, most=1 if value % 1 else 0)} %")
    )
    axis.grid(axis="x", visible=False)
    axis.set_xlabel("position in the block; bars are medians")
    axis.set_ylabel("")
    axis.set_title("off expectation, by position in the block")


def _alt(data: StudyData, rows: pl.DataFrame, residuals: pl.DataFrame, name: str) -> str:
    parts = []
    for look, mine in frames.by_treatment(data, _of_baseline(data, rows)):
        if mine.height > 1:
            half = mine.height // 2
            first, second = (float(np.median(v)) for v in (mine["value"][:half], mine["value"][half:]))
            parts.append(
                f"{look.name}: median {wording.in_unit(name, first)} in the first half, "
                f"{wording.in_unit(name, second)} in the second"
            )
    medians = residuals.group_by("position").agg(pl.col("residual").median()).sort("position")
    places = [f"{p}: {wording.signed(100 * (np.exp(r) - 1), 2)} %" for p, r in medians.iter_rows()]
    seen = alt_text(f"{wording.short_label(name)} over the study's time and by position in the block", parts)
    return f"{seen} Median by position: {', '.join(places)}."


def _table(rows: pl.DataFrame, residuals: pl.DataFrame, name: str) -> pl.DataFrame:
    joined = rows.join(residuals.select("run_id", "attempt", "residual"), on=["run_id", "attempt"], how="left")
    return joined.sort("minutes").select(
        pl.col("run_id").alias("run"),
        "treatment",
        "block",
        "position",
        "minutes",
        pl.col("shown").alias(frames.with_unit(name)),
        (100 * (pl.col("residual").exp() - 1)).alias("off expectation / %"),
    )
