"""Exact null distributions of rank statistics, ties included, by dynamic programming.

Ranks are carried doubled, so that midranks are whole numbers. The tails are kept as probabilities, not counts:
for up to 53 observations they are exact in binary floating point, beyond that rounding is below 1e-12.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def doubled_midranks(ordered: FloatArray, atol: float = 0.0) -> IntArray:
    """Twice the midranks of values that are already sorted.

    Parameters
    ----------
    ordered : (n,) array
        Ascending values.
    atol : float
        Neighbours no further apart than this are tied: rounding must not break a tie.

    Returns
    -------
    (n,) int array
    """
    n = len(ordered)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] - ordered[:-1] > atol)))
    counts = np.diff(np.concatenate((starts, [n])))
    # the ranks start+1 .. start+count have the mean (2 start + count + 1) / 2
    doubled: IntArray = np.repeat(2 * starts + counts + 1, counts)
    return doubled


@lru_cache(maxsize=8192)
def signed_rank_tail(doubled_ranks: tuple[int, ...]) -> FloatArray:
    """Upper tail of the signed-rank sum for given doubled ranks, when every sign is a fair coin.

    Returns
    -------
    (sum + 1,) array
        Element t is P(2 T+ >= t). The distribution is symmetric: P(2 T+ <= t) is element ``sum - t``.
    """
    mass = np.ones(1)
    for rank in doubled_ranks:
        grown = np.zeros(len(mass) + rank)
        grown[: len(mass)] = mass / 2
        grown[rank:] += mass / 2
        mass = grown
    tail: FloatArray = mass[::-1].cumsum()[::-1]
    return tail


@lru_cache(maxsize=512)
def clean_signed_rank_tail(n: int) -> FloatArray:
    """P(T+ >= t) for n untied ranks 1..n, in whole (not doubled) ranks."""
    return signed_rank_tail(tuple(range(1, n + 1)))


@lru_cache(maxsize=2048)
def rank_sum_tails(doubled_ranks: tuple[int, ...], size: int) -> tuple[FloatArray, FloatArray]:
    """Both tails of the rank sum of `size` ranks drawn without replacement.

    Returns
    -------
    lower, upper : (sum + 1,) arrays
        P(2 W <= t) and P(2 W >= t), where ``sum`` is the sum of all doubled ranks.
    """
    total = sum(doubled_ranks)
    # ways[k, t]: weight of all draws of k ranks so far with sum t, halved at every step to stay below 1; conditioning
    # on k = size at the end divides the scale out again
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1.0
    reach = 0
    for rank in doubled_ranks:
        moved = ways[:-1, : reach + 1] / 2
        ways[:, : reach + 1] /= 2
        ways[1:, rank : reach + rank + 1] += moved
        reach += rank
    lower: FloatArray = ways[size].cumsum()
    upper: FloatArray = ways[size][::-1].cumsum()[::-1]
    return lower / lower[-1], upper / upper[0]
