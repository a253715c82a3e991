"""Planning: how many blocks a margin costs, how long they take, and the smallest effect that n blocks can see.

The t-test's power (statsmodels) at n times 0.955, the asymptotic efficiency of the signed-rank test under normal noise
(Hodges & Lehmann 1956), and at the level that the exact test reaches: with few blocks its p-values are coarse, and the
largest one at or below 0.05 may be 0.03. Where only the most extreme outcome rejects, the power is that of n blocks all
on one side. Equivalence is two such one-sided tests, each of which must succeed. Never fewer blocks than the exact
test's own floor. The power is solved once for all numbers of blocks together and kept, so that a thousand contrasts
cost nothing; beyond 512 blocks by the normal limit.
"""

from __future__ import annotations

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
_FEWEST = 4  # below that no test reaches 5 %
_COARSE = 60


def reached_level(n: int, level: float) -> float:
    """Largest one-sided p-value of n blocks at or below `level`; 0 where they reach none."""
    if n > _COARSE:  # p-values are so fine that it is the level itself
        return level
    tail = clean_signed_rank_tail(n)
    return float(tail[tail <= level].max(initial=0.0))


@lru_cache(maxsize=256)
def _detectable(level: float, power: float, reach: float) -> FloatArray:
    """Standardised effect that one one-sided test finds with `power` at N = 0, 1, ... blocks; infinite where none.

    Where N blocks reach no p-value at `level`, but one at or below `reach`, the t-test's own power at `level` stands.
    """
    # statsmodels takes a moment to load, which commands that plan nothing need not wait for
    from statsmodels.stats.power import ttest_power

    blocks = np.arange(_FEWEST, _TABLE + 1)
    reached = np.array([reached_level(int(n), level) for n in blocks])
    reached = np.where((reached == 0) & (0.5**blocks <= reach), level, reached)
    n, at = blocks * EFFICIENCY, np.where(reached > 0, reached, 0.5)
    # twice the critical value is found nearly always, and keeps the noncentral t in its accurate range
    low, high = np.zeros_like(n), (2 * special.stdtrit(n - 1, 1 - at) + 5) / np.sqrt(n)
    for _ in range(50):
        middle = (low + high) / 2
        enough = ttest_power(middle, n, at, alternative="larger") >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    all_on_one_side = np.where(reached <= 0.5**blocks, special.ndtri(power ** (1 / blocks)), 0.0)
    effects = np.where(reached > 0, np.maximum(high, all_on_one_side), math.inf)
    # one block more may reach a level that is hardly less than the last one's; it never takes away what was found
    table: FloatArray = np.concatenate((np.full(_FEWEST, math.inf), np.minimum.accumulate(effects)))
    return table


def _blocks(effect: float, level: float, power: float, reach: float) -> int:
    """Fewest blocks with which a one-sided test finds a standardised effect."""
    falling = _detectable(level, power, reach)
    if effect >= falling[-1]:
        return int((-falling).searchsorted(-effect))  # the first number of blocks that sees the effect
    return math.ceil(min(_normal_blocks(effect, level, power), 1e9))


def _normal_blocks(effect: float, alpha: float, power: float) -> float:
    """Blocks by the normal limit: the one-sided z-test of a standardised effect, over the efficiency."""
    from statsmodels.stats.power import normal_sample_size_one_tail

    return float(normal_sample_size_one_tail(effect, power, alpha)) / EFFICIENCY


def detectable_effect(
    n: int, *, alpha: float = 0.05, m: int = 1, power: float = 0.8, jointly: bool = False
) -> float | None:
    """Smallest standardised effect (mean/sd of the block differences) found with `power` at n blocks.

    None where n is below the exact test's floor: then no effect, however large, can be found. It is tested at alpha/m,
    the family-wise error over the contrasts of the family: Holm's first step. Corrected `jointly`, by max-T, as much is
    found as by Holm and more, also with blocks that cannot reach alpha/m.
    """
    if n < smallest_n(1 if jointly else m, alpha):
        return None
    if n <= _TABLE:
        return float(_detectable(alpha / m / 2, power, _reach(alpha, m, jointly))[n])
    return math.sqrt(_normal_blocks(1.0, alpha / m / 2, power) / n)


def _reach(alpha: float, m: int, jointly: bool) -> float:
    """One-sided level at or below which one contrast of a family may be called at the most."""
    return alpha / 2 if jointly else alpha / m / 2


def upper_sd(sd: float, n: int, confidence: float = 0.7) -> float:
    """What a standard deviation of n values is below with this confidence, under normal noise.

    A plan made with the estimate itself has its power in half of cases only: small estimates promise too much.
    """
    return sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, confidence)))


def blocks_for_difference(
    sd: float, margin: float, *, alpha: float = 0.05, m: int = 1, power: float = 0.8, jointly: bool = False
) -> int:
    """Blocks with which a true effect of `margin` is found with `power`; at least the floor.

    `sd` is that of the block differences (log ratios, or the response's unit), `margin` on the same scale: ln(1.05) for
    5 %; the others as in `detectable_effect`. UsageError if sd is negative or margin is not positive.
    """
    fewest = smallest_n(1 if jointly else m, alpha)
    return max(fewest, _blocks(_effect(sd, margin), alpha / m / 2, power, _reach(alpha, m, jointly)))


def blocks_for_equivalence(
    sd: float, margin: float, *, effect: float = 0.0, alpha: float = 0.05, m: int = 1, power: float = 0.8
) -> int:
    """Blocks with which two treatments are shown to be equivalent with `power`; at least the floor.

    The true `effect` uses up part of the margin; the others are as in `blocks_for_difference`. With no effect both
    one-sided tests must succeed, so each has the power (1 + power)/2: .9 at .8. UsageError if the effect is not inside
    the margin.
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


# a share of the variance within that an optimiser cannot tell from none
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Nested variance of a response: fresh deployments, and slices measured within one."""

    # Variances between deployments and between the slices of one, in the square of the data's unit (log data: relative
    # variances)
    between: float
    within: float

    def run_variance(self, slices: int) -> float:
        """Variance of a run that averages `slices` slices of one deployment."""
        return self.between + self.within / slices


def variance_components(deployments: Sequence[ArrayLike]) -> VarianceComponents:
    """Restricted maximum likelihood for slices nested in deployments (statsmodels' ``MixedLM``).

    The slices of each deployment are on the scale of the analysis, logs for ratios. UsageError with fewer than two
    deployments, or no deployment with two slices.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in deployments]
    if any(g.ndim != 1 or len(g) == 0 or not np.isfinite(g).all() for g in groups):
        raise UsageError("every deployment needs at least one finite slice")
    sizes = [len(g) for g in groups]
    if len(groups) < 2 or sum(sizes) == len(groups):
        raise UsageError(
            f"{len(groups)} deployments with {sum(sizes)} slices cannot tell the two levels apart: "
            "measure at least 2 fresh deployments, one of them at least twice"
        )
    largest = max(float(np.abs(g).max()) for g in groups)
    if all(
        np.ptp(g) <= RESOLUTION * largest for g in groups
    ):  # nothing varies inside a deployment: there is nothing to fit
        return VarianceComponents(float(np.var([g.mean() for g in groups], ddof=1)), 0.0)
    # statsmodels takes a second to load, which only plans with several slices need
    from statsmodels.regression.mixed_linear_model import MixedLM
    from statsmodels.tools.sm_exceptions import ConvergenceWarning

    values = np.concatenate(groups)
    # in units of the whole spread, so that the optimiser's tolerance suits latencies and megabytes alike
    unit = float(values.std())
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    with warnings.catch_warnings():
        # deployments that hardly differ put the estimate on the boundary, which is an answer and not a failure
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MixedLM((values - values.mean()) / unit, np.ones(len(values)), labels)
        # Powell's search needs no gradient, which has no meaning on the boundary
        fit = model.fit(reml=True, method="powell", ftol=1e-12)
    between, within = (float(part) * unit**2 for part in (fit.cov_re[0, 0], fit.scale))
    return VarianceComponents(between if between > _NOTHING * within else 0.0, within)


def best_slices(components: VarianceComponents, cost_outer: float, cost_inner: float, *, most: int = 100) -> int:
    """Cheapest number of slices a deployment (Kalibera & Jones 2013, section 6.2), from 1 to `most`.

    The costs are seconds: of a fresh deployment beside its slices, and of a slice. `most` is reached where deployments
    hardly differ.
    """
    if not (cost_outer >= 0 and cost_inner > 0):
        raise UsageError(f"costs are seconds: outer >= 0 and inner > 0, got {cost_outer} and {cost_inner}")
    if components.between <= 0:
        return most
    ideal = math.sqrt(cost_outer / cost_inner * components.within / components.between)
    return min(most, max(1, math.ceil(ideal - 1e-9)))
