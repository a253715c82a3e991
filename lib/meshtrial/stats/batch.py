"""The same exact test and interval for many samples at once: leave-one-out checks and calibration by simulation.

Rows without ties and zeros go through one table look-up; the few others fall back to the scalar functions, so that a
row's answer never depends on the company it keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshtrial.stats.hodges_lehmann import hodges_lehmann
from meshtrial.stats.ranknull import FloatArray, clean_signed_rank_tail
from meshtrial.stats.signedrank import Alternative, critical_count, signed_rank_p


def signed_rank_p_rows(d: FloatArray, alternative: Alternative = "two-sided", *, atol: float = 0.0) -> FloatArray:
    """Exact signed-rank p-value of every row.

    Parameters
    ----------
    d : (k, n) array
        Finite differences, a sample a row.
    alternative, atol
        As in `meshtrial.stats.signedrank.signed_rank`.

    Returns
    -------
    (k,) array
    """
    _, n = d.shape
    size = np.abs(d)
    order = size.argsort(axis=1)
    positive = np.take_along_axis(d > 0, order, axis=1)
    statistic = positive @ np.arange(1, n + 1)
    tail, total = clean_signed_rank_tail(n), n * (n + 1) // 2
    if alternative == "greater":
        p: FloatArray = tail[statistic]
    elif alternative == "less":
        p = tail[total - statistic]
    else:
        p = np.minimum(1.0, 2.0 * tail[np.maximum(statistic, total - statistic)])
    size = np.take_along_axis(size, order, axis=1)
    for row in np.flatnonzero((size[:, 0] <= atol) | (np.diff(size, axis=1) <= atol).any(axis=1)):
        p[row] = signed_rank_p(d[row], alternative, atol)
    return p


@dataclass(frozen=True, slots=True)
class IntervalRows:
    """Estimates, intervals and p-values of many samples.

    Attributes
    ----------
    estimate, low, high, p : (k,) array
        As in `meshtrial.stats.inversion.RankInterval`, a sample an element.
    excludes_null : (k,) bool array
        Whether the interval leaves out zero.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    excludes_null: NDArray[np.bool_]


def hodges_lehmann_rows(d: FloatArray, alpha: float = 0.05, *, atol: float = 0.0) -> IntervalRows:
    """Hodges-Lehmann estimate and inverted interval of every row.

    Parameters
    ----------
    d : (k, n) array
        Finite differences, a sample a row.
    alpha, atol
        As in `meshtrial.stats.hodges_lehmann.hodges_lehmann`.

    Returns
    -------
    IntervalRows
    """
    rows, n = d.shape
    i, j = np.triu_indices(n)
    averages = (d[:, i] + d[:, j]) / 2
    averages.sort(axis=1)
    count = averages.shape[1]
    estimate = (averages[:, (count - 1) // 2] + averages[:, count // 2]) / 2
    k = critical_count(n, alpha)
    low = averages[:, k].copy() if k >= 0 else np.full(rows, -math.inf)
    high = averages[:, count - 1 - k].copy() if k >= 0 else np.full(rows, math.inf)
    p = signed_rank_p_rows(d, atol=atol)
    excludes = (low > 0) | (high < 0)
    # zeros, equal values and equal sizes need the scalar function's edge convention
    sizes = np.sort(np.abs(d), axis=1)
    for row in np.flatnonzero((sizes[:, 0] <= atol) | (np.diff(sizes, axis=1) <= atol).any(axis=1)):
        one = hodges_lehmann(d[row], alpha, atol=atol)
        estimate[row], low[row], high[row], excludes[row] = one.estimate, one.low, one.high, one.excludes(0.0)
    return IntervalRows(estimate, low, high, p, excludes)
