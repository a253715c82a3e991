"""Planning: blocks needed for a margin, the smallest effect that n blocks detect, and the cheapest number of slices.

The power is that of the t-test by the noncentral t (Cohen 1988, section 2.5) at n times 0.955, the asymptotic
efficiency of the signed-rank test under normal noise (Hodges & Lehmann 1956). The level is the one that the exact test
reaches: with few blocks its p-values are coarse, and the largest one at or below 0.05 may be 0.03. If only the most
extreme outcome rejects, the power is the probability of n blocks on one side. Equivalence takes two such one-sided
tests, which must both succeed. Plans never have fewer blocks than the exact test's floor. The power is solved once for
all numbers of blocks and cached; beyond 512 blocks it is the normal limit.

Variation between deployments is not visible within one. Slices are nested in their deployment and never count as n
(Kalibera & Jones 2013, sections 4 and 6).
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.ranktests import RESOLUTION, FloatArray, clean_signed_rank_tail

EFFICIENCY = 0.955
_TABLE = 512
_FEWEST = 4  # no test of fewer blocks reaches 5 %
_COARSE = 60


def reached_level(n: int, level: float) -> float:
    """Return the largest one-sided p-value of n blocks at or below `level`; 0 if there is none."""
    if n > _COARSE:  # p-values are so fine that one nearly equals the level
        return level
    tail = clean_signed_rank_tail(n)
    return float(tail[tail <= level].max(initial=0.0))


@lru_cache(maxsize=256)
def _detectable(level: float, power: float, reach: float) -> FloatArray:
    """Return the standardised effects that a one-sided test finds with `power` at N = 0, 1, ... blocks, or infinity.

    If N blocks reach no p-value at `level`, but one at or below `reach`, the t-test's own power at `level` is used.
    """
    blocks = np.arange(_FEWEST, _TABLE + 1)
    reached = np.array([reached_level(int(n), level) for n in blocks])
    reached = np.where((reached == 0) & (0.5**blocks <= reach), level, reached)
    n, at = blocks * EFFICIENCY, np.where(reached > 0, reached, 0.5)
    critical = -special.stdtrit(n - 1, at)

    def excess(shift: FloatArray) -> FloatArray:
        return np.asarray(special.ndtri(1 - special.nctdtr(n - 1, shift, critical)) - special.ndtri(power))

    # As a normal quantile, power is nearly a straight line in the shift, so eight secants reach its last digits.
    before, shift = critical + special.ndtri(power), critical + special.ndtri(power) + 0.1
    excess_before = excess(before)
    for _ in range(8):
        excess_now = excess(shift)
        rise = np.where(excess_now == excess_before, math.inf, excess_now - excess_before)
        before, shift, excess_before = shift, shift - excess_now * (shift - before) / rise, excess_now
    all_on_one_side = np.where(reached <= 0.5**blocks, special.ndtri(power ** (1 / blocks)), 0.0)
    effects = np.where(reached > 0, np.maximum(shift / np.sqrt(n), all_on_one_side), math.inf)
    # The level of one block more may be hardly smaller; an effect that fewer blocks find remains found.
    table: FloatArray = np.concatenate((np.full(_FEWEST, math.inf), np.minimum.accumulate(effects)))
    return table


def _blocks(effect: float, level: float, power: float, reach: float) -> int:
    """Return the fewest blocks with which a one-sided test finds a standardised effect."""
    falling = _detectable(level, power, reach)
    if effect >= falling[-1]:
        return int((-falling).searchsorted(-effect))  # the first number of blocks that finds the effect
    return math.ceil(min(_normal_blocks(effect, level, power), 1e9))


def _normal_blocks(effect: float, alpha: float, power: float) -> float:
    """Return the blocks by the normal limit: the one-sided z-test of a standardised effect, over the efficiency."""
    shift = max(0.0, float(special.ndtri(power) - special.ndtri(alpha)))
    return (shift / effect) ** 2 / EFFICIENCY


def detectable_effect(
    n: int, *, alpha: float = 0.05, m: int = 1, power: float = 0.8, jointly: bool = False
) -> float | None:
    """Return the smallest standardised effect (mean/sd of the block differences) that n blocks find with `power`.

    Return None if n is below the exact test's floor, where no effect can be found. The level is alpha/m, Holm's first
    step in a family of m contrasts. With the correction by max-T (`jointly`), smaller effects may be found too, also
    with blocks that cannot reach alpha/m.
    """
    if n < smallest_n(1 if jointly else m, alpha):
        return None
    if n <= _TABLE:
        return float(_detectable(alpha / m / 2, power, _reach(alpha, m, jointly))[n])
    return math.sqrt(_normal_blocks(1.0, alpha / m / 2, power) / n)


def _reach(alpha: float, m: int, jointly: bool) -> float:
    """Return the largest one-sided level at which one contrast of a family may be called."""
    return alpha / 2 if jointly else alpha / m / 2


def upper_sd(sd: float, n: int, confidence: float = 0.7) -> float:
    """Return the upper confidence limit of a standard deviation of n values under normal noise.

    A plan made with the estimate itself has its power in half of the cases only, because small estimates promise too
    much.
    """
    return sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, confidence)))


def blocks_for_difference(
    sd: float, margin: float, *, alpha: float = 0.05, m: int = 1, power: float = 0.8, jointly: bool = False
) -> int:
    """Return the blocks with which a true effect of `margin` is found with `power`; at least the floor.

    `sd` is that of the block differences (log ratios, or in the response's unit), `margin` has the same scale: ln(1.05)
    for 5 %. The others are as in `detectable_effect`. Raise UsageError if sd is negative or margin is not positive.
    """
    fewest = smallest_n(1 if jointly else m, alpha)
    return max(fewest, _blocks(_effect(sd, margin), alpha / m / 2, power, _reach(alpha, m, jointly)))


def blocks_for_equivalence(
    sd: float, margin: float, *, effect: float = 0.0, alpha: float = 0.05, m: int = 1, power: float = 0.8
) -> int:
    """Return the blocks with which two equal treatments are called equivalent with `power`; at least the floor.

    The true `effect` uses up part of the margin; the others are as in `blocks_for_difference`. Without an effect both
    one-sided tests must succeed, so each needs the power (1 + power)/2: .9 for .8. Raise UsageError if the effect is
    not inside the margin.
    """
    if abs(effect) >= margin:
        raise UsageError(
            f"an effect of {effect:g} is not inside the margin {margin:g}: no number of blocks shows equivalence"
        )
    distance = _effect(sd, margin - abs(effect))
    return max(smallest_n(m, alpha, "equivalence"), _blocks(distance, alpha / m, (1 + power) / 2, alpha / m))


def _effect(sd: float, margin: float) -> float:
    if not (sd >= 0 and math.isfinite(sd)) or not margin > 0:
        raise UsageError(f"planning needs a noise of at least 0 and a positive margin, got sd={sd}, margin={margin}")
    return margin / sd if sd > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Nights:
    """How often a nightly gate on differences for the worse fires by chance, if nothing differs.

    Nights are independent studies; families of one night are not corrected for each other.
    """

    nights: int
    families: int  # number in one night: one for each primary response at each load
    alpha: float  # error level of a family, both directions together

    @property
    def one_night(self) -> float:
        """Largest probability that the gate fires in one night."""
        return min(1.0, self.families * self.alpha / 2)

    @property
    def any_night(self) -> float:
        """Largest probability that it fires in at least one of the nights."""
        return 1 - (1 - self.one_night) ** self.nights

    @property
    def twice_running(self) -> float:
        """Largest probability that it fires in two consecutive nights, by the sum over all pairs of them."""
        return min(self.any_night, (self.nights - 1) * self.one_night**2)

    def alpha_for(self, share: float) -> float:
        """Return the error level of a family with which it fires in at least one night with probability `share`."""
        return float(2 * (1 - (1 - share) ** (1 / self.nights)) / self.families)


# Share of the variance within deployments below which the optimiser cannot distinguish one between them from none.
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Nested variance of a response: between deployments, and between slices within one."""

    # Variances in the square of the data's unit (relative variances for log data)
    between: float
    within: float

    def run_variance(self, slices: int) -> float:
        """Return the variance of a run that averages `slices` slices of one deployment."""
        return self.between + self.within / slices


def variance_components(deployments: Sequence[ArrayLike]) -> VarianceComponents:
    """Estimate variances by restricted maximum likelihood, with slices nested in deployments (``MixedLM``).

    There are at least two deployments, one with two slices or more, on the scale of the analysis: logs for ratios.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in deployments]
    largest = max(float(np.abs(g).max()) for g in groups)
    if all(np.ptp(g) <= RESOLUTION * largest for g in groups):  # nothing varies inside a deployment
        return VarianceComponents(float(np.var([g.mean() for g in groups], ddof=1)), 0.0)
    # statsmodels takes a second to load, which only plans with several slices need.
    from statsmodels.regression.mixed_linear_model import MixedLM
    from statsmodels.tools.sm_exceptions import ConvergenceWarning

    values = np.concatenate(groups)
    # In units of the whole spread, so that the optimiser's tolerance suits latencies and megabytes.
    unit = float(values.std())
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    with warnings.catch_warnings():
        # Deployments that hardly differ put the estimate on the boundary, which is no failure.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MixedLM((values - values.mean()) / unit, np.ones(len(values)), labels)
        # Powell's search needs no gradient, which has no meaning on the boundary.
        fit = model.fit(reml=True, method="powell", ftol=1e-12)
    between, within = (float(part) * unit**2 for part in (fit.cov_re[0, 0], fit.scale))
    return VarianceComponents(between if between > _NOTHING * within else 0.0, within)


def best_slices(components: VarianceComponents, cost_outer: float, cost_inner: float, *, most: int = 100) -> int:
    """Return the cheapest number of slices per deployment (Kalibera & Jones 2013, section 6.2), from 1 to `most`.

    `cost_outer` is the time in seconds of a fresh deployment without its slices, `cost_inner` that of a slice. The
    result is `most` if deployments hardly differ.
    """
    if components.between <= 0:
        return most
    ideal = math.sqrt(cost_outer / cost_inner * components.within / components.between)
    return min(most, max(1, math.ceil(ideal - 1e-9)))
