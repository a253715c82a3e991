"""Which order statistics enclose a median: the sign test turned over, which asks nothing of the distribution.

The interval from the k-th smallest to the k-th largest of n values misses the median with probability 2 P(B < k), B
binomial(n, 1/2) (Gibbons and Chakraborti, Nonparametric Statistical Inference, 5th ed., section 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from meshtrial.errors import UsageError


@dataclass(frozen=True, slots=True)
class MedianRanks:
    """Order statistics that enclose a median.

    Attributes
    ----------
    rank : int
        The interval reaches from the `rank`-th smallest value to the `rank`-th largest, counted from 1.
    confidence : float
        What it achieves; below what was asked for where even the whole range cannot reach that.
    """

    rank: int
    confidence: float


def median_ranks(n: int, alpha: float) -> MedianRanks:
    """The narrowest pair for `n` values with a confidence of at least 1 - `alpha`, else their whole range.

    Parameters
    ----------
    n : int
        At least 1.
    alpha : float

    Raises
    ------
    UsageError
        Without values.
    """
    if n < 1:
        raise UsageError("an interval of a median needs at least one value")
    tails = special.bdtr(np.arange(n), n, 0.5)  # P(at most k of n below the median)
    rank = max(int(np.searchsorted(2 * tails, alpha, side="right")), 1)
    return MedianRanks(rank, max(0.0, 1 - 2 * float(tails[rank - 1])))
