"""How a response grows with the size of the system: exponent, marginal cost, and the difference of two treatments.

The block is the unit here as everywhere. One pass over the ladder of sizes gives one slope; the slopes of the blocks
go through the exact signed-rank test. Pooling all points of all blocks into one regression would count every rung as a
replicate, and its standard error would be too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.equivalence import equivalence_p
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.ranknull import FloatArray
from meshtrial.stats.slopes import Slope, bend_p, block_slopes, ladder, slope_over_blocks
from meshtrial.stats.warning import Warning

_ATOL = 1e-12


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y proportional to x^exponent, judged against 1.

    Attributes
    ----------
    exponent : Slope
        Log-log slope; p against 1.
    verdict : str
        ``"superlinear"``, ``"sublinear"``, ``"about linear"`` (shown to lie within the margin of 1) or
        ``"inconclusive"``.
    p_linear : float or None
        Two one-sided tests that the exponent lies within the margin of 1; None without a margin.
    """

    exponent: Slope
    verdict: Literal["superlinear", "sublinear", "about linear", "inconclusive"]
    p_linear: float | None


def _logs(sizes: FloatArray, table: FloatArray) -> tuple[FloatArray, FloatArray]:
    if not (sizes.min() > 0 and table.min() > 0):
        raise UsageError("an exponent needs positive sizes and values; use marginal_cost where the baseline is zero")
    return np.log(sizes), np.log(table)


def power_law(x: ArrayLike, y: ArrayLike, *, alpha: float = 0.05, margin: float | None = None) -> PowerLaw:
    """Exponent of growth, and whether it is more or less than linear.

    Parameters
    ----------
    x : (k,) array_like
        Sizes: endpoints, requests a second.
    y : (blocks, k) array_like
        The response; positive.
    alpha : float
        Error rate.
    margin : float, optional
        Exponents within 1 - margin and 1 + margin count as linear.

    Returns
    -------
    PowerLaw
        With the warning ``"not-a-power-law"`` where the log-log line bends.

    Raises
    ------
    UsageError
        If the ladder cannot be used or a value is not positive.
    """
    sizes, table = _logs(*ladder(x, y))
    exponent = slope_over_blocks(block_slopes(sizes, table), 1.0, alpha, _bend(sizes, table))
    p_linear = None
    if margin is not None:
        p_linear = equivalence_p(np.array(exponent.blocks) - 1.0, -margin, margin, atol=_ATOL)
    verdict: Literal["superlinear", "sublinear", "about linear", "inconclusive"] = "inconclusive"
    if exponent.n >= smallest_n(1, alpha):
        if p_linear is not None and p_linear <= alpha:
            verdict = "about linear"
        elif exponent.p <= alpha:
            verdict = "superlinear" if exponent.estimate > 1 else "sublinear"
    return PowerLaw(exponent, verdict, p_linear)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through every block: straight, or straight on logarithmic axes.

    Attributes
    ----------
    form : str
        ``"straight line"`` or ``"power law"``.
    slopes, at_middle : (blocks,) ndarray
        Of each block, and its height at the mean of the sizes; logarithms for a power law.
    middle : float
        That mean.
    """

    form: Literal["straight line", "power law"]
    slopes: FloatArray
    at_middle: FloatArray
    middle: float

    def at(self, size: float) -> FloatArray:
        """Every block's value at a size."""
        if self.form == "straight line":
            return self.at_middle + self.slopes * (size - self.middle)
        found: FloatArray = np.exp(self.at_middle + self.slopes * (math.log(size) - self.middle))
        return found


def closest_curve(x: ArrayLike, y: ArrayLike) -> Curve:
    """The straight line or the power law through every block, whichever lies closer to the values.

    Closer by the mean square of the error. A value that is not positive has no power law, and two sizes lie on both:
    then the straight line.

    Parameters
    ----------
    x : (k,) array_like
        Sizes.
    y : (blocks, k) array_like
        The response.
    """
    sizes, table = ladder(x, y)
    line = Curve("straight line", block_slopes(sizes, table), table.mean(axis=1), float(sizes.mean()))
    if sizes.min() <= 0 or table.min() <= 0 or len(np.unique(sizes)) < 3:
        return line
    logs, log_table = np.log(sizes), np.log(table)
    law = Curve("power law", block_slopes(logs, log_table), log_table.mean(axis=1), float(logs.mean()))

    def error(curve: Curve) -> float:
        fitted = np.stack([curve.at(size) for size in sizes], axis=1)
        return float(np.mean((fitted - table) ** 2))

    return law if error(law) < error(line) else line


def _bend(sizes: FloatArray, table: FloatArray) -> tuple[Warning, ...]:
    """Warn where the blocks agree that the log-log line is curved."""
    if len(np.unique(sizes)) < 3:
        return ()
    p = bend_p(sizes, table)
    if p > 0.01:
        return ()
    curve = np.polyfit(sizes, table.T, 2)[0]
    way = "steeper" if float(np.median(curve)) > 0 else "flatter"
    text = f"growth gets {way} with size (p = {p:.2g}): one exponent does not describe it; look for a knee"
    return (Warning("not-a-power-law", text),)


def marginal_cost(x: ArrayLike, y: ArrayLike, *, per: float = 1.0, alpha: float = 0.05) -> Slope:
    """What `per` more units of size cost, in the response's unit.

    Parameters
    ----------
    x : (k,) array_like
        Sizes.
    y : (blocks, k) array_like
        The response.
    per : float
        Units of size: 1 endpoint, or 1000 requests a second.
    alpha : float
        Error rate.

    Returns
    -------
    Slope
        p against a cost of zero.
    """
    sizes, table = ladder(x, y)
    return slope_over_blocks(block_slopes(sizes, table) * per, 0.0, alpha)


def marginal_costs(sizes: Mapping[str, ArrayLike], y: ArrayLike, *, alpha: float = 0.05) -> dict[str, Slope]:
    """Costs of several sizes that vary together, each with the others held.

    Parameters
    ----------
    sizes : mapping of name to (k,) array_like
        Such as endpoints and thousands of requests a second, on the same k rungs.
    y : (blocks, k) array_like
        The response.
    alpha : float
        Error rate.

    Returns
    -------
    dict of name to Slope

    Raises
    ------
    UsageError
        If the sizes rise in step, so that their costs cannot be told apart.
    """
    names = list(sizes)
    columns = [ladder(sizes[name], y)[0] for name in names]
    table = np.asarray(y, dtype=np.float64)
    design = np.stack([np.ones(len(columns[0])), *columns], axis=1)
    scaled = design / np.abs(design).max(axis=0)
    if len(design) <= len(names) + 1 or np.linalg.cond(scaled) > 1e8:
        raise UsageError(
            f"{' and '.join(names)} rise in step or have too few rungs: their costs cannot be told apart; "
            "vary one while the other stays"
        )
    found = np.linalg.lstsq(scaled, table.T, rcond=None)[0] / np.abs(design).max(axis=0)[:, None]
    return {name: slope_over_blocks(found[i + 1], 0.0, alpha) for i, name in enumerate(names)}


def compare_exponents(x: ArrayLike, treatment: ArrayLike, baseline: ArrayLike, *, alpha: float = 0.05) -> Slope:
    """Difference of two treatments' exponents, paired by block.

    Parameters
    ----------
    x : (k,) array_like
        Sizes, the same for both.
    treatment, baseline : (blocks, k) array_like
        The response; positive.
    alpha : float
        Error rate.

    Returns
    -------
    Slope
        Treatment minus baseline; p against no difference. The ratio of the two grows like x to this power.
    """
    sizes, t = _logs(*ladder(x, treatment))
    _, b = _logs(*ladder(x, baseline))
    if t.shape != b.shape:
        raise UsageError(f"paired by block, both need the same shape, got {t.shape} and {b.shape}")
    return slope_over_blocks(block_slopes(sizes, t - b), 0.0, alpha)


def growth(slope: Slope, factor: float) -> float:
    """How much the response multiplies where the size multiplies by `factor`: factor^exponent."""
    return math.pow(factor, slope.estimate)
