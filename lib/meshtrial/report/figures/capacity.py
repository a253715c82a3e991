"""How much each treatment carries, and what its latency is at a given share of that.

At one rate two treatments stand at different shares of what they can do, which is part of the difference between
them; at the same share they can be compared as users of a mesh that is sized to its load meet them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import PERCENTILES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, log_value_axis
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet
from meshtrial.stats import Capacity, Rung
from meshtrial.stats import capacity as capacity_of

_BIN = 0.1
_SHOWN = {f"latency_{key}_s": PERCENTILES[key].label for key in ("p50", "p99")}  # what a search records


@dataclass(frozen=True)
class _Arm:
    """One treatment's searches, a run each."""

    treatment: str
    found: Capacity
    closed_rps: float
    generator_cpu: float | None
    limited_by: tuple[str, ...]


def capacity(data: StudyData) -> Figure:
    """Capacity with its interval by treatment, and latency against the share of it."""
    runs = [run for run in data.included_runs() if "search" in run.extra]
    if not runs:
        return empty("No search for a capacity takes part in the inference: see the gates under validity.")
    arms = [_arm([run for run in runs if run.treatment == name]) for name in _names(data, runs)]
    points = _points(data, runs)
    step = max(float(run.extra["search"]["resolution"]) for run in runs)
    caption = (
        "Above: the highest rate that was kept and then confirmed in a longer stage, median over fresh deployments "
        f"with the interval of the sign test; a search stops at steps of {wording.declared_percent(step)}, which the "
        "interval includes. Open: the closed-loop maximum, which has no schedule to keep. "
        "Below: latency of every step that was held up to there, by its share of the same deployment's capacity, and "
        "of the study's fixed rates. Lines join medians. Where generators, proxies and app share one machine, this is "
        "what they carry together." + _limits(arms)
    )
    return Figure(lambda sheet: _draw(data, arms, points, sheet), _alt(arms), caption, _table(arms))


def _names(data: StudyData, runs: Sequence[RunRecord]) -> list[str]:
    return frames.order(data, [run.treatment for run in runs])


def _arm(runs: Sequence[RunRecord]) -> _Arm:
    ladders = []
    for run in runs:
        found = run.extra["search"]
        ladder = [Rung(float(found["low_rps"]), 1.0)]
        if found["high_rps"] is not None:
            ladder.append(Rung(float(found["high_rps"]), 0.0))
        ladders.append(ladder)
    shares = [step["generator_cpu"] for run in runs for step in _steps(run) if step["stage"] == "confirm"]
    known = [float(share) for share in shares if share is not None]
    return _Arm(
        runs[0].treatment,
        capacity_of(ladders),
        median(run.responses["closed_loop_rps"] for run in runs),
        median(known) if known else None,
        tuple(sorted({gate for run in runs for gate in run.extra["search"]["limited_by"]})),
    )


def _steps(run: RunRecord) -> list[Mapping[str, Any]]:
    return list(run.extra["search"]["steps"])


def _points(data: StudyData, searches: Sequence[RunRecord]) -> pl.DataFrame:
    """A row a held step or a run at a fixed rate: treatment, share of the capacity, quantile, milliseconds."""
    capacities = {(run.repetition, run.treatment): run.responses["capacity_rps"] for run in searches}
    rows: list[tuple[str, float, str, float]] = []
    for run in searches:
        own = capacities[run.repetition, run.treatment]
        for step in _steps(run):
            # What a short step kept above the confirmed rate was luck.
            if step["rate_rps"] and not step["failed"] and step["rate_rps"] <= own:
                rows += _latencies(run.treatment, float(step["rate_rps"]) / own, step)
    for run in data.included_runs():
        found = capacities.get((run.repetition, run.treatment))
        rate = float(run.load_spec.get("rps") or 0.0)
        if found and rate and "search" not in run.extra:
            rows += _latencies(run.treatment, rate / found, run.responses)
    schema = {"treatment": pl.String, "share": pl.Float64, "quantile": pl.String, "ms": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _latencies(treatment: str, share: float, values: Mapping[str, Any]) -> list[tuple[str, float, str, float]]:
    return [
        (treatment, share, label, 1e3 * float(values[name]))
        for name, label in _SHOWN.items()
        if values.get(name) is not None
    ]


def _draw(data: StudyData, arms: Sequence[_Arm], points: pl.DataFrame, sheet: Sheet) -> Canvas:
    looks = palette.looks(data.plan.study)
    quantiles = [label for label in _SHOWN.values() if label in points["quantile"].to_list()]
    figure, axes = sheet.panels([0.9 + sheet.row_in * len(arms), *([2.5] * len(quantiles))])
    _intervals(sheet, axes[0], arms, looks)
    for axis, label in zip(axes[1:], quantiles, strict=True):
        _against_share(axis, points.filter(pl.col("quantile") == label), arms, looks)
        axis.set_ylabel(f"{label} / ms")
    if quantiles:
        sheet.key(axes[1], [palette.look_of(looks, arm.treatment) for arm in arms])
        axes[-1].set_xlabel("share of the treatment's own capacity / %")
    return figure


def _intervals(sheet: Sheet, axis: Axes, arms: Sequence[_Arm], looks: dict[str, palette.Look]) -> None:
    largest = max(max(arm.found.estimate, arm.closed_rps) for arm in arms)
    for index, arm in enumerate(arms):
        look = palette.look_of(looks, arm.treatment)
        high = min(arm.found.high, 1.1 * largest)
        axis.plot([arm.found.low, high], [index, index], color=look.colour, linewidth=2.2, solid_capstyle="butt")
        axis.plot([arm.found.estimate], [index], marker=look.marker, markersize=7, color=look.colour, linestyle="none")
        axis.plot(
            [arm.closed_rps],
            [index],
            marker=look.marker,
            markersize=6,
            color=look.colour,
            markerfacecolor=palette.PAPER,
            linestyle="none",
        )
    names = [arm.treatment for arm in arms]
    sheet.rows(axis, names, [palette.look_of(looks, name).colour for name in names])
    axis.set_xlim(0, None)
    axis.xaxis.set_major_formatter(lambda value, _: wording.count(value))
    axis.set_xlabel("requests a second")


def _against_share(axis: Axes, points: pl.DataFrame, arms: Sequence[_Arm], looks: dict[str, palette.Look]) -> None:
    axis.set_yscale("log")
    for arm in arms:
        look = palette.look_of(looks, arm.treatment)
        mine = points.filter(pl.col("treatment") == arm.treatment).with_columns(
            ((pl.col("share") / _BIN).floor() * _BIN).alias("bin"), (100 * pl.col("share")).alias("percent")
        )
        style: dict[str, Any] = {
            "color": look.colour,
            "marker": look.marker,
            "markerfacecolor": look.face,
            "linestyle": "none",
        }
        axis.plot(mine["percent"], mine["ms"], markersize=3.5, alpha=0.45, **style)
        line = mine.group_by("bin").agg(pl.col("percent", "ms").median()).sort("bin")
        axis.plot(line["percent"], line["ms"], color=look.colour, linestyle=look.dash, linewidth=1.4)
    axis.axvline(100, color=INK, linewidth=0.9)
    if not points.is_empty():
        low, high = float(points["ms"].min()), float(points["ms"].max())  # type: ignore[arg-type]
        axis.set_ylim(low / 1.2, high * 1.2)
        log_value_axis(axis.yaxis, low / 1.2, high * 1.2)


def _limits(arms: Sequence[_Arm]) -> str:
    stopped = [arm.treatment for arm in arms if "generator CPU" in arm.limited_by]
    if not stopped:
        return ""
    return (
        f" At {wording.listing(stopped)} the load generator reached its own limit in some searches: "
        "the capacity there is at least what is shown."
    )


def _alt(arms: Sequence[_Arm]) -> str:
    parts = [
        f"{arm.treatment} {wording.number(arm.found.estimate)} ({wording.number(arm.found.low)} to "
        f"{wording.number(arm.found.high)}), closed loop {wording.number(arm.closed_rps)}"
        for arm in arms
    ]
    return "Capacity in requests a second: " + "; ".join(parts) + "."


def _table(arms: Sequence[_Arm]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "treatment": [arm.treatment for arm in arms],
            "capacity / rps": [arm.found.estimate for arm in arms],
            "low / rps": [arm.found.low for arm in arms],
            "high / rps": [arm.found.high if math.isfinite(arm.found.high) else None for arm in arms],
            "confidence / %": [100 * arm.found.confidence for arm in arms],
            "closed loop / rps": [arm.closed_rps for arm in arms],
            "deployments": [arm.found.n for arm in arms],
            "generator CPU when confirmed / %": [
                None if arm.generator_cpu is None else 100 * arm.generator_cpu for arm in arms
            ],
            "what ended the search": [", ".join(arm.limited_by) for arm in arms],
        }
    )
