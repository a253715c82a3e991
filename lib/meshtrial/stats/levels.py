"""Changes of level in a series of estimates, one per study, in the order of time.

Opinion: a mark on a series is a test, so it has an error rate. The statistic is the largest standardised sum before any
split (CUSUM; Page, Biometrika 42, 1955), with its permutation distribution. Searching for the split is thus part of the
test; in a t-test at the split that looks best it is not. A level has at least two studies, because a single one may be
an outlier. The parts beside a change are tested at half the level each (binary segmentation). With Bonferroni over all
series of a family, the error rate of the family is thus at most alpha.

Limit: the test supposes that studies without a change are exchangeable. Days that wander are not: `calibration` has the
rates. The means beside a change were chosen by looking, so their distance is somewhat too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.stats.ranktests import FloatArray, IntArray, random_orders

PERMUTATIONS = 4_999
LEAST_LEVEL = 2  # studies of one level


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level that a test called."""

    index: int  # of the first value of the new level
    # Means of the values since the change before it, and up to the next
    before: float
    after: float
    p_adjusted: float  # corrected for all series of the family and for the parts that were tested


def fewest_for_change(series: int, alpha: float = 0.05) -> int:
    """Return how many studies can show a change at all if a family has this many series."""
    # Of comb(n, n // 2) orders, 2 separate the halves completely.
    n = 2 * LEAST_LEVEL
    while 2 * series / comb(n, n // 2) > alpha:
        n += 1
    return n


def level_changes(family: Sequence[ArrayLike], alpha: float = 0.05) -> tuple[tuple[LevelChange, ...], ...]:
    """Return the changes of level of every series of a family, in the order of time.

    If no level changes, at most a share `alpha` of families has any.
    """
    changes = []
    for values in (np.asarray(series, dtype=np.float64) for series in family):
        found = _splits(values, 0, len(family), alpha)
        ends = [0, *(at for at, _ in found), len(values)]
        means = [float(values[start:end].mean()) for start, end in pairwise(ends)]
        changes.append(tuple(LevelChange(at, means[i], means[i + 1], p) for i, (at, p) in enumerate(found)))
    return tuple(changes)


def _splits(values: FloatArray, start: int, tests: int, alpha: float) -> list[tuple[int, float]]:
    """Return index and corrected p-value of each change, searching both sides of a change at half the level."""
    if len(values) < 2 * LEAST_LEVEL or np.ptp(values) == 0:
        return []
    centred = values - values.mean()
    by_split = _squared_sums(centred[None])[0]
    # Sums of the same values in another order may differ in their last digits.
    observed, reached = by_split.max() * (1 - 1e-9), 1
    for orders in _orders(len(values)):
        reached += int((_squared_sums(centred[orders]).max(axis=1) >= observed).sum())
        p = min(1.0, tests * (reached / (PERMUTATIONS + 1)))
        if p > alpha:  # whatever the other orders show
            return []
    at = int(by_split.argmax()) + LEAST_LEVEL
    before = _splits(values[:at], start, 2 * tests, alpha)
    return [*before, (start + at, p), *_splits(values[at:], start + at, 2 * tests, alpha)]


def _squared_sums(centred: FloatArray) -> FloatArray:
    """Return the squared standardised sum before every split (rows, splits) of series (rows, studies) of mean zero."""
    n = centred.shape[1]
    sizes = np.arange(LEAST_LEVEL, n - LEAST_LEVEL + 1)
    sums = np.cumsum(centred, axis=1)[:, sizes - 1]
    squared: FloatArray = sums**2 / (sizes * (n - sizes))
    return squared


@cache
def _orders(n: int) -> list[IntArray]:
    """Return random orders in ten parts (permutations, n)."""
    return np.array_split(random_orders(n, PERMUTATIONS), 10)
