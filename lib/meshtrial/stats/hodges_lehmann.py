"""Hodges-Lehmann estimates with intervals inverted from the exact rank tests (Hodges & Lehmann 1963).

One sample: the median of the Walsh averages (d_i + d_j)/2, i <= j, with the exact signed-rank test. Two samples: the
median of the pairwise differences, with the exact Mann-Whitney test (see `mannwhitney`). Both resist the few wild
runs that a benchmark always has; a mean does not.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.stats.inversion import RankInterval, distinct, invert, settle
from meshtrial.stats.ranknull import FloatArray, clean_signed_rank_tail
from meshtrial.stats.signedrank import as_sample, critical_count, signed_rank_p


@lru_cache(maxsize=64)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    i, j = np.triu_indices(n)
    return i, j


def walsh_averages(d: FloatArray) -> FloatArray:
    """All n(n+1)/2 pairwise averages (d_i + d_j)/2, i <= j, ascending."""
    i, j = _pairs(len(d))
    averages: FloatArray = (d[i] + d[j]) / 2
    averages.sort()
    return averages


def middle_of(ordered: FloatArray) -> float:
    """Median of sorted values."""
    half, odd = divmod(len(ordered), 2)
    return float(ordered[half]) if odd else float(ordered[half - 1] + ordered[half]) / 2


def hodges_lehmann(
    differences: ArrayLike, alpha: float = 0.05, *, null: float = 0.0, atol: float = 0.0
) -> RankInterval:
    """Median of the Walsh averages, with the interval of the exact signed-rank test.

    Parameters
    ----------
    differences : (n,) array_like
        One difference a block.
    alpha : float
        One minus the nominal confidence.
    null : float
        The shift that the p-value is quoted for.
    atol : float
        Tolerance for ties and zeros, in the unit of the differences.

    Returns
    -------
    RankInterval
        ``result.excludes(null) == (result.p <= alpha)``, ties and zeros included.

    Raises
    ------
    UsageError
        If the sample is empty or not finite.
    """
    d = as_sample(differences)
    n = len(d)
    averages = walsh_averages(d)
    estimate = middle_of(averages)
    p = signed_rank_p(d - null if null else d, "two-sided", atol)
    ordered = np.sort(d)
    repeated = bool((ordered[1:] - ordered[:-1] <= atol).any())
    if not repeated:
        # equal sizes of opposite sign tie at single shifts only: between them the untied table holds (Lehmann 1975,
        # ch. 3)
        k = critical_count(n, alpha)
        if k < 0:
            low, high, confidence = -math.inf, math.inf, 1.0
        else:
            low, high = float(averages[k]), float(averages[len(averages) - 1 - k])
            total = n * (n + 1) // 2
            confidence = 1.0 - 2.0 * float(clean_signed_rank_tail(n)[total - k])
    else:
        low, high, confidence = invert(
            distinct(averages, atol), lambda theta: signed_rank_p(d - theta, "two-sided", atol), alpha, estimate
        )
    return settle(estimate, low, high, confidence, p, n, alpha, null, atol)
