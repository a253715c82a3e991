"""Times of propagation on simulated requests: changes that outlast their window, and several enforcement points."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest

from meshtrial.design.changes import CHANGES, REFUSED, steps
from meshtrial.design.load import ChangesUnderLoad
from meshtrial.load.propagation import AppliedChange, ChangeTime, Propagation, measure, medians
from meshtrial.load.quantiles import COLUMNS

pytestmark = pytest.mark.calibration

LATENCY_S, WINDOW_S = 0.001, 1.0
MEDIAN_S = 0.2


def requests(sent_s: np.ndarray, refused: np.ndarray) -> pl.DataFrame:
    given = {"iter": np.arange(len(sent_s)), "scheduled_start_s": sent_s, "actual_start_s": sent_s, "ok": ~refused}
    given |= {"latency_s": np.full(len(sent_s), LATENCY_S), "code": np.where(refused, "403", "200")}
    return pl.DataFrame(given).select(
        (pl.col(name) if name in given else pl.lit(None)).cast(kind).alias(name) for name, kind in COLUMNS.items()
    )


def a_run(rng: np.random.Generator, cycles: int, late: float, rps: float = 50) -> tuple[Propagation, ...]:
    """Return changes that take effect after a lognormal time, beyond the window with probability `late`."""
    planned = steps(("authorization",), cycles)
    sd = math.log(WINDOW_S / MEDIAN_S) / NormalDist().inv_cdf(1 - late)
    moments = WINDOW_S * np.arange(1, len(planned) + 1)
    took = MEDIAN_S * np.exp(sd * rng.normal(size=len(planned)))
    sent = (rng.random() + np.arange(int(rps * (moments[-1] + WINDOW_S)) - 1)) / rps
    met = sent + LATENCY_S * rng.random(len(sent))
    refused = np.zeros(len(sent), dtype=bool)
    for step, at_s, took_s in zip(planned, moments, took, strict=True):
        if took_s < WINDOW_S:  # otherwise the next change replaces it
            refused[met >= at_s + took_s] = step.after == REFUSED
    made = [AppliedChange(step, ChangeTime(at_s, 0.0)) for step, at_s in zip(planned, moments, strict=True)]
    return measure(requests(sent, refused), made, 0.0)


@pytest.mark.parametrize("late", [0.1, 0.3])
def test_a_change_that_outlasts_its_window_is_late_alone(late: float) -> None:
    rng, cycles = np.random.default_rng([1, round(100 * late)]), 3
    load = ChangesUnderLoad(
        50, 1, 2 * cycles + 2, changes=("authorization",), change_every_s=WINDOW_S, change_cycles=cycles
    )
    runs = [a_run(rng, cycles, late) for _ in range(200)]
    every = [one for run in runs for one in run]
    never = [one.all_s is None for one in every if one.asked]
    allowed = 3 * math.sqrt(late * (1 - late) / len(never))
    assert abs(np.mean(never) - late) < allowed
    # Changes of the record before `asked` counted also where nothing was asked: 16 % for 10 %, 45 % for 30 %.
    assert np.mean([one.all_s is None for one in every]) > late + allowed

    def typical(runs: list[tuple[Propagation, ...]]) -> float:
        name = "propagation_all_allow_s"
        return float(np.median([medians(run, load).get(name, math.inf) for run in runs]))

    assert MEDIAN_S < typical(runs) < typical([tuple(replace(one, asked=True) for one in run) for run in runs])


@pytest.mark.parametrize(("share", "too_short"), [(1.0, 0.0), (0.5, 0.4), (0.1, 0.9)])
def test_all_is_too_short_only_where_several_points_enforce_a_change(share: float, too_short: float) -> None:
    """One of two points enforces the change 0.1 s later, and this share of the requests meets it."""
    rng, step, rps, at_s = np.random.default_rng([2, round(100 * share)]), CHANGES["authorization"][0], 200, 1.0
    short = []
    for _ in range(300):
        sent = (rng.random() + np.arange(2 * rps)) / rps
        in_force_s = at_s + 0.2 + 0.1 * (rng.random(len(sent)) < share)
        made = AppliedChange(step, ChangeTime(at_s, 0.0))
        found = measure(requests(sent, sent + LATENCY_S * rng.random(len(sent)) >= in_force_s), [made], 0.0)
        assert found[0].all_s is not None
        assert found[0].all_s <= 0.3 + LATENCY_S + 1 / rps
        short.append(found[0].all_s < 0.3)
    assert abs(np.mean(short) - too_short) <= 3 * math.sqrt(too_short * (1 - too_short) / len(short)) + 0.02
