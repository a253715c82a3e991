"""Capacity: the highest rate that a treatment sustains. Saturation is a result of its own, never a latency.

One series of rates gives a bracket: the highest sustained rate below every failed one, and the lowest failed rate.
Repeats give an interval for the median capacity by the sign test, which assumes no distribution. It reaches from the
brackets' lower ends to their upper ends and so includes the step between rates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial.stats.intervals import median_ranks
from meshtrial.vocabulary import Warning


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One run at one rate."""

    rate: float  # requested, in requests per second
    kept: float  # achieved over requested rate
    ok: bool = True  # whether all other checks passed (errors, late sends)

    def holds(self, tolerance: float) -> bool:
        """Whether the rate was achieved within the tolerance and the other checks passed."""
        return self.ok and self.kept >= 1 - tolerance


@dataclass(frozen=True, slots=True)
class Bracket:
    """What one series of rates shows: capacity lies in [low, high)."""

    low: float  # highest sustained rate below every failed one; 0 if even the lowest failed
    high: float  # lowest failed rate; infinite if none failed


@dataclass(frozen=True, slots=True)
class Capacity:
    """Median capacity over repeats."""

    estimate: float  # median over the repeats of the highest sustained rate, in requests per second
    # Interval; 0 or infinite if the rates ended too early
    low: float
    high: float
    confidence: float  # achieved by the interval
    n: int  # repeats
    warnings: tuple[Warning, ...]


def rates(history: Sequence[LoadStep], tolerance: float) -> dict[float, bool | None]:
    """Return the state of every rate tried: sustained (True), failed (False), or failed once and to be repeated (None).

    A rate that fails is repeated once, like every run that fails a check, and the repeat decides.
    """
    tries: dict[float, list[bool]] = {}
    for rung in history:
        tries.setdefault(rung.rate, []).append(rung.holds(tolerance))
    return {rate: True if any(results) else False if len(results) > 1 else None for rate, results in tries.items()}


def bracket(history: Sequence[LoadStep], *, tolerance: float = 0.02) -> Bracket:
    """Bracket the capacity by one series of rates in any order; a rate that failed its only try counts as failed."""
    state = rates(history, tolerance)
    high = min((rate for rate, kept in state.items() if not kept), default=math.inf)
    low = max((rate for rate, kept in state.items() if kept and rate < high), default=0.0)
    return Bracket(low, high)


def capacity(repeats: Sequence[Sequence[LoadStep]], *, alpha: float = 0.05, tolerance: float = 0.02) -> Capacity:
    """Return the median capacity over repeated series of rates, one per fresh deployment.

    If the repeats cannot reach 1 - `alpha`, the interval is their whole range with its own confidence (three repeats:
    75 %). `tolerance` is the largest missing share of the rate.
    """
    brackets = [bracket(history, tolerance=tolerance) for history in repeats]
    n = len(brackets)
    lows, highs = np.sort([b.low for b in brackets]), np.sort([b.high for b in brackets])
    enclosing = median_ranks(n, alpha)
    k, confidence = enclosing.rank, enclosing.confidence
    warnings = []
    if confidence < 1 - alpha:
        needed = math.ceil(1 - math.log2(alpha))
        text = f"{n} repeats reach {confidence:.0%} confidence, not {1 - alpha:.0%}; repeat at least {needed} times"
        warnings.append(Warning("below-floor", text))
    if math.isinf(highs[-1]):
        warnings.append(
            Warning("ladder-too-low", "the highest rate was sustained, so capacity is above it; add higher rates")
        )
    if lows[0] == 0:
        warnings.append(Warning("ladder-too-high", "the lowest rate failed, so capacity is below it; start lower"))
    middle, low, high = float(np.median(lows)), float(lows[k - 1]), float(highs[n - k])
    return Capacity(middle, low, high, confidence, n, tuple(warnings))


@dataclass(frozen=True, slots=True)
class RateSearch:
    """Adaptive search for the capacity: double until a rate fails, then halve the bracket on the log scale.

    The next rate depends on the history alone, so an interrupted search resumes where it stopped.
    """

    # First rate to try, and the highest and lowest one allowed, in requests per second
    start: float
    highest: float
    lowest: float = 1.0
    factor: float = 2.0  # step until a bracket is known
    resolution: float = 0.05  # relative width of the bracket at which the search ends
    tolerance: float = 0.02  # largest missing share of the rate

    def next_rate(self, history: Sequence[LoadStep]) -> float | None:
        """Return the rate to try after this history; None when the search is over."""
        if not history:
            return self.start
        state = rates(history, self.tolerance)
        again = [rate for rate, kept in state.items() if kept is None]
        if again:
            return again[0]
        known = bracket(history, tolerance=self.tolerance)
        if math.isinf(known.high):
            following = min(known.low * self.factor, self.highest)
            return following if following > known.low else None
        if known.low == 0:
            following = max(known.high / self.factor, self.lowest)
            return following if following < known.high else None
        if known.high / known.low <= 1 + self.resolution:
            return None
        middle = tidy(math.sqrt(known.low * known.high))
        return middle if known.low < middle < known.high else None


def tidy(rate: float) -> float:
    """Return the rate with three digits, which is finer than any useful resolution."""
    return float(f"{rate:.3g}")
