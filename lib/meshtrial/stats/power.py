"""Planning: how many blocks a margin costs, how long they take, and the smallest effect that n blocks can see.

The paired t-test's power (statsmodels) divided by 0.955, the asymptotic efficiency of the signed-rank test under normal
noise (Hodges & Lehmann 1956); never fewer blocks than the exact test's own floor. The power is solved once for all
numbers of blocks together and kept, so that a thousand contrasts cost nothing; beyond 512 blocks by the normal limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.noise import VarianceComponents, best_slices
from meshtrial.stats.ranktests import FloatArray

EFFICIENCY = 0.955
_TABLE = 512


@lru_cache(maxsize=256)
def _detectable(alpha: float, power: float) -> FloatArray:
    """Standardised effect found with `power` at N = 0, 1, ... blocks (infinite below 4), by bisection."""
    # statsmodels takes a moment to load, which commands that plan nothing need not wait for
    from statsmodels.stats.power import ttest_power

    n = np.arange(4, _TABLE + 1, dtype=np.float64) * EFFICIENCY
    # twice the critical value is found nearly always, and keeps the noncentral t in its accurate range
    low, high = np.zeros_like(n), (2 * special.stdtrit(n - 1, 1 - alpha / 2) + 3) / np.sqrt(n)
    for _ in range(50):
        middle = (low + high) / 2
        enough = ttest_power(middle, n, alpha) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.concatenate((np.full(4, math.inf), high))


@lru_cache(maxsize=256)
def _falling(alpha: float, power: float) -> FloatArray:
    """The same table with its sign turned, ascending for a search."""
    return -_detectable(alpha, power)


def _normal_blocks(effect: float, alpha: float, power: float) -> float:
    """Blocks by the normal limit: the one-sided z-test of a standardised effect, over the efficiency."""
    from statsmodels.stats.power import normal_sample_size_one_tail

    return float(normal_sample_size_one_tail(effect, power, alpha)) / EFFICIENCY


def detectable_effect(n: int, *, alpha: float = 0.05, m: int = 1, power: float = 0.8) -> float | None:
    """Smallest standardised effect (mean/sd of the block differences) found with `power` at n blocks.

    Parameters
    ----------
    n : int
        Blocks.
    alpha, m : float, int
        Family-wise error and the contrasts of the family: tested at alpha/m, Holm's first step.
    power : float
        Wanted power.

    Returns
    -------
    float or None
        None where n is below the exact test's floor: then no effect, however large, can be found.
    """
    if n < smallest_n(m, alpha):
        return None
    if n <= _TABLE:
        return float(_detectable(alpha / m, power)[n])
    return math.sqrt(_normal_blocks(1.0, alpha / m / 2, power) / n)


def blocks_for_difference(sd: float, margin: float, *, alpha: float = 0.05, m: int = 1, power: float = 0.8) -> int:
    """Blocks with which a true effect of `margin` is found with `power`.

    Parameters
    ----------
    sd : float
        Standard deviation of the block differences (log ratios, or the response's unit).
    margin : float
        The effect to be found, on the same scale: ln(1.05) for 5 %.
    alpha, m, power
        As in `detectable_effect`.

    Returns
    -------
    int
        ``ceil(TTestPower().solve_power(margin/sd, alpha=alpha/m, power=power) / 0.955)``, at least the floor.

    Raises
    ------
    UsageError
        If sd is negative or margin is not positive.
    """
    effect = _effect(sd, margin)
    floor = smallest_n(m, alpha)
    table = _falling(alpha / m, power)
    if -effect <= table[-1]:
        return max(floor, int(table.searchsorted(-effect)))  # the first number of blocks that sees the effect
    return max(floor, _whole(_normal_blocks(effect, alpha / m / 2, power)))


def blocks_for_equivalence(
    sd: float, margin: float, *, effect: float = 0.0, alpha: float = 0.05, m: int = 1, power: float = 0.8
) -> int:
    """Blocks with which two treatments are shown to be equivalent with `power`.

    Parameters
    ----------
    sd, margin : float
        As in `blocks_for_difference`.
    effect : float
        The true effect; 0 for treatments that do not differ. It uses up part of the margin.
    alpha, m, power
        As in `detectable_effect`. With no effect both one-sided tests must succeed, hence z((1 + power)/2): z(.9) at
        .8.

    Returns
    -------
    int
        ``((z(1 - alpha/m) + z(.9)) sd/margin)^2 / .955``, at least the floor.

    Raises
    ------
    UsageError
        If sd is negative, margin not positive, or the effect not inside the margin.
    """
    if abs(effect) >= margin:
        raise UsageError(
            f"an effect of {effect:g} is not inside the margin {margin:g}: no number of blocks shows equivalence"
        )
    distance = _effect(sd, margin - abs(effect))
    floor = smallest_n(m, alpha, "equivalence")
    return floor if math.isinf(distance) else max(floor, _whole(_normal_blocks(distance, alpha / m, (1 + power) / 2)))


def _effect(sd: float, margin: float) -> float:
    if not (sd >= 0 and math.isfinite(sd)) or not margin > 0:
        raise UsageError(f"planning needs a noise of at least 0 and a positive margin, got sd={sd}, margin={margin}")
    return margin / sd if sd > 0 else math.inf


def _whole(n: float) -> int:
    return math.ceil(min(n, 1e9))


def study_seconds(blocks: int, treatments: int, seconds_per_run: float) -> float:
    """Wall time of a study: every block deploys and measures every treatment once, one after the other.

    Parameters
    ----------
    blocks : int
        Blocks of the plan.
    treatments : int
        With the baseline and its A/A twin.
    seconds_per_run : float
        Deployment, warm-up, measurement and teardown of one run, in seconds.
    """
    return blocks * treatments * seconds_per_run


@dataclass(frozen=True, slots=True)
class Budget:
    """What a block costs and what a study is held to.

    Attributes
    ----------
    treatments : int
        Runs of a block, with baseline and twin.
    m_family : int
        Contrasts of the family.
    outer_s, inner_s : float
        Seconds that a fresh deployment costs beside its slices, and that one slice costs.
    alpha, power : float
        Family-wise error rate, and the wanted power.
    """

    treatments: int
    m_family: int
    outer_s: float
    inner_s: float
    alpha: float = 0.05
    power: float = 0.8

    def seconds(self, blocks: int, slices: int) -> float:
        """Wall time of so many blocks with so many slices a deployment."""
        return study_seconds(blocks, self.treatments, self.outer_s + slices * self.inner_s)


@dataclass(frozen=True, slots=True)
class StudyCost:
    """What a margin costs with so many slices a deployment.

    Attributes
    ----------
    slices : int
        Interleaved slices of each deployment, averaged inside their run; they are no replicates.
    sd : float
        Standard deviation of a block difference (log ratio) with that many slices.
    blocks_difference, blocks_equivalence : int
        Blocks that find an effect of the margin's size, and that show equivalence if there is none.
    seconds_difference, seconds_equivalence : float
        Wall time of these blocks.
    """

    slices: int
    sd: float
    blocks_difference: int
    blocks_equivalence: int
    seconds_difference: float
    seconds_equivalence: float


def cost_of_margin(
    components: VarianceComponents, ratio: float, budget: Budget, *, slices: int | None = None
) -> StudyCost:
    """Plan a study from variance components of log values.

    Parameters
    ----------
    components : VarianceComponents
        Between and within deployments, of natural logs.
    ratio : float
        Effective margin as a ratio: 1.05 for 5 %.
    budget : Budget
        What a block costs.
    slices : int, optional
        Fixed number of slices; the cheapest by default (Kalibera & Jones 2013, section 6.2).
    """
    many = best_slices(components, budget.outer_s, budget.inner_s) if slices is None else slices
    # two runs differ in a block, each with the variance of a fresh deployment
    sd = math.sqrt(2 * components.run_variance(many))
    half, alpha, m, power = math.log(ratio), budget.alpha, budget.m_family, budget.power
    difference = blocks_for_difference(sd, half, alpha=alpha, m=m, power=power)
    equivalence = blocks_for_equivalence(sd, half, alpha=alpha, m=m, power=power)
    seconds = [budget.seconds(blocks, many) for blocks in (difference, equivalence)]
    return StudyCost(many, sd, difference, equivalence, *seconds)
