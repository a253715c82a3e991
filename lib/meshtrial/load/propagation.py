"""Propagation of a change to requests: until the first request follows it, and until all do.

Only requests sent after a change and answered before the next one count, because a request in flight may have met
either state. A time ends with an answer, as a request can meet the change at any moment of its flight. Where every
request meets the same enforcement point, it is therefore too long by at most that request's latency and one interval
between two sends, and as uncertain as the moment of the change. Where several workers or replicas enforce it, the last
of them may meet no request for a while, and the time until all requests follow is too short.

A change that no request followed has no time and ranks last. A change whose previous state was never in force asked
nothing of the data plane, and does not count.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import polars as pl

from meshtrial.design.changes import FIRST, LABELS, REFUSED, SECOND, SECOND_STATUS, ChangeStep, names, steps
from meshtrial.design.load import ChangesUnderLoad
from meshtrial.errors import RecordError, TestbedError
from meshtrial.load import failures
from meshtrial.load.ingest import Measurement
from meshtrial.records.schema import GateResult


@dataclass(frozen=True)
class ChangeTime:
    """When a control plane accepted a change, by the generators' clock."""

    unix_s: float
    error_s: float  # the true time differs by at most this


@dataclass(frozen=True)
class AppliedChange:
    """A change that was made."""

    step: ChangeStep
    time: ChangeTime


@dataclass(frozen=True)
class Propagation:
    """How requests followed one change until the next."""

    name: str  # of its responses
    at_s: float  # when the change was accepted, by the requests' clock
    error_s: float  # of `at_s`
    until_s: float  # start of the last request before the next change, or of the load
    sent: int
    as_before: int  # requests that did not follow it yet
    first_s: float | None  # from the change to the first answer that followed it; None if none did
    all_s: float | None  # to the first answer after the last request that did not follow; None if the last did not
    asked: bool  # whether the previous state was in force; if not, nothing was asked and both times are None
    # Failed requests by kind that ended before the next change. Those in flight at this change count, and so do the
    # refusals of denials and permissions.
    failed: Mapping[str, int] = field(default_factory=dict)


def measure(requests: pl.DataFrame, applied: Sequence[AppliedChange], start_unix_s: float) -> tuple[Propagation, ...]:
    """Return the propagation of each change, by the requests sent after it and answered before the next.

    ``requests`` have the columns of :data:`meshtrial.load.quantiles.COLUMNS`, with starts relative to ``start_unix_s``.
    Raise TestbedError if no request was sent after a change.
    """
    sent = requests.filter(pl.col("actual_start_s").is_not_null())
    answer = (
        pl.when(~pl.col("ok").fill_null(True))
        .then(pl.lit(REFUSED))
        .when(pl.col("code") == SECOND_STATUS)
        .then(pl.lit(SECOND))
        .otherwise(pl.lit(FIRST))
    )
    ended = pl.col("actual_start_s") + pl.col("latency_s")
    sent = sent.with_columns(answer.alias("answer"), ended.alias("ended_s"))
    moments = [change.time.unix_s - start_unix_s for change in applied]
    periods = [*itertools.pairwise([-math.inf, *moments, math.inf])]
    inside = [sent.filter(pl.col("actual_start_s") >= begin, pl.col("ended_s") < end) for begin, end in periods]
    # A change may break requests in flight.
    ended_in = [sent.filter(pl.col("ended_s").is_between(*period, closed="left")) for period in periods]
    return tuple(
        replace(_measure_one(change, at_s, *both), failed=failures.count(ended))
        for change, at_s, both, ended in zip(applied, moments, itertools.pairwise(inside), ended_in[1:], strict=True)
    )


def _measure_one(change: AppliedChange, at_s: float, earlier: pl.DataFrame, inside: pl.DataFrame) -> Propagation:
    step = change.step
    if inside.is_empty():
        raise TestbedError(f"change {step.name}: no request was sent after it; lengthen change_every_s, or raise rps")
    before = inside.filter(answer=step.before)["actual_start_s"]
    after = inside.filter(answer=step.after)
    asked = bool((earlier["answer"] == step.before).any())
    if not asked:
        after = after.clear()
    last = before.max()
    settled = after if last is None else after.filter(pl.col("actual_start_s") > last)
    return Propagation(
        name=step.name,
        at_s=at_s,
        error_s=change.time.error_s,
        until_s=float(inside["actual_start_s"].max()),  # type: ignore[arg-type]
        sent=inside.height,
        as_before=before.len(),
        first_s=(after["ended_s"] - at_s).min(),  # type: ignore[arg-type]
        all_s=(settled["ended_s"] - at_s).min(),  # type: ignore[arg-type]
        asked=asked,
    )


def with_responses(measurement: Measurement, changes: Sequence[Propagation], load: ChangesUnderLoad) -> Measurement:
    """Return the measurement with the responses of its changes, see :func:`medians`.

    ``failed_requests`` leaves out the periods of denials and permissions, in which requests are meant to fail.
    """
    values = medians(changes, load)
    error_s = max(change.error_s for change in changes)
    bounds = dict.fromkeys(values, error_s + 1 / load.rps)
    denials = {step.name for step in steps(load.changes) if step.failing}
    failed = sum(sum(change.failed.values()) for change in changes if change.name not in denials)
    values |= {"failed_requests": float(failed), "change_error_s": error_s}
    return replace(
        measurement,
        responses={**measurement.responses, **values},
        bounds={**measurement.bounds, **bounds},
    )


def medians(changes: Sequence[Propagation], load: ChangesUnderLoad) -> dict[str, float]:
    """Return a run's median times by kind of change, without kinds that were never asked or mostly not followed."""
    values: dict[str, float] = {}
    for name in names(load.changes):
        for which in ("first", "all"):
            value = _median(
                [getattr(change, f"{which}_s") for change in changes if change.name == name and change.asked]
            )
            if math.isfinite(value):
                values[f"propagation_{which}_{name}_s"] = value
    return values


def from_record(
    requests: pl.DataFrame, changes: Sequence[Mapping[str, Any]], load: ChangesUnderLoad
) -> tuple[Propagation, ...]:
    """Return a run's changes by its stored requests and ``extra.changes``, which has their times."""
    recorded = [change.get("name") for change in changes]
    planned = [step for step in steps(load.changes, load.change_cycles) if step.name in recorded]
    if [step.name for step in planned] != recorded:
        raise RecordError(f"its changes differ from its plan: {', '.join(map(str, recorded))}")
    times = [ChangeTime(change["at_s"], change["error_s"]) for change in changes]
    found = measure(requests, [*map(AppliedChange, planned, times)], 0.0)
    # A record without `asked` was made when every change counted.
    return tuple(
        one if "asked" in change else replace(one, asked=True) for one, change in zip(found, changes, strict=True)
    )


def check(changes: Sequence[Propagation], load: ChangesUnderLoad) -> GateResult:
    """Return the run check that all requests followed most of the asked changes of every kind in the end."""
    never = []
    for name in names(load.changes):
        of_kind = [change for change in changes if change.name == name]
        asked = [change for change in of_kind if change.asked]
        if not of_kind or math.isfinite(_median([change.all_s for change in asked])):
            continue
        if asked:
            some = sum(change.first_s is not None for change in asked)
            complete = sum(change.all_s is not None for change in asked)
            never.append(
                f"{LABELS[name]} never obeyed within {load.change_every_s:g} s (by all requests in {complete} of "
                f"{len(asked)} changes, by any in {some})"
            )
        else:
            never.append(
                f"{LABELS[name]} not asked in any of {len(of_kind)} changes (the previous state was never in force)"
            )
    message = "; ".join(never) + "; lengthen change_every_s, or check that something was changed" if never else ""
    return GateResult("obeyed", float(len(never)), 0.0, not never, message)


def _median(values: Sequence[float | None]) -> float:
    """Return the median with None as infinity; infinite if most values are None, or there are none."""
    return median([math.inf if value is None else value for value in values]) if values else math.inf
