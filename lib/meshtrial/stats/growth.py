"""How a response grows with the size of the system: exponent, marginal cost, knee, and two treatments compared.

The block is the unit here as everywhere. One pass over the ladder of sizes gives one slope; the slopes of the blocks
go through the exact signed-rank test. Pooling all points of all blocks into one regression would count every rung as a
replicate, and its standard error would be too small.

A knee is a continuous two-piece line, its bend found by least squares. Whether there is a bend at all is an exact test
over the blocks (of their curvature: the place of the bend is chosen by the data, so its change of slope cannot test
itself). Where the bend lies comes with an interval from resampling whole blocks, which describes and decides nothing;
it covers about 85 % at 6 blocks and 93 % at 10 (simulated).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Warning
from meshtrial.stats.contrast import paired_t_interval
from meshtrial.stats.intervals import hodges_lehmann
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.ranktests import FloatArray, equivalence_p, signed_rank_p

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
    """A checked ladder of at least `fewest` different sizes, and the (blocks, sizes) table of a response on it."""
    sizes, table = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if sizes.ndim != 1 or table.ndim != 2 or table.shape[1] != len(sizes):
        raise UsageError(f"need sizes (k,) and values (blocks, k), got shapes {sizes.shape} and {table.shape}")
    if len(np.unique(sizes)) < fewest or len(table) < 2:
        raise UsageError(f"need {fewest} different sizes and 2 blocks, got {len(np.unique(sizes))} and {len(table)}")
    if not (np.isfinite(sizes).all() and np.isfinite(table).all()):
        raise UsageError("a size or a value is not finite: exclude the whole block")
    return sizes, table


def block_slopes(x: FloatArray, y: FloatArray) -> FloatArray:
    """Least-squares slope of every row of `y` (blocks, k) on `x` (k,)."""
    centred = x - x.mean()
    slopes: FloatArray = y @ centred / (centred @ centred)
    return slopes


def slope_over_blocks(values: FloatArray, null: float, alpha: float, extra: tuple[Warning, ...] = ()) -> Slope:
    """Estimate, interval and p-value from one value a block; a t interval below the exact test's floor."""
    n, floor = len(values), smallest_n(1, alpha)
    scale = max(1.0, float(np.abs(values).max()))
    result = hodges_lehmann(values, alpha, null=null, atol=_ATOL * scale)
    low, high, confidence = result.low, result.high, result.confidence
    method, warnings = "exact signed-rank over blocks", extra
    if n < floor:
        mean, sd = float(values.mean()), float(values.std(ddof=1))
        low, high = paired_t_interval(mean, sd, n, alpha)
        confidence, method = 1 - alpha, "t over blocks, model-based, provisional"
        text = f"{n} blocks cannot reach p = {alpha:g}: run at least {floor}"
        warnings = (Warning("below-floor", text), *extra)
    return Slope(result.estimate, low, high, confidence, result.p, null, n, tuple(values.tolist()), method, warnings)


def bend_p(x: FloatArray, y: FloatArray) -> float:
    """Exact p-value that the blocks' curves over three sizes or more do not bend: a test of quadratic coefficients."""
    curve = np.polyfit((x - x.mean()) / np.ptp(x), y.T, 2)[0]
    return signed_rank_p(curve, "two-sided", _ATOL * max(1.0, float(np.abs(y).max())))


_GRID = 200


@dataclass(frozen=True, slots=True)
class Knee:
    """A change of slope.

    Attributes
    ----------
    at, low, high : float
        Size at which the slope changes, and its bootstrap interval.
    before, after : float
        Slopes on both sides, in the response's unit a unit of size.
    p : float
        Exact p-value that growth does not bend.
    found : bool
        Whether p <= alpha; otherwise `at` means nothing.
    warnings : tuple of Warning
        What a reader must know.
    """

    at: float
    low: float
    high: float
    before: float
    after: float
    p: float
    found: bool
    warnings: tuple[Warning, ...]


def _projectors(sizes: FloatArray, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For every bend of the grid: coefficients (g, 3, k) and residual projector (g, k, k) of the two-piece line."""
    hinge = np.maximum(sizes[None, :] - grid[:, None], 0.0)
    design = np.stack(
        [np.ones_like(hinge), np.broadcast_to(sizes - sizes.mean(), hinge.shape), hinge], axis=2
    )  # (g, k, 3)
    solve = np.linalg.pinv(design)
    away = np.eye(len(sizes)) - design @ solve
    return solve, away


def find_knee(x: ArrayLike, y: ArrayLike, rng: np.random.Generator, *, alpha: float = 0.05, draws: int = 1000) -> Knee:
    """Locate a change of slope on a ladder of at least five sizes.

    Parameters
    ----------
    x : (k,) array_like
        Sizes.
    y : (blocks, k) array_like
        The response (or its log).
    rng : numpy.random.Generator
        Source of randomness for resampling the blocks.
    alpha : float
        One minus the confidence.
    draws : int
        Resampled studies.

    Raises
    ------
    UsageError
        With fewer than five sizes: a bend between too few points can always be fitted.
    """
    sizes, table = ladder(x, y, fewest=5)
    if len(sizes) != len(np.unique(sizes)):
        raise UsageError("every size appears once on the ladder; average repeats of a size inside its block")
    order = np.argsort(sizes)
    sizes, table = sizes[order], table[:, order]
    # two points on each side fix a line; a bend further out could not be told from noise of one rung
    grid = np.linspace(sizes[1], sizes[-2], _GRID)
    solve, away = _projectors(sizes, grid)
    at, slope, change = _fit(table.mean(axis=0)[None, :], grid, solve, away)
    picks = rng.integers(0, len(table), (draws, len(table)))
    spots = _fit(table[picks].mean(axis=1), grid, solve, away)[0]
    low, high = (float(v) for v in np.quantile(spots, [alpha / 2, 1 - alpha / 2]))
    p = bend_p(sizes, table)
    found = p <= alpha
    warnings = []
    n, floor = len(table), smallest_n(1, alpha)
    if n < floor:
        warnings.append(Warning("below-floor", f"{n} blocks cannot show a bend: run at least {floor}"))
    elif not found:
        warnings.append(Warning("no-knee", "a straight line was not refuted: extend the ladder to larger sizes"))
    elif at[0] in (grid[0], grid[-1]):
        warnings.append(Warning("knee-at-edge", "the bend lies at the end of the ladder: add sizes on that side"))
    before, after = float(slope[0]), float(slope[0] + change[0])
    return Knee(float(at[0]), low, high, before, after, p, found, tuple(warnings))


def _fit(
    curves: FloatArray, grid: FloatArray, solve: FloatArray, away: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Best bend of every curve (m, k): its place, the slope before it, and the change of slope."""
    misfit = np.stack([((curves @ one) ** 2).sum(axis=1) for one in away], axis=1)  # (m, g)
    best = misfit.argmin(axis=1)
    parts = np.einsum("mck,mk->mc", solve[best], curves)
    return grid[best], parts[:, 1], parts[:, 2]


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
    """Exponent of growth, and whether it is more or less than linear; warns where the log-log line bends.

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


def marginal_cost(x: ArrayLike, y: ArrayLike, *, alpha: float = 0.05) -> Slope:
    """What one more unit of size costs, in the response's unit; p is against a cost of zero."""
    return slope_over_blocks(block_slopes(*ladder(x, y)), 0.0, alpha)


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
    slopes = np.linalg.lstsq(scaled, table.T, rcond=None)[0] / np.abs(design).max(axis=0)[:, None]
    return {name: slope_over_blocks(slopes[i + 1], 0.0, alpha) for i, name in enumerate(names)}


def compare_exponents(x: ArrayLike, treatment: ArrayLike, baseline: ArrayLike, *, alpha: float = 0.05) -> Slope:
    """Exponent of the treatment less that of the baseline, paired by block: their ratio grows like x to this power."""
    sizes, t = _logs(*ladder(x, treatment))
    _, b = _logs(*ladder(x, baseline))
    if t.shape != b.shape:
        raise UsageError(f"paired by block, both need the same shape, got {t.shape} and {b.shape}")
    return slope_over_blocks(block_slopes(sizes, t - b), 0.0, alpha)
