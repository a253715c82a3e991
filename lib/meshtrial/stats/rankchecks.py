"""The three rank tests that the diagnostics need, with their usual large-sample p-values.

Diagnostics only warn, at a level of 1 %, so an approximation is good enough here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from meshtrial.stats.ranknull import FloatArray


def spearman(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Rank correlation and its two-sided p-value (t approximation); (0, 1) where either does not vary."""
    if len(x) < 5 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 1.0
    found = stats.spearmanr(x, y)
    return float(found.statistic), float(found.pvalue)


def kruskal(groups: Sequence[FloatArray]) -> float:
    """Kruskal-Wallis p-value (chi-square approximation) over groups of three or more; 1.0 with fewer than two."""
    large = [g for g in groups if len(g) >= 3]
    if len(large) < 2 or np.ptp(np.concatenate(large)) == 0:
        return 1.0
    return float(stats.kruskal(*large).pvalue)


def lag_one(series: FloatArray) -> tuple[float, float]:
    """Autocorrelation of neighbours and its one-sided p-value (normal, mean -1/n: Moran 1948); (0, 1) below n = 8."""
    n = len(series)
    centred = series - series.mean()
    spread = float((centred**2).sum())
    if n < 8 or spread == 0:
        return 0.0, 1.0
    r = float((centred[1:] * centred[:-1]).sum()) / spread
    sd = (n - 2) / (n * math.sqrt(n - 1))
    return r, float(special.ndtr(-(r + 1 / n) / sd))
