"""Many contrasts, one error rate: max-T or Holm for a primary family, Benjamini-Hochberg for an exploratory one.

An exact test has a floor. Holm's correction raises it with every contrast, because it ignores how contrasts depend on
each other. Max-T does not: flipping a block's sign flips it in all contrasts. `smallest_n` gives the fewest blocks that
a family needs, before the first run.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.errors import UsageError
from meshtrial.stats.ranktests import FloatArray, doubled_midranks

# All 2^(n-1) patterns of signs up to this number of blocks; beyond it random ones, which move a p-value by at most
# 1e-5.
_EXACT_BLOCKS = 17
_DRAWN = 2**16
# The difference of a run that ranks worst, as a multiple of the largest finite one.
_FAR = 1e6


def holm(p: ArrayLike) -> FloatArray:
    """Return step-down adjusted p-values of a family (Holm 1979): family-wise error under any dependence.

    Equals ``statsmodels.stats.multitest.multipletests(p, method="holm")``, which runs Python's whole garbage collector
    at every call: 75 ms, and a calibration corrects 8000 families.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


@lru_cache(maxsize=4)  # at most 65,537 n bytes each: 46 MB at 700 blocks
def _flips(n: int) -> NDArray[np.int8]:
    """Return patterns of signs, the observed one first; s and -s are equivalent, so one block keeps its sign."""
    if n <= _EXACT_BLOCKS:
        codes = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1
    else:
        codes = np.random.default_rng(0).integers(0, 2, (1 + _DRAWN, n))
        codes[0] = 0
    return (1 - 2 * codes).astype(np.int8)


def _flipped(signs: NDArray[np.int8], rows: FloatArray) -> FloatArray:
    """Return the absolute sums (m, s) of rows (m, n) under all patterns of signs (s, n).

    The patterns are processed in parts: OpenBLAS uses one thread for products of up to 2^18 multiplications. Its
    threads spin while they wait, so beside other programs a larger product costs up to a hundred times its own CPU
    time.
    """
    sums = np.empty((len(rows), len(signs)))
    step = max(1, 2**17 // rows.size)
    for part in (slice(start, start + step) for start in range(0, len(signs), step)):
        np.matmul(rows, signs[part].T.astype(np.float64), out=sums[:, part])
    return np.abs(sums, out=sums)


def _signed_ranks(d: FloatArray, atol: float) -> FloatArray:
    size = np.abs(d)
    order = size.argsort(kind="stable")
    ranks = np.zeros(len(d))
    kept = order[size[order] > atol]  # zeros are dropped
    if len(kept):
        ranks[kept] = doubled_midranks(size[kept], atol)
    return np.sign(d) * ranks


def step_down_max_t(differences: Sequence[FloatArray], atol: Sequence[float]) -> FloatArray:
    """Return adjusted p-values of contrasts over the same blocks, by flipping the signs of whole blocks in all of them.

    The statistic of a contrast is its signed-rank sum over its standard deviation; the size of t breaks ties. If the
    differences of the true nulls are jointly symmetric about zero, every pattern of signs was as probable as the
    observed one. The p-value is the share of patterns in which the largest statistic of the contrasts that are not yet
    rejected reaches the observed one. Sources: Westfall and Young, Resampling-Based Multiple Testing, 1993, algorithm
    2.8; Romano & Wolf, J. Am. Stat. Assoc. 100, 2005.

    `differences` has one array per contrast, on any scale, with one value per block, infinite if a run ranks worst;
    `atol` has the tolerance for ties and zeros of each. Exact up to 17 blocks, at least 2^(1-n); beyond that from
    65,536 patterns, at least 1 in 65,537.
    """
    d = np.stack(list(differences))
    # The size of t needs finite values, and these keep their rank.
    far = _FAR * np.abs(d, where=np.isfinite(d), out=np.zeros_like(d)).max(axis=1, keepdims=True)
    d = np.clip(d, -far, far, where=far > 0, out=np.sign(d))
    ranks = np.stack([_signed_ranks(row, tied) for row, tied in zip(d, atol, strict=True)])
    (adjusted,) = _max_t(ranks[None], d[None])
    return np.asarray(adjusted)


def step_down_max_t_rows(d: FloatArray) -> FloatArray:
    """Return the adjusted p-values (studies, contrasts) of finite differences (studies, contrasts, blocks).

    Only equal values are tied.
    """
    studies, contrasts, n = d.shape
    size = np.abs(d)
    order = size.argsort(axis=2)
    ranks = np.empty_like(d)
    np.put_along_axis(ranks, order, 2.0 * np.arange(1, n + 1)[None, None], axis=2)
    ranks *= np.sign(d)
    size = np.take_along_axis(size, order, axis=2)
    for place in zip(*np.nonzero((size[:, :, 0] == 0) | (np.diff(size) == 0).any(axis=2)), strict=True):
        ranks[place] = _signed_ranks(d[place], 0.0)
    # As many at a time as keep the statistics of all patterns in a processor's cache.
    starts = range(0, studies, max(1, 2**16 // (contrasts * len(_flips(n)))))
    parts = [slice(start, start + starts.step) for start in starts]
    return np.concatenate([_max_t(ranks[part], d[part]) for part in parts])


def _max_t(ranks: FloatArray, d: FloatArray) -> FloatArray:
    """Return adjusted p-values (studies, contrasts) of signed ranks and differences (studies, contrasts, blocks)."""
    signs = _flips(d.shape[2])

    def flipped(table: FloatArray, length: FloatArray) -> FloatArray:
        rows = table / np.where(length > 0, length, 1.0)
        return _flipped(signs, rows.reshape(-1, d.shape[2])).reshape(*d.shape[:2], len(signs))

    spread, length = (np.sqrt((table**2).sum(axis=2, keepdims=True)) for table in (ranks, d))
    # Rank sums differ by 2 or more, so the smaller amount added here only breaks ties.
    tie = 0.5 / (spread.max(axis=1, keepdims=True, initial=1.0) * math.sqrt(d.shape[2]))
    statistics = flipped(ranks, spread) + tie * flipped(d, length)
    order = np.argsort(-statistics[:, :, 0], axis=1, kind="stable")
    largest = statistics[np.arange(len(d))[:, None], order[:, ::-1]]
    observed = largest[:, :, :1].copy()
    # For every pattern, the largest statistic among this contrast and those after it; `accumulate` is far slower here.
    for k in range(1, d.shape[1]):
        np.maximum(largest[:, k], largest[:, k - 1], out=largest[:, k])
    reached = (largest >= observed - 1e-12).mean(axis=2)
    adjusted = np.empty(d.shape[:2])
    np.put_along_axis(adjusted, order, np.maximum.accumulate(reached[:, ::-1], axis=1), axis=1)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> FloatArray:
    """Return step-up adjusted p-values (Benjamini & Hochberg 1995): false discovery rate."""
    from scipy.stats import false_discovery_control  # takes a moment to load

    adjusted: FloatArray = false_discovery_control(p)
    return adjusted


def _check(m: int, alpha: float) -> None:
    if m < 1 or not 0 < alpha < 1:
        raise UsageError(f"need at least one contrast and 0 < alpha < 1, got m={m}, alpha={alpha}")


@lru_cache(maxsize=1024)
def smallest_n(m: int, alpha: float = 0.05, test: Literal["difference", "equivalence"] = "difference") -> int:
    """Return the fewest blocks with which one of m contrasts can reach alpha, the family-wise error rate, after Holm.

    For a difference two-sided, 2^(1-n) <= alpha/m; for equivalence two one-sided tests, 2^-n <= alpha/m.
    """
    _check(m, alpha)
    bits = math.ceil(math.log2(m / alpha))
    return bits + 1 if test == "difference" else bits


@lru_cache(maxsize=1024)
def smallest_n_unpaired(m: int, alpha: float = 0.05) -> int:
    """Return the fewest runs in each of two unpaired treatments: 2 / C(2n, n) <= alpha/m."""
    _check(m, alpha)
    n = 2
    while 2 / math.comb(2 * n, n) > alpha / m:
        n += 1
    return n
