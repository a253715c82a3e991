"""Confidence intervals by inverting a rank test, so that interval and p-value cannot disagree.

As the assumed shift theta grows, a rank test's p-value is constant between two neighbouring *critical points* (the
Walsh averages, or the pairwise differences of two samples) and rises towards the centre, then falls. The interval is
the closed hull of the stretches where p > alpha.

Edge convention. At a critical point itself (ties or zeros after subtracting theta) the p-value of the dropped-zeros,
midrank test can jump above or below that of both neighbours. This matters at one point only, the null value that the
p-value is quoted for, and there the p-value rules:

- p > alpha, null outside the hull: the interval is extended to it, as a closed end;
- p <= alpha, null inside the hull or on its edge: the interval is cut there, and that end is *open*.

So ``interval.excludes(null)`` is the same statement as ``p <= alpha``, always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meshtrial.stats.ranknull import FloatArray


@dataclass(frozen=True, slots=True)
class RankInterval:
    """A Hodges-Lehmann estimate with its inverted interval and the p-value of the same test.

    Attributes
    ----------
    estimate, low, high : float
        In the unit of the data; the ends are infinite where no shift can be rejected at `alpha`.
    low_open, high_open : bool
        The end equals the null value, and the test rejects it (see the module's edge convention).
    confidence : float
        The confidence actually achieved, at least 1 - alpha; 1.0 for an unbounded interval.
    p : float
        Exact two-sided p-value at the null value.
    n : int
        Observations (pairs, or both samples together).
    alpha, null : float
        What the interval was asked for.
    """

    estimate: float
    low: float
    high: float
    low_open: bool
    high_open: bool
    confidence: float
    p: float
    n: int
    alpha: float
    null: float

    @property
    def bounded(self) -> bool:
        """Whether the sample is large enough for an interval at this alpha."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside, an open end counting as outside."""
        below = value < self.low or (self.low_open and value == self.low)
        above = value > self.high or (self.high_open and value == self.high)
        return below or above


def distinct(ordered: FloatArray, atol: float) -> FloatArray:
    """Sorted values with those within `atol` of their predecessor left out."""
    return ordered[np.concatenate(([True], np.diff(ordered) > atol))]


def invert(
    points: FloatArray, p_at: Callable[[float], float], alpha: float, centre: float
) -> tuple[float, float, float]:
    """Hull of the accepted stretches between critical points, by bisection on each side of the centre.

    Parameters
    ----------
    points : (k,) array
        Distinct critical points, ascending.
    p_at : callable
        Two-sided p-value of an assumed shift.
    alpha : float
        Shifts with p <= alpha are rejected.
    centre : float
        The estimate; stretches next to it have the largest p.

    Returns
    -------
    low, high, confidence
    """
    k = len(points)
    reach = max(1.0, float(points[-1] - points[0]))
    # one theta inside every stretch: before the first point, between neighbours, after the last
    inside = np.concatenate(([points[0] - reach], (points[1:] + points[:-1]) / 2, [points[-1] + reach]))
    # the estimate lies in a stretch or on the point between two
    middle = int(np.searchsorted(points, centre))
    start = max({middle, min(middle + 1, k), max(middle - 1, 0)}, key=lambda i: p_at(float(inside[i])))
    p_start = p_at(float(inside[start]))
    if p_start <= alpha:  # nearly all values equal: no stretch is accepted, only the point itself
        return centre, centre, 1.0 - p_start

    def edge(rejected: int) -> tuple[int, float]:
        """Outermost accepted stretch towards `rejected`, and the p-value just beyond it."""
        accepted, beyond = start, 0.0
        while abs(accepted - rejected) > 1:
            probe = (accepted + rejected) // 2
            p = p_at(float(inside[probe]))
            if p > alpha:
                accepted = probe
            else:
                rejected, beyond = probe, p
        return accepted, beyond

    first, p_below = edge(-1)
    last, p_above = edge(k + 1)
    # stretch i runs from points[i - 1] to points[i]
    low = float(points[first - 1]) if first > 0 else -math.inf
    high = float(points[last]) if last < k else math.inf
    # p is twice a tail, so the two tails left outside weigh half of each p
    return low, high, 1.0 - (p_below + p_above) / 2


def settle(
    estimate: float,
    low: float,
    high: float,
    confidence: float,
    p: float,
    n: int,
    alpha: float,
    null: float,
    atol: float = 0.0,
) -> RankInterval:
    """Apply the edge convention at the null value and pack the result; ends within `atol` of the null lie on it."""
    estimate, low, high = (null if abs(v - null) <= atol else v for v in (estimate, low, high))
    low_open = high_open = False
    if p > alpha:
        low, high = min(low, null), max(high, null)
    elif low <= null <= high:
        # keep the estimate's side; an estimate on the null itself goes with the longer side
        above = estimate > null or (estimate == null and high - null >= null - low)
        if above:
            low, low_open = null, True
        else:
            high, high_open = null, True
    return RankInterval(estimate, low, high, low_open, high_open, confidence, p, n, alpha, null)
