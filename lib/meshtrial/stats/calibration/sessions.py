"""Several sessions, their prediction and their unit, and series of studies."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from meshtrial.stats.calibration.cells import (
    ALPHA,
    ARMS,
    PAIRS,
    SCALAR_SHARE,
    CheckResult,
    adjusted_p,
    any_called,
    check_row,
    differences,
)
from meshtrial.stats.intervals import hodges_lehmann_rows, next_session
from meshtrial.stats.levels import level_changes
from meshtrial.stats.ranktests import FloatArray
from meshtrial.stats.simulate import Noise, simulate

SESSIONS, SPREADS = (3, 4, 5, 6, 10), (0.0, 0.02, 0.04, 0.07)

# How sessions differ where they are not normal, and the least coverage of the prediction that is stated for it.
ODD_SESSIONS = {"heavy tails": 0.925, "skew": 0.925, "two states": 0.90, "wander": 0.88}


def _next_held(estimates: FloatArray, k: int) -> NDArray[np.bool_]:
    """Whether session k lies in the prediction interval from the k sessions before it."""
    low, high = (math.nan, math.nan) if (ends := next_session(estimates[:, :k], ALPHA)) is None else ends
    return np.asarray((low <= estimates[:, k]) & (estimates[:, k] <= high))


def sessions(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """The estimate of the next session lies in the prediction interval from the sessions before it.

    A session's estimate is the mean of ten block differences, and sessions differ normally. The interval of a single
    session covers 65, 43 and 27 % of next estimates at spreads of 2, 4 and 7 %.
    """
    most = max(SESSIONS) + 1
    usual, wander = (
        differences(0.0, rng, repetitions * most, noise=noise).mean(axis=1).reshape(repetitions, most)
        for noise in (Noise(), Noise(tail_sd=0.0, shock_rate=0.0))
    )
    for spread in SPREADS:
        estimates = wander + rng.normal(0.0, spread, wander.shape)
        for k in SESSIONS:
            cell = f"session after {k} others, spread {spread:.0%}"
            yield check_row("2 prediction", cell, "at least", 0.95, _next_held(estimates, k))
    for k in SESSIONS:
        cell = f"session after {k} others, heavy tails and shocks"
        yield check_row("2 prediction", cell, "at least", 0.935, _next_held(usual, k))
    for name, least in ODD_SESSIONS.items():
        estimates = wander + 0.04 * _odd_sessions(name, wander.shape, rng)
        for k in SESSIONS:
            cell = f"session after {k} others, spread 4% with {name}"
            yield check_row("limit: prediction", cell, "at least", least, _next_held(estimates, k))


def _odd_sessions(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Draw effects of sessions (repetitions, sessions) that are not normal, with a standard deviation of one."""
    if name == "heavy tails":
        return rng.standard_t(3, shape) / math.sqrt(3)
    if name == "skew":
        return rng.exponential(1.0, shape) - 1
    if name == "two states":
        return np.where(rng.random(shape) < 0.5, 1.0, -1.0)
    return np.cumsum(rng.normal(0.0, 1.0, shape), axis=1)


def units(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Sessions whose effects differ: errors and coverage with the session as the unit, and with the block.

    Each treatment has an effect of its own in every session, so the truth is that nothing differs in the long
    run. The intervals of blocks describe the drawn sessions only, and must fail where sessions differ.
    """
    size, blocks = max(20, repetitions // SCALAR_SHARE), 4
    quiet = Noise(ar_sd=0.02, tail_sd=0.01, drift=0.02, shock_rate=0.0)
    for k, spread in product((6, 8, 10), (0.0, 0.04, 0.07)):
        own = rng.normal(0.0, spread / math.sqrt(2), (size, k, 1, ARMS))
        values = simulate(np.zeros(ARMS), k * blocks, size, rng, noise=quiet).reshape(size, k, blocks, ARMS) + own
        means, of_blocks = values.mean(axis=2), values.reshape(size, k * blocks, ARMS)
        cell = f"{k} sessions as the unit, spread {spread:.0%}"
        wrong = any_called(adjusted_p(means, PAIRS))
        yield check_row("3 family-wise error", f"{cell}, 10 pairs", "at most", ALPHA, wrong)
        held = [hodges_lehmann_rows(one[:, :, 1] - one[:, :, 0], ALPHA).holds(0.0) for one in (means, of_blocks)]
        yield check_row("2 coverage", cell, "at least", 1 - ALPHA, held[0])
        if spread:
            cell = f"{k} sessions with blocks as the unit, spread {spread:.0%}: intervals that miss"
            yield check_row("5 negative control", cell, "more than", 0.2, ~held[1])


def levels(rng: np.random.Generator, repetitions: int) -> Iterator[CheckResult]:
    """Changes of level in a series of studies: marked without a change, and found where there is one.

    The controls are studies that wander, which break the assumption, and a t-test at the split that looks best.
    """
    from scipy.signal import lfilter  # takes a moment to load
    from scipy.stats import ttest_ind

    size, of = max(20, repetitions // SCALAR_SHARE), "level changes"

    def marked(family: FloatArray) -> NDArray[np.bool_]:
        return np.array([any(level_changes(series)) for series in family])

    for n in (8, 12, 20, 40):
        steady = rng.normal(0, 1, (size, 1, n))
        yield check_row(f"{of}: false", f"{n} studies", "at most", ALPHA, marked(steady))
    tailed, baseline = rng.standard_t(3, (size, 1, 20)), rng.normal(0, 1, (size, 1, 20))
    yield check_row(f"{of}: false", "20 studies, heavy tails", "at most", ALPHA, marked(tailed))
    shared = rng.normal(0, 1, (size, 3, 20)) - baseline
    yield check_row(f"{of}: false", "20 studies, three treatments with one baseline", "at most", ALPHA, marked(shared))
    for n, later, least in ((12, 6, 0.90), (20, 10, 0.98), (20, 3, 0.92)):
        found = [
            [change.index for change in level_changes([series])[0]]
            for series in rng.normal(0, 1, (size, n)) + 3 * (np.arange(n) >= n - later)
        ]
        cell = f"change by 3 sd before the last {later} of {n} studies"
        yield check_row(f"{of}: found", cell, "at least", least, np.array([bool(places) for places in found]))
        if later == n // 2:
            near = np.array([any(abs(place - (n - later)) <= 1 for place in places) for places in found])
            yield check_row(f"{of}: found", f"{cell}, within one study", "at least", 0.85, near)
    wander = lfilter([0.8], [1, -0.6], rng.normal(0, 1, (size, 1, 60)), axis=2)[:, :, 40:]
    yield check_row("limit", f"{of}: 20 studies that wander (AR(1), rho 0.6)", "more than", ALPHA, marked(wander))
    plain = rng.normal(0, 1, (size, 20))
    tested = [ttest_ind(plain[:, :at], plain[:, at:], axis=1).pvalue <= ALPHA for at in range(2, 19)]
    cell = f"{of}: t-test at the split of 20 studies that looks best"
    yield check_row("5 negative control", cell, "more than", 0.10, np.any(tested, axis=0))
