"""Cross-checks of the signed-rank verdict that only ever warn: sign flips of the mean, and the paired t-test."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from meshtrial.stats.ranknull import FloatArray

# 2^(36/2) sums a half is still instant; beyond that the normal limit of the flip distribution is exact enough to warn
# by
_EXACT_UP_TO = 36


@lru_cache(maxsize=32)
def _signs(n: int) -> FloatArray:
    codes = np.arange(2**n)[:, None] >> np.arange(n)
    signs: FloatArray = 1.0 - 2.0 * (codes & 1).astype(np.float64)
    return signs


def sign_flip_p(d: FloatArray) -> float:
    """Two-sided p-value of the mean over all 2^n sign patterns (Fisher 1935); normal limit beyond n = 36.

    Parameters
    ----------
    d : (n,) array
        Finite differences.

    Returns
    -------
    float
    """
    n = len(d)
    observed = abs(float(d.sum()))
    if n > _EXACT_UP_TO:
        spread = math.sqrt(float((d * d).sum()))
        return 1.0 if spread == 0 else 2.0 * float(special.ndtr(-observed / spread))
    # meet in the middle: a sum over all signs is a sum of the first half plus a sum of the second
    half = n // 2
    first = _signs(half) @ d[:half]
    second = np.sort(_signs(n - half) @ d[half:])
    # sums that equal the observed one up to rounding count as equal
    threshold = observed - 1e-12 * float(np.abs(d).sum())
    as_large = len(first) * len(second) - int(np.searchsorted(second, threshold - first).sum())
    return min(1.0, 2.0 * as_large / 2.0**n)


def paired_t_p(mean: float, sd: float, n: int) -> float:
    """Two-sided p-value of the one-sample t-test of the mean; 1.0 where nothing varies about zero."""
    if sd == 0:
        return 0.0 if mean else 1.0
    return 2.0 * float(special.stdtr(n - 1, -abs(mean) / sd * math.sqrt(n)))


def paired_t_interval(mean: float, sd: float, n: int, alpha: float) -> tuple[float, float]:
    """Mean plus and minus t times its standard error."""
    half = float(special.stdtrit(n - 1, 1 - alpha / 2)) * sd / math.sqrt(n)
    return mean - half, mean + half
