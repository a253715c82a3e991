"""What a margin costs on this machine: blocks, slices of a deployment, and hours, from calibration data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshtrial.margin import Margin
from meshtrial.stats.noise import VarianceComponents, best_slices
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence, study_seconds


@dataclass(frozen=True, slots=True)
class StudyCost:
    """The cheapest study for a margin.

    Attributes
    ----------
    slices : int
        Interleaved slices of each deployment, averaged inside their run; they never count as n.
    sd : float
        Standard deviation of a block difference (log ratio) with that many slices.
    blocks_difference, blocks_equivalence : int
        Blocks that find an effect of the margin's size (power .8), and that show equivalence if there is none.
    blocks : int
        The larger of the two: either way the study ends with an answer.
    seconds : float
        Wall time of that many blocks.
    margin_ratio : float
        Effective margin as a ratio.
    arms, m_family : int
        Runs of a block, and contrasts of the family.
    """

    slices: int
    sd: float
    blocks_difference: int
    blocks_equivalence: int
    blocks: int
    seconds: float
    margin_ratio: float
    arms: int
    m_family: int


def cost_of_margin(
    components: VarianceComponents,
    margin: Margin,
    baseline_median: float,
    *,
    arms: int,
    m_family: int,
    cost_outer: float,
    cost_inner: float,
    alpha: float = 0.05,
    slices: int | None = None,
) -> StudyCost:
    """Plan a study from variance components of log values.

    Parameters
    ----------
    components : VarianceComponents
        Between and within deployments, of natural logs.
    margin : Margin
        Equivalence margin.
    baseline_median : float
        Typical baseline, in the response's unit, for the margin's floor.
    arms : int
        Runs of a block: treatments, baseline and twin.
    m_family : int
        Contrasts of the family.
    cost_outer, cost_inner : float
        Seconds that a fresh deployment costs beside its slices, and that one slice costs.
    alpha : float
        Family-wise error rate.
    slices : int, optional
        Fixed number of slices; the cheapest by default (Kalibera & Jones 2013, section 6.2).

    Returns
    -------
    StudyCost
    """
    many = best_slices(components, cost_outer, cost_inner) if slices is None else slices
    # two runs differ in a block, each with the variance of a fresh deployment
    sd = math.sqrt(2 * components.run_variance(many))
    ratio = margin.ratio(baseline_median)
    difference = blocks_for_difference(sd, math.log(ratio), alpha=alpha, m=m_family)
    equivalence = blocks_for_equivalence(sd, math.log(ratio), alpha=alpha, m=m_family)
    blocks = max(difference, equivalence)
    seconds = study_seconds(blocks, arms, cost_outer + many * cost_inner)
    return StudyCost(many, sd, difference, equivalence, blocks, seconds, ratio, arms, m_family)
