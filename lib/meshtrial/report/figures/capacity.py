"""The capacity of each treatment, from a search or a rising rate, and its latency at a share of that capacity.

At one rate, treatments run at different shares of their capacity, which is part of the difference between them. At the
same share they compare as they do for users who size a mesh to its load.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.design.load import Ramp
from meshtrial.design.responses import PERCENTILES
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import GENERATOR_GATES, RunRecord
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, alt_text, empty
from meshtrial.report.palette import INK
from meshtrial.stats import Capacity, LoadStep
from meshtrial.stats import capacity as capacity_of

_BIN = 0.1
_LABELS = {f"latency_{key}_s": PERCENTILES[key].label for key in ("p50", "p99")}  # what a search records
# The drawn numbers of a ramp in their units.
_STEPS = {
    "requested / rps": pl.col("asked_rps"),
    "achieved / rps": pl.col("achieved_rps"),
    "p50 / ms": 1e3 * pl.col("p50_s"),
    "p99 / ms": 1e3 * pl.col("p99_s"),
}
_OF_STEP = ("asked_rps", "achieved_rps", "p50_s", "p99_s")
_STEP_LATENCIES = (
    ("p50_s", "p50 from the schedule, per step / ms"),
    ("p99_s", "p99 from the schedule, per step / ms"),
)


@dataclass(frozen=True)
class _Searched:
    """The capacity searches of one treatment, one per run."""

    treatment: str
    capacity: Capacity
    closed_rps: float
    generator_cpu: float | None
    limited_by: tuple[str, ...]


def capacity(data: StudyData) -> Figure:
    """Draw each treatment's capacity with its interval, and latency by the share of that capacity."""
    runs = [run for run in data.included_runs() if "search" in run.extra]
    if not runs:
        return empty("No capacity search is used in the inference: see the checks under validity.")
    names = frames.order(data, [run.treatment for run in runs])
    searched = [_searched([run for run in runs if run.treatment == name]) for name in names]
    step = max(float(run.extra["search"]["resolution"]) for run in runs)
    caption = (
        "Above: the highest rate that was sustained and then confirmed in a longer stage, median over new deployments "
        "with the interval of the sign test. A search ends at steps of "
        f"{wording.declared_percent(step)}, which the interval includes. Open: the closed-loop maximum, which has no "
        "schedule. Below: latency of every step passed up to the capacity, by its share of the same deployment's "
        "capacity, and latency at the study's fixed rates. Lines join medians. If generators, proxies and app share "
        "one machine, this is their joint capacity."
    )
    if stopped := [one.treatment for one in searched if GENERATOR_GATES.intersection(one.limited_by)]:
        caption += (
            f" In some searches of {wording.listing(stopped)} the load generator reached its own limit: "
            "the capacity there is at least the value shown."
        )

    def describe(one: _Searched) -> str:
        rates = (one.capacity.estimate, one.capacity.low, one.capacity.high, one.closed_rps)
        return "{} {} ({} to {}), closed loop {}".format(one.treatment, *map(wording.number, rates))

    draw = partial(_draw, data, searched, _points(data, runs))
    return Figure.from_rows(draw, searched, _COLUMNS, "Capacity in requests per second", describe, caption)


def _searched(runs: Sequence[RunRecord]) -> _Searched:
    ladders, searches = [], [run.extra["search"] for run in runs]
    for search in searches:
        ladder = [LoadStep(float(search["low_rps"]), 1.0)]
        if search["high_rps"] is not None:
            ladder.append(LoadStep(float(search["high_rps"]), 0.0))
        ladders.append(ladder)
    shares = [step["generator_cpu"] for one in searches for step in one["steps"] if step["stage"] == "confirm"]
    known = [float(share) for share in shares if share is not None]
    return _Searched(
        runs[0].treatment,
        capacity_of(ladders),
        median(run.responses["closed_loop_rps"] for run in runs),
        median(known) if known else None,
        tuple(sorted({gate for search in searches for gate in search["limited_by"]})),
    )


def _points(data: StudyData, searches: Sequence[RunRecord]) -> pl.DataFrame:
    """Return one row per passed step and per run at a fixed rate: treatment, share of capacity, quantile, ms."""
    capacities = {(run.repetition, run.treatment): float(run.extra["search"]["low_rps"]) for run in searches}
    points: list[tuple[str, float, Mapping[str, Any]]] = []
    for run in searches:
        capacity = capacities[run.repetition, run.treatment]
        for step in run.extra["search"]["steps"]:
            # A short step that passed above the confirmed rate passed by chance.
            if step["rate_rps"] and not step["failed"] and step["rate_rps"] <= capacity:
                points.append((run.treatment, float(step["rate_rps"]) / capacity, step))
    for run in data.included_runs():
        own_capacity = capacities.get((run.repetition, run.treatment))
        rate = data.plan.study.load(run.load).asked_rps
        if own_capacity and rate and "search" not in run.extra:
            points.append((run.treatment, rate / own_capacity, run.responses))
    rows = [
        (treatment, share, label, 1e3 * float(values[name]))
        for treatment, share, values in points
        for name, label in _LABELS.items()
        if values.get(name) is not None
    ]
    schema = {"treatment": pl.String, "share": pl.Float64, "quantile": pl.String, "ms": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _draw(data: StudyData, searched: Sequence[_Searched], points: pl.DataFrame) -> Canvas:
    looks, names = palette.looks(data.plan.study), [one.treatment for one in searched]
    quantiles = [label for label in _LABELS.values() if label in points["quantile"]]
    figure, (top, *below) = sheet.panels([0.9 + sheet.ROW_IN * len(searched), *([2.5] * len(quantiles))])
    largest = max(max(one.capacity.estimate, one.closed_rps) for one in searched)
    for place, one in enumerate(searched):
        look = looks[one.treatment]
        ends = (one.capacity.low, min(one.capacity.high, 1.1 * largest))
        sheet.estimate(top, place, ends, one.capacity.estimate, look)
        top.plot([one.closed_rps], [place], **look.marks(6) | {"markerfacecolor": palette.PAPER})
    sheet.rows(top, names, [looks[name].colour for name in names])
    top.set_xlim(0, None)
    top.xaxis.set_major_formatter(lambda value, _: wording.count(value))
    top.set_xlabel("requests per second")
    for axis, label in zip(below, quantiles, strict=True):
        shown = points.filter(quantile=label)
        for look, rows in frames.by_treatment(data, shown):
            axis.plot(100 * rows["share"], rows["ms"], **look.marks(3.5), alpha=0.45)
            bins = rows.group_by((pl.col("share") / _BIN).floor().alias("bin"))
            line = bins.agg(pl.col("share", "ms").median()).sort("bin")
            axis.plot(100 * line["share"], line["ms"], **look.line())
        axis.axvline(100, color=INK, linewidth=0.9)
        sheet.log_axis(axis, "y", min(shown["ms"]) / 1.2, max(shown["ms"]) * 1.2)
        axis.set_ylabel(f"{label} / ms")
    if below:
        sheet.key(below[0], [looks[name] for name in names])
        below[-1].set_xlabel("share of the treatment's own capacity / %")
    return figure


_COLUMNS: Columns[_Searched] = {
    "treatment": lambda one: one.treatment,
    "capacity / rps": lambda one: one.capacity.estimate,
    "capacity low / rps": lambda one: one.capacity.low,
    "capacity high / rps": lambda one: one.capacity.high if math.isfinite(one.capacity.high) else None,
    "confidence / %": lambda one: 100 * one.capacity.confidence,
    "closed-loop maximum / rps": lambda one: one.closed_rps,
    "deployments": lambda one: one.capacity.n,
    "generator CPU at the confirmed rate / %": lambda one: (
        None if one.generator_cpu is None else 100 * one.generator_cpu
    ),
    "search ended by": lambda one: ", ".join(one.limited_by),
}


def ramp(data: StudyData, load: str = "") -> Figure:
    """Draw every included run of a rising rate: one dot per step, and the median over the runs.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; default: the last with a rising rate.
    """
    rising = [one.label for one in data.plan.study.loads if isinstance(one, Ramp)]
    load = load or next(iter(reversed(rising)), "")
    steps = [
        {"treatment": run.treatment, **{name: step[name] for name in _OF_STEP}}
        for run in data.included_runs()
        if run.load == load
        for step in run.extra.get("ramp", ())
    ]
    rows = pl.DataFrame(steps, schema={"treatment": pl.String, **dict.fromkeys(_OF_STEP, pl.Float64)})
    if rows.is_empty():
        return empty("No run used in the inference had a rising rate.")
    rates = rows.group_by("treatment", "asked_rps").agg(pl.col("achieved_rps", "p50_s", "p99_s").median())
    medians = rates.sort("treatment", "asked_rps")
    caption = (
        "Above: the achieved rate against the requested rate in each step; on the line they are equal. Below: each "
        "step's latency from the schedule, if at least ten requests lie beyond the quantile. Each dot is a step of a "
        "run, lines are medians. The figure describes the runs and decides nothing."
    )
    parts = []
    for look, of_one in frames.by_treatment(data, medians):
        asked, achieved = map(wording.number, of_one.select("asked_rps", "achieved_rps").row(-1))
        parts.append(f"{look.name} achieved {achieved} of {asked} in the last step")
    alt = alt_text("Achieved against requested rate, step by step, medians over the runs", parts)
    return Figure(lambda: _draw_ramp(data, rows, medians), alt, caption, medians.select("treatment", **_STEPS))


def _draw_ramp(data: StudyData, rows: pl.DataFrame, medians: pl.DataFrame) -> Canvas:
    panels = [("achieved_rps", "achieved requests per second", 1.0)]
    panels += [(name, title, 1e3) for name, title in _STEP_LATENCIES if rows[name].drop_nulls().len()]
    figure, axes = sheet.panels([2.6, *[1.9] * (len(panels) - 1)], sharex=True)
    most = max(rows["asked_rps"])
    axes[0].plot([0, most], [0, most], color=INK, linewidth=0.8, zorder=0)
    for axis, (name, title, scale) in zip(axes, panels, strict=True):
        for look, runs in frames.by_treatment(data, rows):
            line = medians.filter(treatment=look.name)
            axis.plot(runs["asked_rps"], runs[name] * scale, **look.marks(3.5), alpha=0.45)
            axis.plot(line["asked_rps"], line[name] * scale, **look.line())
        axis.set_title(title, loc="left")
        if scale != 1:
            values = rows[name].drop_nulls() * scale
            sheet.log_axis(axis, "y", min(values) / 1.2, max(values) * 1.2)
    axes[0].set_ylim(bottom=0)
    axes[0].set_xlim(0, 1.04 * most)
    sheet.key(axes[0], [look for look, _ in frames.by_treatment(data, rows)])
    axes[-1].set_xlabel("requested requests per second")
    return figure
