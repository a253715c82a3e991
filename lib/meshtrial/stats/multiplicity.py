"""Many contrasts, one error rate: Holm inside a family, Benjamini-Hochberg for what is only explored.

An exact test has a floor, and correction raises it: `smallest_n` says before the first run how many blocks a family
needs at the least.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.ranktests import FloatArray


def _family(p: ArrayLike, m: int | None) -> FloatArray:
    """The p-values of the whole family: a contrast without one shows nothing, and counts as one that never rejects."""
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise UsageError("p-values must be a list of numbers between 0 and 1")
    absent = 0 if m is None else m - len(values)
    if absent < 0:
        raise UsageError(f"a family of {m} contrasts cannot hold {len(values)} p-values")
    return np.concatenate((values, np.ones(absent)))


def holm(p: ArrayLike, m: int | None = None) -> FloatArray:
    """Step-down adjusted p-values of a family of m (Holm 1979): family-wise error under any dependence.

    Equals ``statsmodels.stats.multitest.multipletests(p, method="holm")``, which runs Python's whole garbage collector
    on every call: 75 ms, where a calibration corrects 8000 families.
    """
    values = _family(p, m)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted[: np.size(p)]


def benjamini_hochberg(p: ArrayLike, m: int | None = None) -> FloatArray:
    """Step-up adjusted p-values of m hypotheses (Benjamini & Hochberg 1995): false discovery rate."""
    # statsmodels takes a moment to load, which commands that test nothing need not wait for
    from statsmodels.stats.multitest import fdrcorrection

    adjusted: FloatArray = fdrcorrection(_family(p, m))[1]
    return adjusted[: np.size(p)]


def _check(m: int, alpha: float) -> None:
    if m < 1 or not 0 < alpha < 1:
        raise UsageError(f"need at least one contrast and 0 < alpha < 1, got m={m}, alpha={alpha}")


@lru_cache(maxsize=1024)
def smallest_n(m: int, alpha: float = 0.05, test: Literal["difference", "equivalence"] = "difference") -> int:
    """Fewest blocks with which one of m contrasts can reach alpha after Holm.

    Parameters
    ----------
    m : int
        Contrasts in the family.
    alpha : float
        Family-wise error rate.
    test : {"difference", "equivalence"}
        Two-sided, 2^(1-n) <= alpha/m; or two one-sided tests, 2^-n <= alpha/m.
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
