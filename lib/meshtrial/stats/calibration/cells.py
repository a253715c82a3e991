"""What the simulated checks share: their results, the simulated families, and the corrections of the shipped tests."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshtrial.stats.intervals import signed_rank_p_rows
from meshtrial.stats.multiplicity import step_down_max_t_rows
from meshtrial.stats.ranktests import FloatArray
from meshtrial.stats.simulate import Noise, run_places, simulate

Rule = Literal["at most", "at least", "more than", "about", "exactly"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One measured error rate, coverage or power."""

    check: str  # number and name of the check
    cell: str  # the simulated situation
    rule: Rule  # required relation of `observed` to `nominal`
    # Shares of studies
    nominal: float
    observed: float
    mc_se: float  # Monte-Carlo standard error at the nominal value
    repetitions: int  # simulated studies
    passed: bool  # whether the rule is satisfied, three standard errors allowed


# Power is compared with a rounded figure that two sizes of the simulated noise were chosen to match.
_ABOUT = 0.04


def check_row(check: str, cell: str, rule: Rule, nominal: float, hits: NDArray[np.bool_]) -> CheckResult:
    """Judge the share of `hits`, one per simulated study, allowing three Monte-Carlo standard errors.

    ``"about"`` allows 0.04 more; ``"more than"`` and ``"exactly"`` allow nothing.
    """
    n = len(hits)
    observed = float(hits.mean())
    se = math.sqrt(nominal * (1 - nominal) / n)
    passed = {
        "at most": observed <= nominal + 3 * se,
        "at least": observed >= nominal - 3 * se,
        "more than": observed > nominal,
        "about": abs(observed - nominal) <= _ABOUT + 3 * se,
        "exactly": observed == nominal,
    }[rule]
    return CheckResult(check, cell, rule, nominal, observed, se, n, passed)


TREATMENTS = 6

BLOCKS = 10

ALPHA = 0.05


def differences(
    effect: float,
    rng: np.random.Generator,
    repetitions: int,
    *,
    blocks: int = BLOCKS,
    noise: Noise | None = None,
    order: Literal["randomised", "sequential"] = "randomised",
    noisier: float = 1.0,
    feels: float = 1.0,
) -> FloatArray:
    """Return block differences (repetitions, blocks) of the second of six treatments against the baseline."""
    second = np.arange(TREATMENTS) == 1
    scales, feelings = np.where(second, noisier, 1.0), np.where(second, feels, 1.0)
    values = simulate(
        effect * second, blocks, repetitions, rng, noise=noise, order=order, scales=scales, sensitivities=feelings
    )
    d: FloatArray = values[:, :, 1] - values[:, :, 0]
    return d


def own_p(values: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Return p-values (repetitions, pairs) of pairs, not corrected, from logs (repetitions, blocks, treatments)."""
    return np.stack([signed_rank_p_rows(values[:, :, a] - values[:, :, b]) for a, b in pairs], axis=1)


def adjusted_p(values: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the same corrected by max-T."""
    own = own_p(values, pairs)
    if len(pairs) == 1:
        return own
    d = np.stack([values[:, :, a] - values[:, :, b] for a, b in pairs], axis=1)
    return np.maximum(own, step_down_max_t_rows(d))


ARMS = 5

PAIRS = tuple(combinations(range(ARMS), 2))


def other_noises(
    blocks: int, repetitions: int, rng: np.random.Generator, arms: int = ARMS
) -> Iterator[tuple[str, FloatArray]]:
    """Simulate studies of equal treatments under noise that `simulate` lacks; yield names and logs."""
    from scipy.signal import lfilter  # takes a moment to load, and every command loads this module

    runs = blocks * arms
    drawn = rng.normal(0, 1, (repetitions, runs))
    states = np.where(np.cumsum(rng.random((repetitions, runs)) < 0.1, axis=1) % 2, 0.15, -0.15)
    in_time = {
        "ARMA(1,1)": lfilter([1, 0.5], [1, -0.8], 0.06 * drawn, axis=1),
        "random walk": np.cumsum(0.03 * drawn, axis=1),
        "two states of the machine": states + 0.04 * drawn,
        "lognormal": 0.1 * np.exp(0.5 * drawn),
    }
    for name, series in in_time.items():
        places = run_places(repetitions, blocks, arms, "randomised", rng).reshape(repetitions, -1)
        own = rng.normal(0, 0.02, (repetitions, blocks, arms))
        yield name, np.take_along_axis(series, places, axis=1).reshape(own.shape) + own
    equal, noisy = np.zeros(arms), np.where(np.arange(arms) == 1, 3.0, 1.0)
    yield "heavy tails and shocks", simulate(equal, blocks, repetitions, rng)
    yield "one treatment three times noisier", simulate(equal, blocks, repetitions, rng, scales=noisy)


def any_of(hits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each study (repetitions, contrasts) whether any contrast was hit."""
    return np.asarray(hits.any(axis=1), dtype=np.bool_)


def any_called(p: FloatArray) -> NDArray[np.bool_]:
    """Return for each study whether any corrected p-value calls a difference."""
    return any_of(p <= ALPHA)


# Share of the repetitions for checks that take milliseconds per study.
SCALAR_SHARE = 4
