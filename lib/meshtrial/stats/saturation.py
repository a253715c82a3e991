"""Capacity: the highest rate that a treatment keeps. Saturation is a result of its own, never a latency.

One ladder gives a bracket: the highest rate kept below every failed one, and the lowest rate that failed. Repeats give
an interval for the median capacity by the sign test, which asks nothing of the distribution: from the brackets' lower
ends to their upper ends, so the grain of the ladder is inside the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Warning
from meshtrial.stats.intervals import median_ranks


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One run at one rate."""

    rate: float  # requests a second asked for
    kept: float  # achieved over requested rate
    ok: bool = True  # whether the other gates passed (errors, late sends)

    def __post_init__(self) -> None:
        if not (self.rate > 0 and math.isfinite(self.rate) and self.kept >= 0):
            raise UsageError(f"a rung needs a positive rate and a share of at least 0, got {self.rate} and {self.kept}")

    def holds(self, tolerance: float) -> bool:
        """Whether the rate was delivered within the tolerance and the gates passed."""
        return self.ok and self.kept >= 1 - tolerance


@dataclass(frozen=True, slots=True)
class Bracket:
    """What one ladder shows: capacity lies in [low, high)."""

    low: float  # highest rate kept below every failed one; 0 where even the lowest failed
    high: float  # lowest rate that failed; infinite where none did


@dataclass(frozen=True, slots=True)
class Capacity:
    """Median capacity over repeats."""

    estimate: float  # median over the repeats of the highest rate kept, requests a second
    # Interval; 0 or infinite where the ladders ended first
    low: float
    high: float
    confidence: float  # confidence that the interval achieves
    n: int  # repeats
    brackets: tuple[Bracket, ...]  # one a repeat
    warnings: tuple[Warning, ...]  # what a reader must know


def rates(history: Sequence[LoadStep], tolerance: float) -> dict[float, bool | None]:
    """State of every rate tried: kept (True), failed (False), or failed once and to be repeated (None).

    A rate that fails is repeated once, as every run that fails a gate; it is kept if the repeat keeps it.
    """
    tries: dict[float, list[bool]] = {}
    for rung in history:
        tries.setdefault(rung.rate, []).append(rung.holds(tolerance))
    return {rate: True if any(held) else False if len(held) > 1 else None for rate, held in tries.items()}


def bracket(history: Sequence[LoadStep], *, tolerance: float = 0.02) -> Bracket:
    """Bracket the capacity from one ladder or search, in any order; a rate tried once and failed counts as failed."""
    if not history:
        raise UsageError("a ladder without a run has no capacity")
    state = rates(history, tolerance)
    high = min((rate for rate, kept in state.items() if not kept), default=math.inf)
    low = max((rate for rate, kept in state.items() if kept and rate < high), default=0.0)
    return Bracket(low, high)


def capacity(repeats: Sequence[Sequence[LoadStep]], *, alpha: float = 0.05, tolerance: float = 0.02) -> Capacity:
    """Median capacity with its interval over repeated ladders, one a fresh deployment; UsageError without any.

    Where the repeats cannot reach 1 - `alpha`, the interval is their whole range, with the confidence that this
    achieves (three repeats: 75 %). `tolerance` is the largest missing share of the rate.
    """
    if not repeats:
        raise UsageError("capacity needs at least one ladder")
    brackets = tuple(bracket(history, tolerance=tolerance) for history in repeats)
    n = len(brackets)
    lows, highs = np.sort([b.low for b in brackets]), np.sort([b.high for b in brackets])
    enclosing = median_ranks(n, alpha)
    k, confidence = enclosing.rank, enclosing.confidence
    warnings = []
    if confidence < 1 - alpha:
        needed = math.ceil(1 - math.log2(alpha))
        text = f"{n} repeats reach {confidence:.0%} confidence, not {1 - alpha:.0%}: repeat at least {needed} times"
        warnings.append(Warning("below-floor", text))
    if math.isinf(highs[-1]):
        warnings.append(
            Warning("ladder-too-low", "the highest rate was kept: capacity lies above it; extend the ladder")
        )
    if lows[0] == 0:
        warnings.append(Warning("ladder-too-high", "the lowest rate failed: capacity lies below it; start lower"))
    middle, low, high = float(np.median(lows)), float(lows[k - 1]), float(highs[n - k])
    return Capacity(middle, low, high, confidence, n, brackets, tuple(warnings))


@dataclass(frozen=True, slots=True)
class RateSearch:
    """Adaptive search for the capacity: double until it fails, then halve the bracket on the log scale.

    A pure state machine: the next rate depends on the history alone, so a broken search goes on where it stopped.
    """

    # First rate to try, and the rates not to leave, requests a second
    start: float
    highest: float
    lowest: float = 1.0
    factor: float = 2.0  # step while no bracket is known
    resolution: float = 0.05  # relative width of the bracket to stop at, 0.05 for 5 %
    tolerance: float = 0.02  # largest missing share of the rate

    def __post_init__(self) -> None:
        if not (0 < self.lowest <= self.start <= self.highest and self.factor > 1 and self.resolution > 0):
            raise UsageError(
                "a search needs 0 < lowest <= start <= highest, factor > 1 and resolution > 0, got "
                f"{self.lowest}, {self.start}, {self.highest}, {self.factor}, {self.resolution}"
            )

    def next_rate(self, history: Sequence[LoadStep]) -> float | None:
        """The rate to try after every run so far; None where the search is over."""
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
    """Three digits: finer than any resolution worth searching for, and easier to read."""
    return float(f"{rate:.3g}")
