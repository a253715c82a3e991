"""What "the best of n" does: dropping the worst runs by their maximum, on simulated treatments of known truth.

Published comparisons measured eight times and left out the three runs with the largest maximum, or five times less the
worst two. Here the same is done many times to two treatments of which everything is known: identical ones, one that is
slower by a known share, and one that stalls in every fourth run. The noise is that of `meshtrial.stats.simulate`;
a run's maximum is its value times a factor of its own, and a stall lifts it most, as it does in records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from meshtrial.errors import UsageError
from meshtrial.stats.ranktests import FloatArray, signed_rank_p
from meshtrial.stats.simulate import Order, simulate

# Log factor between a run's value and its maximum: t noise of three degrees of freedom.
MAXIMUM_SD = 0.3
SLOWER = 0.10
STALL_SHARE, STALL_FACTOR = 0.25, 2.0
PRINTED = (0.05, 0.10)
ORDERS: tuple[Order, ...] = ("sequential", "randomised")


@dataclass(frozen=True)
class Rule:
    """How many runs there are, and how many of them are left out for their maximum."""

    runs: int
    dropped: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropped <= self.runs - 2:
            raise UsageError(f"dropping {self.dropped} of {self.runs} runs: at least two must be kept")

    @property
    def label(self) -> str:
        """In words."""
        return f"worst {self.dropped} of {self.runs} dropped" if self.dropped else f"all {self.runs} kept"


RULES = (Rule(8, 0), Rule(8, 3), Rule(5, 0), Rule(5, 2))


@dataclass(frozen=True)
class RuleEffect:
    """What one rule does under one order; changes are estimates, in the median."""

    rule: Rule
    order: Order
    identical: FloatArray  # ratio of the two means where the treatments are identical, a comparison each
    called: float  # share of identical pairs that Welch's t test on the kept runs calls different at 0.05
    exact: float | None  # the same by the exact signed-rank test; None where there are no blocks to test
    spread: float  # standard deviation of the kept runs over that of all, in the median
    slower: float  # of a treatment that is slower by `SLOWER`
    stalls: float  # of a treatment that stalls
    stalls_truth: float  # of its mean over many runs

    def winners(self, printed: float) -> float:
        """Share of identical pairs whose means differ by more than this, either way."""
        return float(np.mean(np.abs(np.log(self.identical)) > math.log1p(printed)))


def outcomes(
    rules: Sequence[Rule] = RULES, *, repetitions: int = 4000, seed: int = 1, orders: Sequence[Order] = ORDERS
) -> tuple[RuleEffect, ...]:
    """Simulate every rule under every order, so many comparisons a cell.

    All runs of one treatment and then the other's, as published comparisons were run (``sequential``); or in blocks.
    """
    if repetitions < 100:
        raise UsageError(f"repetitions = {repetitions}: must be 100 or more, or a share says nothing")
    root = np.random.SeedSequence(seed)
    cells = [(rule, order) for order in orders for rule in rules]
    return tuple(
        _outcome(rule, order, repetitions, np.random.default_rng(child))
        for (rule, order), child in zip(cells, root.spawn(len(cells)), strict=True)
    )


def _outcome(rule: Rule, order: Order, repetitions: int, rng: np.random.Generator) -> RuleEffect:
    values, maxima = _runs(rule, order, repetitions, rng, 0.0)
    kept = kept_best(values, maxima, rule)
    tested = scipy.stats.ttest_ind(kept[..., 0], kept[..., 1], axis=1, equal_var=False)
    blocks = order == "randomised" and not rule.dropped
    logs = np.log(values[..., 1] / values[..., 0])
    spread = kept[..., 0].std(axis=1, ddof=1) / values[..., 0].std(axis=1, ddof=1)
    slower = _change(kept_best(*_runs(rule, order, repetitions, rng, SLOWER), rule))
    stalled = _stalled(*_runs(rule, order, repetitions, rng, 0.0), rng)
    return RuleEffect(
        rule=rule,
        order=order,
        identical=_ratios(kept),
        called=float(np.mean(tested.pvalue < 0.05)),
        exact=float(np.mean([signed_rank_p(row) < 0.05 for row in logs])) if blocks else None,
        spread=float(np.median(spread)),
        slower=slower,
        stalls=_change(kept_best(*stalled, rule)),
        stalls_truth=STALL_SHARE * (STALL_FACTOR - 1),
    )


def _runs(
    rule: Rule, order: Order, repetitions: int, rng: np.random.Generator, effect: float
) -> tuple[FloatArray, FloatArray]:
    """Values and maxima, each (repetitions, runs, 2)."""
    logs = simulate([0.0, math.log1p(effect)], rule.runs, repetitions, rng, order=order)
    factor = rng.standard_t(3, logs.shape) * (MAXIMUM_SD / math.sqrt(3))
    return np.exp(logs), np.exp(logs + factor)


def _stalled(values: FloatArray, maxima: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The second treatment's every fourth run is hit, its maximum twice as much."""
    hit = rng.random(values.shape[:2]) < STALL_SHARE
    factor = np.where(hit, STALL_FACTOR, 1.0)
    values, maxima = values.copy(), maxima.copy()
    values[..., 1] *= factor
    maxima[..., 1] *= factor**2
    return values, maxima


def kept_best(values: FloatArray, maxima: FloatArray, rule: Rule) -> FloatArray:
    """The runs with the smallest maxima of each treatment: (repetitions, kept, 2)."""
    order = maxima.argsort(axis=1)[:, : rule.runs - rule.dropped]
    kept: FloatArray = np.take_along_axis(values, order, axis=1)
    return kept


def _ratios(kept: FloatArray) -> FloatArray:
    means = kept.mean(axis=1)
    ratios: FloatArray = means[:, 1] / means[:, 0]
    return ratios


def _change(kept: FloatArray) -> float:
    return float(np.median(_ratios(kept))) - 1
