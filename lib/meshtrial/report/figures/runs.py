"""Every run: as a dot by block, and by time and position, to show whether the machine was stable."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import INK, TreatmentStyle
from meshtrial.report.sheet import log_axis, strip

_ALL_USED = "Every run is used in the inference."
_STRIPS = 0.4  # width of the strips by treatment, as a share of the blocks' width


def runs_by_block(data: StudyData, response: str) -> Figure:
    """Draw one response of every run by block, with a line per treatment.

    Parameters
    ----------
    data : StudyData
    response : str
        Full or short name (``p50``).
    """
    about = wording.known(response)
    name, title = about.name, frames.with_unit(about.name)
    rows = frames.runs_of(data, name, included=False).with_columns((pl.col("value") * about.scale).alias("shown"))
    if rows.is_empty():
        floor = data.plan.study.gates.sample_floor
        why = f": fewer than {floor:g} requests of a run lie beyond it" if name.startswith("latency_") else ""
        return empty(f"No run reports {wording.short_label(name)}{why}.")
    excluded = rows.filter(~pl.col("included")).height
    caption = (
        f"{title} of every run, by block. Lines join the runs used in the inference. Lines that rise "
        "and fall together show changes of the machine, which pairing within blocks removes. To the right, all runs of "
        "a treatment are drawn over one another to show their spread. "
    )
    caption += f"Crosses mark {excluded} excluded attempt{'s' * (excluded != 1)}." if excluded else _ALL_USED
    parts = []
    for load in frames.loads(data):
        for look, runs in frames.by_treatment(data, rows.filter(pl.col("included"), load=load)):
            values = runs["value"].to_list()
            ends = f"{wording.in_unit(name, min(values))} to {wording.in_unit(name, max(values))}"
            parts.append(f"{look.name}{frames.at(data, load)}: {len(values)} runs from {ends}")
    alt = f"{alt_text(f'{title} of every run by block', parts)} {excluded} excluded."
    table = rows.select(
        pl.col("run_id").alias("run"),
        *("load", "block", "position", "treatment", "attempt"),
        pl.col("shown").alias(title),
        "valid",
        pl.col("included").alias("in the inference"),
    )
    return Figure(partial(_draw_blocks, data, rows, name), alt, caption, table)


def _draw_blocks(data: StudyData, rows: pl.DataFrame, name: str) -> Canvas:
    loads = [load for load in frames.loads(data) if load in rows["load"]]
    looks = [look for look, _ in frames.by_treatment(data, rows)]
    figure, axes = sheet.panels([2.6 + sheet.key_in([look.name for look in looks]), *[2.2] * (len(loads) - 1)])
    for axis, load in zip(axes, loads, strict=True):
        _panel(axis, list(frames.by_treatment(data, rows.filter(load=load))), name)
        scale = " (log scale)" if axis.get_yscale() == "log" else ""
        # The response is named in the title, because a low panel has no room for a label along its axis.
        axis.set_title(frames.panel_title(frames.load_title(data, load), frames.with_unit(name) + scale))
    sheet.key(axes[0], looks)
    axes[-1].set_xlabel("block (at the right, all blocks)")
    return figure


def _panel(axis: Axes, runs: Sequence[tuple[palette.TreatmentStyle, pl.DataFrame]], name: str) -> None:
    values = pl.concat([rows for _, rows in runs])
    first, last = (int(end) for end in (values["block"].min(), values["block"].max()))  # type: ignore[arg-type]
    apart = (last - first + 1) * _STRIPS / len(runs)
    for index, (look, rows) in enumerate(runs):
        used, excluded = rows.filter("included").sort("block"), rows.filter(~pl.col("included"))
        if not used.is_empty():
            style = look.marks(5) | look.line(1.1)
            (line,) = axis.plot(used["block"], used["shown"], **style, markeredgewidth=1.2)
            dots = used.select("block", "value", "run_id").iter_rows()
            sheet.set_tips(
                line, *(f"{look.name}, block {b}: {wording.in_unit(name, v)} (run {run})" for b, v, run in dots)
            )
            strip(axis, [last + 1 + apart * index] * used.height, used["shown"].to_list(), look)
        axis.plot(excluded["block"], excluded["shown"], "x", markersize=6, color=look.colour, markeredgewidth=1.5)
    axis.axvline(last + 0.5, color=INK, linewidth=0.6, alpha=0.4)
    low, high = min(values["shown"]), max(values["shown"])
    if low > 0 and high / low > 3:
        log_axis(axis, "y", low / 1.15, high * 1.15)
    elif low >= 0:
        axis.set_ylim(0, high * 1.12 if high else 1)
    ticks = MaxNLocator(sheet.TICKS, integer=True).tick_values(first, last)
    axis.set_xticks([tick for tick in ticks if first <= tick <= last])
    axis.grid(axis="x", visible=False)


_PROBES = ("wakeup_s", "spin_s")


def drift(data: StudyData, response: str | None = None) -> Figure:
    """Draw baseline and twin over the study's time, and every run's residual by its position in the block.

    Parameters
    ----------
    data : StudyData
    response : str, optional
        Default: the first primary response.
    """
    about = wording.known(response or data.plan.study.primary[0])
    name, label = about.name, wording.short_label(about.name)
    rows = frames.runs_of(data, name)
    if rows.is_empty():
        return empty(f"No included run recorded {label}.")
    minutes = ((pl.col("start_unix_s") - pl.col("start_unix_s").min()) / 60).alias("minutes")
    rows = rows.with_columns(minutes, (pl.col("value") * about.scale).alias("shown"))
    residuals, state = _residuals(rows), _state(data, minutes)
    study = data.plan.study
    alike = [study.baseline.name, *([study.twin.name] if study.twin else [])]
    baseline = rows.filter(pl.col("treatment").is_in(alike)).sort("minutes")
    caption = (
        f"Above: {label} of the baseline and of its A/A twin by the time since the first run. Both "
        "measure the same, so their distance is noise and their common course is the machine. Below: the deviation of "
        "each run from what its treatment and its block predict, by its position in the block. A slope would mean that "
        "later positions change the result. Randomised blocks keep both effects from favouring any treatment."
    )
    if not state.is_empty():
        caption += (
            " At the bottom: how long a sleeping thread took to wake before each run, and how long a fixed piece of "
            "work took, relative to their medians. Small latencies follow them, so another session in another state "
            "has other ratios."
        )
    if len(study.loads) > 1:
        caption += " Values are relative to the median of their load, so that all loads share one axis."
    parts = []
    for look, runs in frames.by_treatment(data, baseline):
        if runs.height > 1:
            half = runs.height // 2
            first, second = (float(np.median(v)) for v in (runs["value"][:half], runs["value"][half:]))
            parts.append(
                f"{look.name}: median {wording.in_unit(name, first)} in the first half, "
                f"{wording.in_unit(name, second)} in the second"
            )
    medians = residuals.group_by("position").agg(pl.col("residual").median()).sort("position")
    positions = [f"{p}: {wording.signed(100 * (np.exp(r) - 1), 2)} %" for p, r in medians.iter_rows()]
    alt = alt_text(f"{label} over the study's time and by position in the block", parts)
    alt += f" Median by position: {', '.join(positions)}."
    for (probe,), values in state.group_by("response", maintain_order=True):
        low, middle, high = (
            wording.in_unit(str(probe), values["value"].quantile(q, "linear")) for q in (0.1, 0.5, 0.9)
        )
        alt += f" {wording.short_label(str(probe))}: median {middle}, mostly {low} to {high}."
    joined = rows.join(residuals.select("run_id", "attempt", "residual"), on=["run_id", "attempt"], how="left")
    table = joined.sort("minutes").select(
        pl.col("run_id").alias("run"),
        *("treatment", "block", "position", "minutes"),
        pl.col("shown").alias(frames.with_unit(name)),
        (100 * (pl.col("residual").exp() - 1)).alias("residual / %"),
    )
    return Figure(lambda: _draw_drift(data, baseline, residuals, state, name), alt, caption, table)


def _residuals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add logarithmic residuals, with the medians of treatment and block removed; drop rows that are not positive."""
    keys = ["load", "treatment"]
    return (
        rows.filter(pl.col("value") > 0)
        .with_columns(pl.col("value").log().alias("log"))
        .with_columns((pl.col("log") - pl.col("log").median().over(keys)).alias("log"))
        .with_columns((pl.col("log") - pl.col("log").median().over("load", "block")).alias("residual"))
    )


def _state(data: StudyData, minutes: pl.Expr) -> pl.DataFrame:
    """Return the machine's probes before every run, excluded runs included; old studies have none."""
    probes = data.table.filter(pl.col("response").is_in(_PROBES)).sort("start_unix_s")
    relative = pl.col("value") / pl.col("value").median().over("response")
    return probes.select("response", minutes, "value", relative.alias("relative"))


def _draw_drift(
    data: StudyData, baseline: pl.DataFrame, residuals: pl.DataFrame, state: pl.DataFrame, name: str
) -> Canvas:
    figure, (time, place, *more) = sheet.panels([2.3, 2.0, *([1.6 + 0.3] if not state.is_empty() else [])])
    label = frames.with_unit(name)
    several = len(data.plan.study.loads) > 1
    if several:
        baseline = baseline.with_columns(pl.col("shown") / pl.col("shown").median().over("load"))
        label = f"{wording.short_label(name)}, relative to its load's median"
    looks = []
    for look, runs in frames.by_treatment(data, baseline):
        style = look.marks(5.5) | ({} if several else look.line(1.1))
        time.plot(runs["minutes"], runs["shown"], **style, markeredgewidth=1.2)
        looks.append(look)
    time.set_ylim(0, (max(baseline["shown"], default=0) or 1) * 1.15)
    time.set_title(f"{label}, over the study's time")
    time.set_xlabel("minutes since the first run")
    sheet.key(time, looks)
    _positions(place, residuals)
    for axis in more:
        for marker, probe in zip("o^", _PROBES, strict=True):
            values = state.filter(response=probe)
            label = wording.short_label(probe)
            axis.plot(values["minutes"], values["relative"], marker, color=INK, markersize=3.5, alpha=0.5, label=label)
        axis.axhline(1, color=INK, linewidth=0.8)
        axis.set_ylim(bottom=0)
        axis.set_title("the machine before each run, relative to its median")
        axis.set_xlabel("minutes since the first run")
        sheet.legend(axis, axis.lines[: len(_PROBES)], loc="lower left", bbox_to_anchor=(0, 1.0))
    return figure


def _positions(axis: Axes, residuals: pl.DataFrame) -> None:
    runs = residuals.with_columns((100 * (pl.col("residual").exp() - 1)).alias("percent"))
    if not runs.is_empty():
        look = TreatmentStyle("every run", INK, "o", "-", True)
        sheet.strip(axis, runs["position"].to_list(), runs["percent"].to_list(), look)
        for position, middle in runs.group_by("position").agg(pl.col("percent").median()).sort("position").iter_rows():
            axis.plot([position - 0.28, position + 0.28], [middle, middle], color=INK, linewidth=2.2)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter(lambda value, _: f"{wording.signed(value, most=1 if value % 1 else 0)} %")
    axis.grid(axis="x", visible=False)
    axis.set_xlabel("position in the block; bars are medians")
    axis.set_ylabel("")
    axis.set_title("deviation, by position in the block")
