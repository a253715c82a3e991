"""Exact Wilcoxon signed-rank test of paired differences (Wilcoxon 1945).

The opinion: at the n of a benchmark (5 to 30 blocks) the exact null distribution is cheap, so no approximation is
ever used. Zeros are dropped and tied sizes share their midrank, and the p-value is that of all 2^n sign patterns: the
same as ``scipy.stats.wilcoxon(d, method="exact")`` without ties and zeros, and as ``scipy.stats.wilcoxon(d,
method=PermutationMethod(n_resamples=inf))`` with them; only some hundred times faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.ranknull import FloatArray, clean_signed_rank_tail, doubled_midranks, signed_rank_tail

Alternative = Literal["two-sided", "greater", "less"]


@dataclass(frozen=True, slots=True)
class SignedRank:
    """Result of one exact signed-rank test.

    Attributes
    ----------
    statistic : float
        T+, the sum of the (mid)ranks of the positive differences.
    p : float
        Exact p-value for `alternative`.
    n : int
        Differences given.
    n_used : int
        Differences that are not zero.
    ties : bool
        Whether two sizes share a midrank.
    smallest_p : float
        The smallest p that `n_used` untied differences can give.
    alternative : str
        ``"two-sided"``, ``"greater"`` or ``"less"``.
    """

    statistic: float
    p: float
    n: int
    n_used: int
    ties: bool
    smallest_p: float
    alternative: Alternative


def smallest_p(n: int, alternative: Alternative = "two-sided") -> float:
    """Smallest p-value that n untied pairs can reach: 2^(1-n), one-sided 2^-n."""
    return min(1.0, 2.0 ** (1 - n)) if alternative == "two-sided" else 2.0**-n


def as_sample(values: ArrayLike, name: str = "differences") -> FloatArray:
    """Check that `values` is a non-empty, finite, one-dimensional sample.

    Raises
    ------
    UsageError
        If it is not.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise UsageError(f"{name}: expected a list of numbers, one a block, got shape {sample.shape}")
    if not np.isfinite(sample).all():
        bad = int((~np.isfinite(sample)).sum())
        raise UsageError(f"{name}: {bad} of {len(sample)} values are not finite; leave out their whole blocks")
    return sample


def _doubled_statistic(d: FloatArray, atol: float) -> tuple[int, tuple[int, ...], bool]:
    """Twice T+, the doubled ranks of the differences that are not zero, and whether any are tied.

    Plain Python: for the tens of blocks of a study it is several times faster than numpy.
    """
    ordered = [value for value in sorted(d.tolist(), key=abs) if abs(value) > atol]
    n = len(ordered)
    statistic, ties, last = 0, False, -1.0
    for rank, value in enumerate(ordered, 1):
        size = abs(value)
        if rank > 1 and size - last <= atol:
            ties = True
            break
        last = size
        if value > 0:
            statistic += 2 * rank
    if not ties:
        return statistic, tuple(range(2, 2 * n + 1, 2)), False
    signed = np.array(ordered)
    ranks = doubled_midranks(np.abs(signed), atol)
    return int(ranks[signed > 0].sum()), tuple(ranks.tolist()), True


def _tail_p(statistic: int, ranks: tuple[int, ...], ties: bool, alternative: Alternative) -> float:
    n = len(ranks)
    if n == 0:
        return 1.0
    if ties:
        tail, total, at = signed_rank_tail(ranks), sum(ranks), statistic
    else:
        tail, total, at = clean_signed_rank_tail(n), n * (n + 1) // 2, statistic // 2
    if alternative == "greater":
        return float(tail[at])
    if alternative == "less":
        return float(tail[total - at])
    return min(1.0, 2.0 * float(tail[max(at, total - at)]))


def signed_rank_p(d: FloatArray, alternative: Alternative = "two-sided", atol: float = 0.0) -> float:
    """Exact p-value alone; `d` must already be a checked sample."""
    return _tail_p(*_doubled_statistic(d, atol), alternative)


def signed_rank(differences: ArrayLike, alternative: Alternative = "two-sided", *, atol: float = 0.0) -> SignedRank:
    """Exact signed-rank test that the differences are symmetric about zero.

    Parameters
    ----------
    differences : (n,) array_like
        One difference a block (log ratios, or differences in a unit).
    alternative : {"two-sided", "greater", "less"}
        ``"greater"``: the centre lies above zero.
    atol : float
        Sizes no further apart than this are tied, and sizes up to this are zero. 0 means exactly equal, as in scipy.

    Returns
    -------
    SignedRank

    Raises
    ------
    UsageError
        If the sample is empty or not finite.
    """
    d = as_sample(differences)
    statistic, ranks, ties = _doubled_statistic(d, atol)
    p = _tail_p(statistic, ranks, ties, alternative)
    return SignedRank(statistic / 2, p, len(d), len(ranks), ties, smallest_p(len(ranks), alternative), alternative)


def leave_one_out_p(d: FloatArray, alternative: Alternative = "two-sided", atol: float = 0.0) -> list[float]:
    """Exact p-value without each of the differences in turn; `d` must already be a checked sample of two or more."""
    values = d.tolist()
    n = len(values)
    order = sorted(range(n), key=[abs(value) for value in values].__getitem__)
    total, last = 0, 0.0
    for rank, i in enumerate(order, 1):
        value = values[i]
        if abs(value) - last <= atol:  # a zero or a tie: no short cut
            return [signed_rank_p(np.delete(d, k), alternative, atol) for k in range(n)]
        last = abs(value)
        if value > 0:
            total += rank
    # without the one of rank r all larger ones move down a rank: T+ loses r, and one for each positive above it
    tail, top = clean_signed_rank_tail(n - 1), n * (n - 1) // 2
    left = [0] * n
    above = 0
    for rank in range(n, 0, -1):
        i = order[rank - 1]
        if values[i] > 0:
            left[i] = total - above - rank
            above += 1
        else:
            left[i] = total - above
    if alternative == "greater":
        return [float(tail[at]) for at in left]
    if alternative == "less":
        return [float(tail[top - at]) for at in left]
    return [min(1.0, 2.0 * float(tail[at if at + at >= top else top - at])) for at in left]


@lru_cache(maxsize=4096)
def critical_count(n: int, alpha: float) -> int:
    """Largest k with 2 P(T+ <= k) <= alpha for n untied differences; -1 where no value of T+ rejects."""
    tail = clean_signed_rank_tail(n)
    lower = tail[::-1]  # P(T+ <= t), by symmetry
    return int(np.searchsorted(2.0 * lower, alpha, side="right")) - 1
