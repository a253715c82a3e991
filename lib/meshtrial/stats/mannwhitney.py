"""Exact two-sample test for data that are not paired (Mann & Whitney 1947), with its inverted shift interval.

For results that somebody already has. It cannot see that all runs of one arm came before all runs of the other, and
that order alone gives a third of false positives: the caller attaches that warning. 3 against 3 runs cannot go below
p = 0.10; 6 against 6 reach 2/924.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.stats.hodges_lehmann import middle_of
from meshtrial.stats.inversion import RankInterval, distinct, invert, settle
from meshtrial.stats.ranknull import FloatArray, doubled_midranks, rank_sum_tails
from meshtrial.stats.signedrank import Alternative, as_sample


@dataclass(frozen=True, slots=True)
class MannWhitney:
    """Result of one exact two-sample rank test.

    Attributes
    ----------
    statistic : float
        U of the first sample: pairs in which it is larger, ties counting one half.
    p : float
        Exact p-value over all ways to split the pooled values.
    n_x, n_y : int
        Sizes of the samples.
    ties : bool
        Whether two of the pooled values are equal.
    smallest_p : float
        The smallest p that untied samples of these sizes can give.
    alternative : str
        ``"two-sided"``, ``"greater"`` (x lies above y) or ``"less"``.
    """

    statistic: float
    p: float
    n_x: int
    n_y: int
    ties: bool
    smallest_p: float
    alternative: Alternative


def smallest_p_unpaired(n_x: int, n_y: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p-value of two untied samples: 2 / C(n_x + n_y, n_x), one-sided half of it."""
    ways = math.comb(n_x + n_y, n_x)
    return min(1.0, 2.0 / ways) if alternative == "two-sided" else 1.0 / ways


def _mann_whitney(x: FloatArray, y: FloatArray, alternative: Alternative, atol: float) -> tuple[float, float, bool]:
    pooled = np.concatenate((x, y))
    order = pooled.argsort(kind="stable")
    ranks = doubled_midranks(pooled[order], atol)
    ties = bool((np.diff(ranks) == 0).any())
    doubled = int(ranks[order < len(x)].sum())
    lower, upper = rank_sum_tails(tuple(ranks.tolist()), len(x))
    less, greater = float(lower[doubled]), float(upper[doubled])
    if alternative == "greater":
        p = greater
    elif alternative == "less":
        p = less
    else:
        p = min(1.0, 2.0 * min(greater, less))
    statistic = doubled / 2 - len(x) * (len(x) + 1) / 2
    return statistic, p, ties


def mann_whitney(
    x: ArrayLike, y: ArrayLike, alternative: Alternative = "two-sided", *, atol: float = 0.0
) -> MannWhitney:
    """Exact Mann-Whitney test, ties by midranks.

    Parameters
    ----------
    x, y : (n_x,), (n_y,) array_like
        One value a run.
    alternative : {"two-sided", "greater", "less"}
        ``"greater"``: x lies above y.
    atol : float
        Values no further apart than this are tied.

    Raises
    ------
    UsageError
        If a sample is empty or not finite.
    """
    a, b = as_sample(x, "x"), as_sample(y, "y")
    statistic, p, ties = _mann_whitney(a, b, alternative, atol)
    return MannWhitney(
        statistic, p, len(a), len(b), ties, smallest_p_unpaired(len(a), len(b), alternative), alternative
    )


@lru_cache(maxsize=1024)
def _critical(n_x: int, n_y: int, alpha: float) -> tuple[int, float]:
    """Largest U that rejects from below (-1: none does) and the two-sided size of that rejection."""
    lower, _ = rank_sum_tails(tuple(range(1, n_x + n_y + 1)), n_x)
    sizes = 2.0 * lower[n_x * (n_x + 1) // 2 :]  # U counts from the smallest rank sum
    k = int(np.searchsorted(sizes, alpha, side="right")) - 1
    return k, float(sizes[k]) if k >= 0 else 0.0


def hodges_lehmann_two(
    x: ArrayLike, y: ArrayLike, alpha: float = 0.05, *, null: float = 0.0, atol: float = 0.0
) -> RankInterval:
    """Median of all x_i - y_j, with the interval of the exact Mann-Whitney test.

    Parameters
    ----------
    x, y : (n_x,), (n_y,) array_like
        One value a run.
    alpha, null, atol
        As in `meshtrial.stats.hodges_lehmann.hodges_lehmann`.

    Returns
    -------
    RankInterval
        ``result.excludes(null) == (result.p <= alpha)``.
    """
    a, b = as_sample(x, "x"), as_sample(y, "y")
    gaps: FloatArray = np.sort((a[:, None] - b[None, :]).ravel())
    estimate = middle_of(gaps)

    def p_at(theta: float) -> float:
        return _mann_whitney(a - theta, b, "two-sided", atol)[1]

    repeated = any(bool((np.diff(np.sort(v)) <= atol).any()) for v in (a, b))
    if repeated:
        low, high, confidence = invert(distinct(gaps, atol), p_at, alpha, estimate)
    else:
        k, size = _critical(len(a), len(b), alpha)
        low, high = (float(gaps[k]), float(gaps[len(gaps) - 1 - k])) if k >= 0 else (-math.inf, math.inf)
        confidence = 1.0 - size
    return settle(estimate, low, high, confidence, p_at(null), len(a) + len(b), alpha, null, atol)
