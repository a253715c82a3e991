"""From a change until requests obey it: the first one that does, and the moment from which all of them do.

Only what was sent after a change and answered before the next one tells of it: what was under way may have met either.
A time ends with an answer, for somewhere between its start and its end a request met what was in force. So it is too
long by at most that request's latency and one interval between two sends, and as inexact as the moment of the change.
A change that was never obeyed has no time: not a long one, none. Nor has one that found nothing to change.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import polars as pl

from meshtrial.design.changes import FIRST, LABELS, REFUSED, SECOND, SECOND_STATUS, ChangeStep, names, steps
from meshtrial.design.study import Load
from meshtrial.errors import RecordError, TestbedError
from meshtrial.load import failures
from meshtrial.load.ingest import Measurement
from meshtrial.records.schema import GateResult

GATE = "obeyed"


@dataclass(frozen=True)
class ChangeTime:
    """When a control plane took a change, by the generators' clock."""

    unix_s: float
    error_s: float  # it was taken within so many seconds of that


@dataclass(frozen=True)
class AppliedChange:
    """A change that was made."""

    step: ChangeStep
    taken: ChangeTime


@dataclass(frozen=True)
class Propagation:
    """What the requests from one change to the next say of it."""

    name: str  # of its responses
    at_s: float  # when it was taken, in the clock of the requests
    error_s: float
    until_s: float  # the last request before the next change, or of the load
    sent: int
    as_before: int  # requests that did not obey it yet
    first_s: float | None  # from the change to the first answer that obeyed; None: none did
    all_s: float | None  # to the first of those sent behind the last that did not; None: the last one still did not
    # Requests by the kind of their failure that ended from then to the next change, those too that were under way when
    # it came; of a denial or permission the refusals too
    failed: Mapping[str, int] = field(default_factory=dict)


def obeyed(requests: pl.DataFrame, made: Sequence[AppliedChange], start_unix_s: float) -> tuple[Propagation, ...]:
    """Each change by the requests that were sent from then on and answered before the next one.

    ``requests`` have the columns of :data:`meshtrial.load.quantiles.COLUMNS`, with starts relative to ``start_unix_s``.
    TestbedError where none was sent: the load had ended.
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
    moments = [one.taken.unix_s - start_unix_s for one in made]
    edges = [-math.inf, *moments, math.inf]
    between = [
        sent.filter(pl.col("actual_start_s") >= begin_s, pl.col("ended_s") < end_s)
        for begin_s, end_s in itertools.pairwise(edges)
    ]
    # A change may break what was under way when it came.
    ended_in = [sent.filter(pl.col("ended_s").is_between(*both, closed="left")) for both in itertools.pairwise(edges)]
    return tuple(
        replace(_obeyed(one, at_s, *both), failed=failures.count(ended))
        for one, at_s, both, ended in zip(made, moments, itertools.pairwise(between), ended_in[1:], strict=True)
    )


def _obeyed(made: AppliedChange, at_s: float, earlier: pl.DataFrame, inside: pl.DataFrame) -> Propagation:
    """One change by the requests since the one before, and by those until the next."""
    if inside.is_empty():
        raise TestbedError(
            f"change {made.step.name}: no request was sent after it; lengthen change_every_s, or raise rps"
        )
    before = inside.filter(answer=made.step.before)["actual_start_s"]
    after = inside.filter(answer=made.step.after)
    if not (earlier["answer"] == made.step.before).any():
        # Nothing was as it should have been before: that all is as it should be after it, it has not brought about.
        after = after.clear()
    last = before.max()
    settled = after if last is None else after.filter(pl.col("actual_start_s") > last)
    return Propagation(
        name=made.step.name,
        at_s=at_s,
        error_s=made.taken.error_s,
        until_s=float(inside["actual_start_s"].max()),  # type: ignore[arg-type]
        sent=inside.height,
        as_before=before.len(),
        first_s=_since(at_s, after),
        all_s=_since(at_s, settled),
    )


def _since(at_s: float, requests: pl.DataFrame) -> float | None:
    return None if requests.is_empty() else float(requests["ended_s"].min()) - at_s  # type: ignore[arg-type]


def with_responses(measurement: Measurement, found: Sequence[Propagation], load: Load) -> Measurement:
    """The measurement with the medians of each change over the run; none of one that was mostly never obeyed.

    Failed requests are those that no change asked for: not the refusals of a denial.
    """
    values = medians(found, load)
    error_s = max(one.error_s for one in found)
    bounds = dict.fromkeys(values, error_s + 1 / load.rps)
    refusing = {step.name for step in steps(load.changes) if step.failing}
    spoilt = sum(sum(one.failed.values()) for one in found if one.name not in refusing)
    values |= {"failed_requests": float(spoilt), "change_error_s": error_s}
    return replace(
        measurement,
        responses={**measurement.responses, **values},
        bounds={**measurement.bounds, **bounds},
    )


def medians(found: Sequence[Propagation], load: Load) -> dict[str, float]:
    """A run's responses: of each change the median over the run."""
    values: dict[str, float] = {}
    for name, which in ((name, which) for name in names(load.changes) for which in ("first", "all")):
        took = _median([getattr(one, f"{which}_s") for one in found if one.name == name])
        if math.isfinite(took):
            values[f"obeyed_{which}_{name}_s"] = took
    return values


def from_record(requests: pl.DataFrame, changes: Sequence[Mapping[str, Any]], load: Load) -> tuple[Propagation, ...]:
    """A run's changes by its stored requests and ``extra.changes``, which says when they were made."""
    told = [one.get("name") for one in changes]
    known = [step for step in steps(load.changes, load.change_cycles) if step.name in told]
    if [step.name for step in known] != told:
        raise RecordError(f"its changes are not those of its plan: {', '.join(map(str, told))}")
    made = [
        AppliedChange(step, ChangeTime(one["at_s"], one["error_s"])) for step, one in zip(known, changes, strict=True)
    ]
    return obeyed(requests, made, 0.0)


def gate(found: Sequence[Propagation], load: Load) -> GateResult:
    """Every kind of change was obeyed by all requests in the end, mostly: else there is nothing to compare."""
    never = []
    for name in names(load.changes):
        took = [one.all_s for one in found if one.name == name]
        if took and not math.isfinite(_median(took)):
            of = [one for one in found if one.name == name]
            obeying = sum(one.first_s is not None for one in of)
            by_all = sum(value is not None for value in took)
            never.append(
                f"{LABELS[name]} never obeyed within {load.change_every_s:g} s (by all requests in {by_all} of "
                f"{len(took)} changes, by any in {obeying})"
            )
    value = float(len(never))
    if not never:
        return GateResult(GATE, value, 0.0, True)
    return GateResult(GATE, value, 0.0, False, "; ".join(never) + "; lengthen change_every_s, or nothing was changed")


def _median(values: Sequence[float | None]) -> float:
    """With what never came behind everything else; infinite where that is most of it, or nothing is there."""
    return median([math.inf if value is None else value for value in values]) if values else math.inf
