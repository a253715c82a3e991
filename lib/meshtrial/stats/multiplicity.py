"""Many contrasts, one error rate: step-down max-T or Holm inside a family, Benjamini-Hochberg for what is explored.

An exact test has a floor. Holm's correction raises it with every contrast, for it knows nothing of how contrasts hang
together; max-T does not, for one flip of a block's sign is a flip in all contrasts. `smallest_n` says before the first
run how many blocks a family needs at the least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshtrial.errors import UsageError
from meshtrial.stats.ranktests import FloatArray, doubled_midranks

# All 2^(n-1) patterns of signs up to here; beyond it as many are drawn, which costs no more than 1e-5 in a p-value.
_EXACT_BLOCKS = 17
_DRAWN = 2**16


def _family(p: ArrayLike) -> FloatArray:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise UsageError("p-values must be a list of numbers between 0 and 1")
    return values


def holm(p: ArrayLike) -> FloatArray:
    """Step-down adjusted p-values of a family (Holm 1979): family-wise error under any dependence.

    Equals ``statsmodels.stats.multitest.multipletests(p, method="holm")``, which runs Python's whole garbage collector
    on every call: 75 ms, where a calibration corrects 8000 families.
    """
    values = _family(p)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


@lru_cache(maxsize=4)  # of 65,537 n bytes at the most: 46 MB at 700 blocks
def _flips(n: int) -> NDArray[np.int8]:
    """Patterns of signs of n blocks, first what was observed; s and -s give the same, so one block keeps its own."""
    if n <= _EXACT_BLOCKS:
        codes = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1
    else:
        codes = np.random.default_rng(0).integers(0, 2, (1 + _DRAWN, n))
        codes[0] = 0
    return (1 - 2 * codes).astype(np.int8)


def _flipped(signs: NDArray[np.int8], rows: FloatArray) -> FloatArray:
    """Sizes of the sums of rows (m, n) under all patterns (s, n): (s, m).

    Some patterns at a time: OpenBLAS divides no product of up to 2^18 multiplications among threads. Its threads spin
    while they wait, so beside other programs a larger product costs up to a hundred times its own CPU time.
    """
    parts = np.array_split(signs, max(1, signs.size * len(rows) // 2**17))
    return np.concatenate([np.abs(part.astype(np.float64) @ rows.T) for part in parts])


def _signed_ranks(d: FloatArray, atol: float) -> FloatArray:
    size = np.abs(d)
    order = size.argsort(kind="stable")
    ranks = np.zeros(len(d))
    kept = order[size[order] > atol]  # zeros are dropped
    if len(kept):
        ranks[kept] = doubled_midranks(size[kept], atol)
    return np.sign(d) * ranks


def step_down_max_t(differences: Sequence[FloatArray], atol: Sequence[float]) -> FloatArray:
    """Adjusted p-values of contrasts over the same blocks, by flipping the signs of whole blocks in all of them.

    The statistic of a contrast is its signed-rank sum over what chance makes of it; equal ones are told apart by the
    size of t. Under the hypothesis that the differences of the true nulls are symmetric about zero, jointly, every
    pattern of signs was as probable as the one observed, and the p-value is the share of patterns in which the largest
    statistic, of all contrasts that are not rejected yet, is as large as the observed one (Westfall and Young,
    Resampling-Based Multiple Testing, 1993, algorithm 2.8; Romano & Wolf, J. Am. Stat. Assoc. 100, 2005).

    Of each contrast one difference a block, on a scale of its own, and in `atol` what is tied and what is zero. Exact
    for 17 blocks and fewer, at least 2^(1-n); beyond that from 65,536 patterns, at least 1 in 65,537.
    """
    d = np.stack(list(differences))
    ranks = np.stack([_signed_ranks(row, tied) for row, tied in zip(d, atol, strict=True)])
    spread, length = (np.sqrt((table**2).sum(axis=1)) for table in (ranks, d))
    # A step of a rank sum is 2 or more here: what is added is less, so it decides between equal ones alone.
    tie = 0.5 / (spread.max(initial=1.0) * math.sqrt(d.shape[1]))
    signs = _flips(d.shape[1])
    flipped = _flipped(signs, ranks / np.where(spread > 0, spread, 1.0)[:, None])
    flipped += tie * _flipped(signs, d / np.where(length > 0, length, 1.0)[:, None])
    observed = flipped[0].copy()
    order = np.argsort(-observed, kind="stable")
    # Of every pattern the largest statistic among this contrast and those that come after it.
    largest = np.maximum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    adjusted = np.empty(len(d))
    adjusted[order] = np.maximum.accumulate((largest >= observed[order] - 1e-12).mean(axis=0))
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> FloatArray:
    """Step-up adjusted p-values (Benjamini & Hochberg 1995): false discovery rate."""
    # statsmodels takes a moment to load, which commands that test nothing need not wait for
    from statsmodels.stats.multitest import fdrcorrection

    adjusted: FloatArray = fdrcorrection(_family(p))[1]
    return adjusted


def _check(m: int, alpha: float) -> None:
    if m < 1 or not 0 < alpha < 1:
        raise UsageError(f"need at least one contrast and 0 < alpha < 1, got m={m}, alpha={alpha}")


@lru_cache(maxsize=1024)
def smallest_n(m: int, alpha: float = 0.05, test: Literal["difference", "equivalence"] = "difference") -> int:
    """Fewest blocks with which one of m contrasts can reach alpha, the family-wise error rate, after Holm.

    For a difference two-sided, 2^(1-n) <= alpha/m; for equivalence two one-sided tests, 2^-n <= alpha/m.
    """
    _check(m, alpha)
    bits = math.ceil(math.log2(m / alpha))
    return bits + 1 if test == "difference" else bits


@lru_cache(maxsize=1024)
def smallest_n_unpaired(m: int, alpha: float = 0.05) -> int:
    """Fewest runs in each of two unpaired treatments: 2 / C(2n, n) <= alpha/m."""
    _check(m, alpha)
    n = 2
    while 2 / math.comb(2 * n, n) > alpha / m:
        n += 1
    return n
