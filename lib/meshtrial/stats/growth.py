"""How a response grows with the size of the system: exponent, marginal cost, knee, and two treatments compared.

The block is the unit. One pass over the ladder of sizes gives one slope, and the slopes of the blocks go through the
exact signed-rank test. One regression over all points would count every size as a replicate, and its standard error
would be too small.

A knee is the bend of a continuous two-piece line, found by least squares. Two signed-rank tests over the blocks must
show it. The first tests whether growth bends at all, by the blocks' curvature: the data choose the place of the bend,
so its change of slope cannot test itself. The second tests whether it bends at one place: two lines must fit the blocks
better than smooth growth (power laws with offset and shift, queues), both fitted to the other blocks.
Without the second test, smooth growth had a knee in 50 to 100 % of simulated studies. With it, at most 12 % had one and
mostly none (8 blocks, nine curves, noise 1 and 3 %), except for an exponential on five sizes, each twice the last
(26 %). The place of the bend has an interval from resampling whole blocks, which decides nothing; it covers about 85 %
at 6 blocks and 93 % at 10 (simulated).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.contrast import paired_t_interval
from meshtrial.stats.diagnostics import dependent_effects
from meshtrial.stats.intervals import RankInterval, hodges_lehmann
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.power import detectable_effect, upper_sd
from meshtrial.stats.ranktests import FloatArray, equivalence_p, signed_rank_p
from meshtrial.stats.verdict import DEPENDENT_SDS
from meshtrial.vocabulary import Warning

_ATOL = 1e-12
_BEND_LEVEL = 0.01
# Largest share by which curvature may change a prediction, and the largest multiple of the largest size at which the
# envelope of curves may be read.
_BENT, _UNBOUNDED = 0.1, 2
# Smooth growth is (x + shift)^exponent, or (limit - x)^-exponent as in a queue; both in units of the largest size.
_SHIFTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
_LIMITS = (1.02, 1.1, 1.3, 2.0, 4.0)
_EXPONENTS = np.concatenate([-np.geomspace(4, 0.1, 12), np.linspace(0.1, 2, 20), np.geomspace(2.2, 12, 10)])


@dataclass(frozen=True, slots=True)
class Slope(RankInterval):
    """A slope, with the block as the unit: estimate, interval and test of the blocks' own slopes."""

    blocks: tuple[float, ...] = field(kw_only=True)  # the slope of every block
    method: str = field(kw_only=True)  # how the interval was computed
    warnings: tuple[Warning, ...] = field(kw_only=True)

    @property
    def significant(self) -> bool:
        """Whether the interval excludes the null."""
        return not self.low <= self.null <= self.high

    @property
    def resembles_last_block(self) -> bool:
        """Whether the block slopes depend on each other, so that p-value and interval are too small."""
        return any(warning.code == "dependent-blocks" for warning in self.warnings)

    @property
    def dependent(self) -> bool:
        """Whether block slopes depend on each other, and the slope is not so large that it differs nevertheless."""
        sd = float(np.std(self.blocks, ddof=1))
        return self.resembles_last_block and abs(self.estimate - self.null) <= DEPENDENT_SDS * sd

    def smallest_found(self, alpha: float) -> float | None:
        """Distance from the null that this number of blocks finds with a power of 80 %.

        None below the test's floor, and if blocks depend on each other. It is planned with the upper confidence limit
        of the noise. With the estimate itself, its power was 66 to 79 %.
        """
        effect = None if self.resembles_last_block else detectable_effect(self.n, alpha=alpha)
        return None if effect is None else effect * upper_sd(float(np.std(self.blocks, ddof=1)), self.n)


def ladder(x: ArrayLike, y: ArrayLike, *, fewest: int = 2) -> tuple[FloatArray, FloatArray]:
    """Check a ladder of at least `fewest` different sizes; return the sizes and the (blocks, sizes) table."""
    sizes, table = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(np.unique(sizes)) < fewest or len(table) < 2:
        raise UsageError(f"need {fewest} different sizes and 2 blocks, got {len(np.unique(sizes))} and {len(table)}")
    return sizes, table


def block_slopes(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the least-squares slope of every row of `y` (blocks, k) on `x` (k,)."""
    centred = x - x.mean()
    slopes: FloatArray = y @ centred / (centred @ centred)
    return slopes


def slope_over_blocks(values: FloatArray, null: float, alpha: float, extra: tuple[Warning, ...] = ()) -> Slope:
    """Return estimate, interval and p-value from one value per block; a t interval below the exact test's floor."""
    n, floor = len(values), smallest_n(1, alpha)
    scale = max(1.0, float(np.abs(values).max()))
    result, blocks = hodges_lehmann(values, alpha, null=null, atol=_ATOL * scale), tuple(values.tolist())
    warnings = (*extra, *dependent_effects(values, "large sizes react to the machine more than small ones"))
    exact = Slope(**asdict(result), blocks=blocks, method="exact signed-rank over blocks", warnings=warnings)
    if n >= floor:
        return exact
    low, high = paired_t_interval(float(values.mean()), float(values.std(ddof=1)), n, alpha)
    warnings = (Warning("below-floor", f"{n} blocks cannot reach p = {alpha:g}; run at least {floor}"), *warnings)
    method = "t over blocks, model-based, provisional"
    return replace(exact, low=low, high=high, confidence=1 - alpha, method=method, warnings=warnings)


def bend_p(x: FloatArray, y: FloatArray) -> float:
    """Return the exact p-value that curves over three or more sizes do not bend, by their quadratic coefficients."""
    curve = np.polyfit((x - x.mean()) / np.ptp(x), y.T, 2)[0]
    return signed_rank_p(curve, "two-sided", _ATOL * max(1.0, float(np.abs(y).max())))


_GRID = 200


@dataclass(frozen=True, slots=True)
class Knee:
    """A change of slope."""

    # Size at which the slope changes, and its bootstrap interval
    at: float
    low: float
    high: float
    # Slopes on both sides, in the response's unit per unit of size
    before: float
    after: float
    p: float  # exact p-value that growth does not bend
    # One-sided p-value that smooth growth fits the blocks as well as two lines do. It is not exact, because the blocks
    # fit each other's curves.
    p_smooth: float
    found: bool  # whether both p-values are at most alpha; otherwise `at` means nothing
    warnings: tuple[Warning, ...]


def _projectors(sizes: FloatArray, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (g, 3, k) and residual projectors (g, k, k) of two-piece lines, one per bend of the grid."""
    hinge = np.maximum(sizes[None, :] - grid[:, None], 0.0)
    line = np.broadcast_to(sizes - sizes.mean(), hinge.shape)
    design = np.stack([np.ones_like(hinge), line, hinge], axis=2)  # (g, k, 3)
    solve = np.linalg.pinv(design)
    away = np.eye(len(sizes)) - design @ solve
    return solve, away


def find_knee(x: ArrayLike, y: ArrayLike, rng: np.random.Generator, *, alpha: float = 0.05, draws: int = 1000) -> Knee:
    """Locate a change of slope in responses (blocks, k), or in their logs, on a ladder of at least five sizes.

    `rng` resamples whole blocks `draws` times. Raise UsageError with fewer sizes: a bend between too few points can
    always be fitted.
    """
    sizes, table = ladder(x, y, fewest=5)
    order = np.argsort(sizes)
    sizes, table = sizes[order], table[:, order]
    # Two points on each side determine a line; a bend further out cannot be distinguished from noise of one size.
    grid = np.linspace(sizes[1], sizes[-2], _GRID)
    solve, away = _projectors(sizes, grid)
    at, slope, change = _fit(table.mean(axis=0)[None, :], grid, solve, away)
    picks = rng.integers(0, len(table), (draws, len(table)))
    spots = _fit(table[picks].mean(axis=1), grid, solve, away)[0]
    low, high = (float(v) for v in np.quantile(spots, [alpha / 2, 1 - alpha / 2]))
    p, p_smooth = bend_p(sizes, table), _smooth_p(sizes, table, grid, solve, away)
    found = max(p, p_smooth) <= alpha
    warnings = []
    n, floor = len(table), smallest_n(1, alpha)
    if n < floor:
        warnings.append(Warning("below-floor", f"{n} blocks cannot show a bend: run at least {floor}"))
    elif p > alpha:
        warnings.append(Warning("no-knee", "the test found no bend: extend the ladder to larger sizes"))
    elif not found:
        text = f"growth bends, but two lines do not fit significantly better than a smooth curve (p = {p_smooth:.2g})"
        warnings.append(Warning("no-knee", f"{text}: add sizes where it bends"))
    elif at[0] in (grid[0], grid[-1]):
        warnings.append(Warning("knee-at-edge", "the bend is at the end of the ladder: add sizes on that side"))
    before, after = float(slope[0]), float(slope[0] + change[0])
    return Knee(float(at[0]), low, high, before, after, p, p_smooth, found, tuple(warnings))


def _smooth_p(sizes: FloatArray, table: FloatArray, grid: FloatArray, solve: FloatArray, away: FloatArray) -> float:
    """Return the p-value that a block is no closer to the two-piece line of the others than to their smooth curve.

    Height and scale of either shape are fitted to the block, so both shapes have the same freedom.
    """
    total = table.sum(axis=0)
    others = (total - table) / (len(table) - 1)  # for every block the mean curve of the others
    at, slope, change = _fit(others, grid, solve, away)
    broken = slope[:, None] * sizes + change[:, None] * np.maximum(sizes - at[:, None], 0.0)
    x = sizes / sizes.max()
    up = [(x + shift) ** e for shift in _SHIFTS for e in _EXPONENTS if x.min() + shift > 0 or e > 0]
    shapes = np.array(up + [(limit - x) ** -e for limit in _LIMITS for e in _EXPONENTS if e > 0])
    smooth = shapes[np.argmin([_misfits(others, np.broadcast_to(one, others.shape)) for one in shapes], axis=0)]
    closer = _misfits(table, smooth) - _misfits(table, broken)
    return signed_rank_p(closer, "greater", _ATOL * float(np.square(table).sum(axis=1).max()))


def _misfits(curves: FloatArray, shapes: FloatArray) -> FloatArray:
    """Return the residual sums of squares (m,) of curves (m, k) at the best height and scale of shapes (m, k)."""
    y, x = (a - a.mean(axis=1, keepdims=True) for a in (curves, shapes))
    along = (x * y).sum(axis=1) ** 2 / np.maximum((x * x).sum(axis=1), np.finfo(float).tiny)
    left: FloatArray = (y * y).sum(axis=1) - along
    return left


def _fit(
    curves: FloatArray, grid: FloatArray, solve: FloatArray, away: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the best bend of every curve (m, k): its place, the slope before it, and the change of slope."""
    misfit = np.stack([((curves @ one) ** 2).sum(axis=1) for one in away], axis=1)  # (m, g)
    best = misfit.argmin(axis=1)
    parts = np.einsum("mck,mk->mc", solve[best], curves)
    return grid[best], parts[:, 1], parts[:, 2]


LinearVerdict = Literal["superlinear", "sublinear", "about linear", "dependent", "inconclusive"]


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y proportional to x^exponent, compared with exponent 1."""

    exponent: Slope  # log-log slope; p against 1
    # `"about linear"`: shown to lie within the margin around 1
    verdict: LinearVerdict
    p_linear: float | None  # two one-sided tests that the exponent lies within the margin of 1; None without a margin


def _logs(sizes: FloatArray, table: FloatArray) -> tuple[FloatArray, FloatArray]:
    if not (sizes.min() > 0 and table.min() > 0):
        raise UsageError("an exponent needs positive sizes and values; use marginal_cost where the baseline is zero")
    return np.log(sizes), np.log(table)


def power_law(x: ArrayLike, y: ArrayLike, *, alpha: float = 0.05, margin: float | None = None) -> PowerLaw:
    """Return the exponent of growth and whether it is above or below 1; warn if the log-log line bends.

    `x` are sizes, endpoints or requests per second, `y` the responses (blocks, k), all positive. Exponents between
    1 - margin and 1 + margin count as linear. Raise UsageError if the ladder cannot be used or a value is not positive.
    """
    sizes, table = _logs(*ladder(x, y))
    exponent = slope_over_blocks(block_slopes(sizes, table), 1.0, alpha, _bend(sizes, table, alpha))
    p_linear = None
    if margin is not None:
        p_linear = equivalence_p(np.array(exponent.blocks) - 1.0, -margin, margin, atol=_ATOL)
    verdict: LinearVerdict = "inconclusive"
    if exponent.dependent:
        verdict = "dependent"
    elif exponent.n >= smallest_n(1, alpha):
        if p_linear is not None and p_linear <= alpha:
            verdict = "about linear"
        elif exponent.p <= alpha:
            verdict = "superlinear" if exponent.estimate > 1 else "sublinear"
    return PowerLaw(exponent, verdict, p_linear)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through the values of every block, straight or straight on logarithmic axes."""

    form: Literal["straight line", "power law"]
    # (blocks,): slope and height at the mean size of each block; logarithms for a power law
    slopes: FloatArray
    at_middle: FloatArray
    middle: float  # mean size, or mean of the logarithms

    def at(self, size: float) -> FloatArray:
        """Return every block's value at a size."""
        if self.form == "straight line":
            return self.at_middle + self.slopes * (size - self.middle)
        value: FloatArray = np.exp(self.at_middle + self.slopes * (math.log(size) - self.middle))
        return value


def closest_curve(x: ArrayLike, y: ArrayLike) -> Curve:
    """Return the straight line or the power law, whichever has the smaller mean square error.

    It is the straight line if a value is not positive, or if two sizes lie on both.
    """
    sizes, table = ladder(x, y)
    line, law = _line(sizes, table), _law(sizes, table)
    if law is None or len(np.unique(sizes)) < 3:
        return line

    def error(curve: Curve) -> float:
        fitted = np.stack([curve.at(size) for size in sizes], axis=1)
        return float(np.mean((fitted - table) ** 2))

    return law if error(law) < error(line) else line


def _line(sizes: FloatArray, table: FloatArray) -> Curve:
    return Curve("straight line", block_slopes(sizes, table), table.mean(axis=1), float(sizes.mean()))


def _law(sizes: FloatArray, table: FloatArray) -> Curve | None:
    if sizes.min() <= 0 or table.min() <= 0:
        return None
    x, y = np.log(sizes), np.log(table)
    return Curve("power law", block_slopes(x, y), y.mean(axis=1), float(x.mean()))


@dataclass(frozen=True, slots=True)
class AtSize:
    """How much more a treatment takes than its baseline at a size that need not have been measured."""

    # Estimate and interval over blocks; None if the measured sizes do not allow a prediction so far away
    slope: Slope | None
    # Whether curvature is shown to change a straight line by less than a tenth there. If so, the interval is the
    # line's, widened by the remaining uncertainty of the curvature; else it is the envelope of straight lines,
    # parabolas and power laws.
    bounded: bool


def at_size(x: ArrayLike, treatment: ArrayLike, baseline: ArrayLike, size: float, *, alpha: float = 0.05) -> AtSize:
    """Predict a difference at a size, from blocks (b, k) of both treatments at the sizes (k,).

    Raise UsageError if the ladders cannot be used.
    """
    (sizes, t), (_, b) = ladder(x, treatment), ladder(x, baseline)
    straight, laws = _line(sizes, t - b).at(size), [_law(sizes, table) for table in (t, b)]
    line, slopes = slope_over_blocks(straight, 0.0, alpha), []
    if len(np.unique(sizes)) > 2:
        # The least-squares parabola through every block's values, at this size.
        coefficients = np.polyfit((sizes - sizes.mean()) / np.ptp(sizes), (t - b).T, 2)
        bent: FloatArray = np.polyval(coefficients, (size - sizes.mean()) / np.ptp(sizes))
        margin = _BENT * abs(line.estimate)
        if margin and equivalence_p(bent - straight, -margin, margin, atol=_ATOL * margin) <= alpha:
            open_ = slope_over_blocks(bent - straight, 0.0, alpha)
            low, high = line.low + min(0.0, open_.low), line.high + max(0.0, open_.high)
            return AtSize(replace(line, low=low, high=high), True)
        slopes.append(slope_over_blocks(bent, 0.0, alpha))
    if laws[0] is not None and laws[1] is not None:
        slopes.append(slope_over_blocks(laws[0].at(size) - laws[1].at(size), 0.0, alpha))
    if size > (_UNBOUNDED if slopes else 1) * sizes.max():
        return AtSize(None, False)
    slopes.append(line)
    return AtSize(replace(line, low=min(one.low for one in slopes), high=max(one.high for one in slopes)), False)


def _bend(sizes: FloatArray, table: FloatArray, alpha: float) -> tuple[Warning, ...]:
    """Warn if the blocks show that the log-log line is curved, or if they are too few to show it."""
    n = len(table)
    if len(np.unique(sizes)) < 3 or n < smallest_n(1, alpha):
        return ()
    if n < smallest_n(1, _BEND_LEVEL):
        text = f"{n} blocks are too few to test at {_BEND_LEVEL:.0%} whether growth bends; look at the figure"
        return (Warning("bend-unseen", text),)
    p = bend_p(sizes, table)
    if p > _BEND_LEVEL:
        return ()
    curve = np.polyfit(sizes, table.T, 2)[0]
    way = "steeper" if float(np.median(curve)) > 0 else "flatter"
    text = f"growth gets {way} with size (p = {p:.2g}): one exponent does not describe it; look for a knee"
    return (Warning("not-a-power-law", text),)


def marginal_cost(x: ArrayLike, y: ArrayLike, *, alpha: float = 0.05) -> Slope:
    """Return the cost of one more unit of size, in the response's unit; its p-value is against zero."""
    return slope_over_blocks(block_slopes(*ladder(x, y)), 0.0, alpha)


def marginal_costs(sizes: Mapping[str, ArrayLike], y: ArrayLike, *, alpha: float = 0.05) -> dict[str, Slope]:
    """Return the costs of sizes that vary together (endpoints, 1000 requests per second), the others held fixed.

    All sizes belong to the same k loads; `y` is the response (blocks, k). Raise UsageError if the sizes rise in step,
    so that their costs cannot be separated.
    """
    names = list(sizes)
    columns = [ladder(sizes[name], y)[0] for name in names]
    table = np.asarray(y, dtype=np.float64)
    design = np.stack([np.ones(len(columns[0])), *columns], axis=1)
    scaled = design / np.abs(design).max(axis=0)
    if len(design) <= len(names) + 1 or np.linalg.cond(scaled) > 1e8:
        raise UsageError(
            f"{' and '.join(names)} rise in step or have too few sizes, so their costs cannot be separated; "
            "vary one while the other is fixed"
        )
    slopes = np.linalg.lstsq(scaled, table.T, rcond=None)[0] / np.abs(design).max(axis=0)[:, None]
    return {name: slope_over_blocks(slopes[i + 1], 0.0, alpha) for i, name in enumerate(names)}


def compare_exponents(x: ArrayLike, treatment: ArrayLike, baseline: ArrayLike, *, alpha: float = 0.05) -> Slope:
    """Return the treatment's exponent minus the baseline's, by block: their ratio grows like x to this power."""
    (sizes, t), (_, b) = (_logs(*ladder(x, y)) for y in (treatment, baseline))
    return slope_over_blocks(block_slopes(sizes, t - b), 0.0, alpha)
