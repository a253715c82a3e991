"""Exact rank tests of paired differences and of two samples, with ties.

At the n of a benchmark (5 to 30 blocks) an exact null distribution is cheap. Only beyond 120 unpaired runs, 120 blocks
with ties or 1000 without is the normal limit used. Paired: Wilcoxon's signed-rank test (1945) with zeros dropped and
ties at their midrank, over all 2^n sign patterns. It equals ``scipy.stats.wilcoxon(d, method="exact")`` without ties
and zeros, and ``wilcoxon(d, method=PermutationMethod(n_resamples=inf))`` with them, a hundred times faster. Unpaired:
Mann and Whitney's test (1947). It cannot detect that all runs of one treatment came before those of the other, and that
order alone gives a third of false positives; the caller adds that warning. 3 against 3 runs cannot go below p = 0.10;
6 against 6 reach 2/924. Equivalence: two one-sided tests (Schuirmann 1987).

Null distributions come from dynamic programming. Ranks are doubled, so that midranks are whole numbers. Tails are
probabilities: up to 53 observations they are exact in binary floating point, beyond that rounding is below 1e-12.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from meshtrial.errors import UsageError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# Measurements do not resolve one part in 10^12: closer values are equal up to rounding, whatever their unit.
RESOLUTION = 1e-12
# Both samples together, or blocks with ties. Each pattern of ties has its own distribution, and beyond this number it
# takes seconds. The normal limit is then within 1e-3 of the exact p-value, without ties within 1e-4.
EXACT_RUNS = 120
# Without ties all studies of this number of blocks share one distribution; a larger one takes seconds too.
EXACT_BLOCKS = 1000


def doubled_midranks(ordered: FloatArray, atol: float = 0.0) -> IntArray:
    """Return twice the midranks of ascending values; neighbours within `atol` are tied."""
    n = len(ordered)
    with np.errstate(invalid="ignore"):  # infinite values are tied with each other
        apart = ordered[1:] - ordered[:-1] > atol
    starts = np.flatnonzero(np.concatenate(([True], apart)))
    counts = np.diff(np.concatenate((starts, [n])))
    # The ranks start+1 .. start+count have the mean (2 start + count + 1) / 2.
    doubled: IntArray = np.repeat(2 * starts + counts + 1, counts)
    return doubled


def _tail_of(ranks: Iterable[int]) -> FloatArray:
    mass = np.ones(1)
    for rank in ranks:
        grown = np.zeros(len(mass) + rank)
        grown[: len(mass)] = mass / 2
        grown[rank:] += mass / 2
        mass = grown
    tail: FloatArray = np.minimum(1.0, mass[::-1].cumsum()[::-1])  # rounding may exceed 1
    return tail


@lru_cache(maxsize=512)  # at most 8 n (n + 1) bytes each, 116 kB for the largest n: 60 MB in all
def signed_rank_tail(doubled_ranks: tuple[int, ...]) -> FloatArray:
    """Return P(2 T+ >= t) by t if every sign is random; P(2 T+ <= t) is element ``sum - t`` by symmetry."""
    return _tail_of(doubled_ranks)


@lru_cache(maxsize=64)  # 4 n (n + 1) bytes each; studies use few different n
def clean_signed_rank_tail(n: int) -> FloatArray:
    """Return P(T+ >= t) by t for n untied ranks 1..n, in whole (not doubled) ranks."""
    if n <= EXACT_BLOCKS:
        return _tail_of(range(1, n + 1))
    total = n * (n + 1) // 2
    tail: FloatArray = special.ndtr((total / 2 + 0.5 - np.arange(total + 1)) / math.sqrt(total * (2 * n + 1) / 12))
    return tail


@lru_cache(maxsize=256)  # at most 232 kB each
def rank_sum_tails(doubled_ranks: tuple[int, ...], size: int) -> tuple[FloatArray, FloatArray]:
    """Return P(2 W <= t) and P(2 W >= t) by t for the sum W of `size` ranks drawn without replacement."""
    total = sum(doubled_ranks)
    # ways[k, t]: weight of all draws of k ranks so far with sum t, halved at every step to stay below 1; conditioning
    # on k = size at the end removes that factor.
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


Alternative = Literal["two-sided", "greater", "less"]


def smallest_p(n: int, alternative: Alternative = "two-sided") -> float:
    """Return the smallest p-value of n untied pairs: 2^(1-n), one-sided 2^-n."""
    return min(1.0, 2.0 ** (1 - n)) if alternative == "two-sided" else 2.0**-n


@lru_cache(maxsize=64)
def random_orders(n: int, count: int) -> IntArray:
    """Return random orders (count, n) of n places, always the same, so that results are reproducible."""
    return np.random.default_rng(0).permuted(np.tile(np.arange(n), (count, 1)), axis=1)


WORST = (math.inf,)  # the value of a run that failed on its own and ranks behind every other
FARTHEST = (-math.inf, math.inf)  # a block difference with such a run


def as_sample(values: ArrayLike, name: str = "differences", *, infinite: tuple[float, ...] = ()) -> FloatArray:
    """Return the values as an array; raise UsageError unless they are one-dimensional and finite or in `infinite`."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise UsageError(f"{name}: expected a list of numbers, one per block, got shape {sample.shape}")
    known = np.isfinite(sample) | np.isin(sample, infinite)
    if not known.all():
        bad = int((~known).sum())
        raise UsageError(f"{name}: {bad} of {len(sample)} values are not finite; exclude their whole blocks")
    return sample


def signed_rank_p(d: FloatArray, alternative: Alternative = "two-sided", atol: float = 0.0) -> float:
    """Return the exact p-value that a checked sample is symmetric about zero; ``"greater"``: it lies above.

    Sizes no further apart than `atol` are tied, and sizes up to `atol` are zeros, which are dropped. With 0 only equal
    values are tied, as in scipy. Infinite values are tied, whatever their sign. For tens of blocks plain Python is
    several times faster than numpy.
    """
    ordered = [value for value in sorted(d.tolist(), key=abs) if abs(value) > atol]
    statistic, last = 0, -1.0
    for rank, value in enumerate(ordered, 1):
        size = abs(value)
        if rank > 1 and not size - last > atol:  # the difference of two infinite sizes is nan
            return _tied_p(np.array(ordered), alternative, atol)
        last = size
        if value > 0:
            statistic += rank
    return _tail_p(statistic, clean_signed_rank_tail(len(ordered)), alternative)


def _tied_p(ordered: FloatArray, alternative: Alternative, atol: float) -> float:
    """Return the p-value of differences by ascending size, in doubled ranks."""
    ranks = doubled_midranks(np.abs(ordered), atol)
    at = int(ranks[ordered > 0].sum())
    if len(ordered) <= EXACT_RUNS:
        return _tail_p(at, signed_rank_tail(tuple(ranks.tolist())), alternative)
    return _one_p(*_normal_limits(at, float((ranks.astype(np.float64) ** 2).sum()), len(ordered)), alternative)


def _normal_limits(at: Any, squares: Any, n: int) -> tuple[Any, Any]:
    """Return the normal limits of P(2 T+ <= at) and P(2 T+ >= at), by the sum of the squared doubled ranks.

    The variance accounts for ties, and there is half a step of continuity correction.
    """
    away, spread = at - n * (n + 1) / 2, np.sqrt(squares) / 2
    return special.ndtr((away + 1) / spread), special.ndtr(-(away - 1) / spread)


def _tail_p(at: int, tail: FloatArray, alternative: Alternative) -> float:
    return _one_p(float(tail[len(tail) - 1 - at]), float(tail[at]), alternative)


def _one_p(less: float, greater: float, alternative: Alternative) -> float:
    return float({"greater": greater, "less": less, "two-sided": min(1.0, 2.0 * min(greater, less))}[alternative])


def leave_one_out_p(d: FloatArray, alternative: Alternative = "two-sided", atol: float = 0.0) -> list[float]:
    """Return the p-value without each of the differences of a checked sample in turn; the normal limit beyond 120."""
    if len(d) <= EXACT_RUNS:
        return [signed_rank_p(np.delete(d, k), alternative, atol) for k in range(len(d))]
    kept = np.flatnonzero(np.abs(d) > atol)
    order = kept[np.abs(d[kept]).argsort(kind="stable")]
    ranks, positive = doubled_midranks(np.abs(d[order]), atol).astype(np.float64), d[order] > 0
    first, after = np.searchsorted(ranks, ranks, "left"), np.searchsorted(ranks, ranks, "right")
    positives, sums = (np.concatenate(([0.0], np.cumsum(v))) for v in (positive, ranks))
    tied, above = after - first - 1, len(ranks) - after
    # Without one difference, those above it lose a rank and those tied with it half a rank.
    at = (positive * ranks).sum() - positive * ranks
    at -= 2 * (positives[-1] - positives[after]) + positives[after] - positives[first] - positive
    squares = (ranks**2).sum() - ranks**2 - 4 * (sums[-1] - sums[after] - above) + tied * (1 - 2 * ranks)
    p = np.full(len(d), signed_rank_p(d, alternative, atol))  # a zero is dropped anyway
    less, greater = _normal_limits(at, squares, len(ranks) - 1)
    p[order] = [_one_p(*both, alternative) for both in zip(less, greater, strict=True)]
    return [float(value) for value in p]


@lru_cache(maxsize=4096)
def critical_count(n: int, alpha: float) -> int:
    """Return the largest k with 2 P(T+ <= k) <= alpha for n untied differences; -1 if no value of T+ rejects."""
    tail = clean_signed_rank_tail(n)
    lower = tail[::-1]  # P(T+ <= t), by symmetry
    return int(np.searchsorted(2.0 * lower, alpha, side="right")) - 1


def smallest_p_unpaired(n_x: int, n_y: int) -> float:
    """Return the smallest p-value of two untied samples: 2 / C(n_x + n_y, n_x)."""
    ways = math.comb(n_x + n_y, n_x)
    one_sided = 1.0 / ways if ways < 2**1000 else math.exp(-math.log(ways))  # 0 if too small for a float
    return min(1.0, 2.0 * one_sided)


def _normal_tails(ranks: IntArray, size: int, doubled: int) -> tuple[float, float]:
    """Return both tails of the rank sum by its normal limit, corrected for ties and for continuity."""
    n = len(ranks)
    mean, squares = size * (n + 1), float((ranks.astype(np.float64) ** 2).sum())
    spread = math.sqrt(size * (n - size) / (n * (n - 1)) * (squares - n * (n + 1) ** 2))
    if spread == 0:
        return 1.0, 1.0
    return float(special.ndtr((doubled - mean + 1) / spread)), float(special.ndtr(-(doubled - mean - 1) / spread))


def rank_sum_p(x: FloatArray, y: FloatArray, alternative: Alternative = "two-sided", atol: float = 0.0) -> float:
    """Return the exact p-value of Mann and Whitney's test of two checked samples; ``"greater"``: x lies above y."""
    pooled = np.concatenate((x, y))
    order = pooled.argsort(kind="stable")
    ranks = doubled_midranks(pooled[order], atol)
    doubled = int(ranks[order < len(x)].sum())
    if len(pooled) > EXACT_RUNS:
        less, greater = _normal_tails(ranks, len(x), doubled)
    else:
        lower, upper = rank_sum_tails(tuple(ranks.tolist()), len(x))
        less, greater = float(lower[doubled]), float(upper[doubled])
    return _one_p(less, greater, alternative)


def equivalence_p(d: FloatArray, low: float, high: float, *, atol: float = 0.0) -> float:
    """Return the p-value of "the centre lies outside (low, high)": the larger of two one-sided signed-rank tests."""
    return max(signed_rank_p(d - low, "greater", atol), signed_rank_p(d - high, "less", atol))
