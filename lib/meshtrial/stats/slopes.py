"""A slope with the block as the unit: one from each pass over the ladder, then the exact signed-rank test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.hodges_lehmann import hodges_lehmann
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.ranknull import FloatArray
from meshtrial.stats.signedrank import signed_rank_p
from meshtrial.stats.signflip import paired_t_interval
from meshtrial.stats.warning import Warning

_ATOL = 1e-12


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope with the block as the unit.

    Attributes
    ----------
    estimate, low, high : float
        Hodges-Lehmann estimate of the block slopes and its interval.
    confidence : float
        Confidence the interval achieves.
    p : float
        Exact p-value against `null`.
    null : float
        Slope that the test is against.
    n : int
        Blocks.
    blocks : tuple of float
        The slope of every block.
    method : str
        How the interval was made.
    warnings : tuple of Warning
        What a reader must know.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    p: float
    null: float
    n: int
    blocks: tuple[float, ...]
    method: str
    warnings: tuple[Warning, ...]


def ladder(x: ArrayLike, y: ArrayLike, *, fewest: int = 2) -> tuple[FloatArray, FloatArray]:
    """Check a ladder of sizes and the (blocks, sizes) table of a response on it.

    Raises
    ------
    UsageError
        If the shapes do not fit, a value is not finite, or there are fewer than `fewest` different sizes or 2 blocks.
    """
    sizes, table = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if sizes.ndim != 1 or table.ndim != 2 or table.shape[1] != len(sizes):
        raise UsageError(f"need sizes (k,) and values (blocks, k), got shapes {sizes.shape} and {table.shape}")
    if len(np.unique(sizes)) < fewest or len(table) < 2:
        raise UsageError(f"need {fewest} different sizes and 2 blocks, got {len(np.unique(sizes))} and {len(table)}")
    if not (np.isfinite(sizes).all() and np.isfinite(table).all()):
        raise UsageError("a size or a value is not finite: leave out the whole block")
    return sizes, table


def block_slopes(x: FloatArray, y: FloatArray) -> FloatArray:
    """Least-squares slope of every row of `y` (blocks, k) on `x` (k,)."""
    centred = x - x.mean()
    slopes: FloatArray = y @ centred / (centred @ centred)
    return slopes


def slope_over_blocks(found: FloatArray, null: float, alpha: float, extra: tuple[Warning, ...] = ()) -> Slope:
    """Estimate, interval and p-value from the slope of every block; a t interval below the exact test's floor."""
    n, floor = len(found), smallest_n(1, alpha)
    scale = max(1.0, float(np.abs(found).max()))
    result = hodges_lehmann(found, alpha, null=null, atol=_ATOL * scale)
    low, high, confidence = result.low, result.high, result.confidence
    method, warnings = "exact signed-rank over blocks", extra
    if n < floor:
        mean, sd = float(found.mean()), float(found.std(ddof=1))
        low, high = paired_t_interval(mean, sd, n, alpha)
        confidence, method = 1 - alpha, "t over blocks, model-based, provisional"
        text = f"{n} blocks cannot reach p = {alpha:g}: run at least {floor}"
        warnings = (Warning("below-floor", text), *extra)
    return Slope(result.estimate, low, high, confidence, result.p, null, n, tuple(found.tolist()), method, warnings)


def bend_p(x: FloatArray, y: FloatArray) -> float:
    """Exact p-value that the blocks' curves do not bend: signed-rank test of their quadratic coefficients.

    Parameters
    ----------
    x : (k,) array
        Sizes, at least three different ones.
    y : (blocks, k) array
        The response.
    """
    curve = np.polyfit((x - x.mean()) / np.ptp(x), y.T, 2)[0]
    return signed_rank_p(curve, "two-sided", _ATOL * max(1.0, float(np.abs(y).max())))
