"""The verdict table, in its order. There is no verdict "no difference": what was not shown is `inconclusive`.

One reading is needed that the table leaves open. A shaken A/A contrast makes the others `unstable` unless their whole
interval lies beyond its estimate: a threefold latency stays `slower` when baseline and twin differ by 12 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshtrial.stats.comparison import Comparison
from meshtrial.stats.noise import NoiseFloor, effect_size
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence
from meshtrial.vocabulary import BELOW_MARGIN, MATERIAL, VerdictLabel, directions

# Of ten blocks whose differences wander (AR(1), rho 0.8), 1 % have a mean beyond so many of their standard deviations;
# of eight 2 %, and with rho 0.9 6 to 8 %: a twentyfold latency stays one.
DEPENDENT_SDS = 4.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said of one contrast."""

    label: VerdictLabel
    # Of a difference `"material"` (shown to be larger than the margin), `"below margin"` (equivalence is shown too)
    # or nothing; else what the verdict lacks to be conclusive
    qualifier: str
    # Blocks (or runs of each treatment) of a new study that would probably settle an open contrast. Never blocks to be
    # added to this one: adding until it is significant has 8 to 11 % false positives.
    blocks: int | None = None


def decide(
    comparison: Comparison | None,  # none where too few blocks are left to compare
    *,
    # Each corrected for the family (Holm, or Benjamini-Hochberg for what is exploratory)
    p_adjusted: float | None,
    p_equivalence_adjusted: float | None = None,
    p_material_adjusted: float | None = None,
    noise: NoiseFloor | None = None,  # of the same response and load
    # Whether block differences were found to depend on each other, which no exact test survives
    dependent: bool = False,
    kind: str = "latency",  # of the response; chooses the words for the direction
    stopped: VerdictLabel | None = None,  # invalid or saturated, where one of the two is
) -> Verdict:
    """Apply the verdict table to one contrast."""
    if stopped is not None:
        return Verdict(stopped, "")
    if comparison is None or p_adjusted is None:
        return Verdict(VerdictLabel.INVALID, "")  # fewer than 2 complete blocks are left
    c = comparison
    if c.provisional:
        return Verdict(VerdictLabel.INCONCLUSIVE, f"at least {c.floor_n} {c.unit}", c.floor_n)
    if dependent and _effect(c) <= DEPENDENT_SDS * c.effect.sd:
        return Verdict(VerdictLabel.DEPENDENT, "")
    if noise is not None and noise.noise_exceeds_margin(c.margin) and not _beyond(c, noise.floor):
        return _open(VerdictLabel.UNSTABLE, c)

    different, equivalent, material = (
        p is not None and p <= c.alpha for p in (p_adjusted, p_equivalence_adjusted, p_material_adjusted)
    )
    if c.coarse and (different or equivalent):
        # No test sees what buckets hide, so the whole interval must say the same.
        if not (c.excludes_no_effect if different else c.lies("within")):
            return Verdict(VerdictLabel.INCONCLUSIVE, "the buckets are too coarse to tell")
        equivalent, material = equivalent and c.lies("within"), material and c.lies("beyond")
    if different:
        up, down = directions(kind)
        qualifier = MATERIAL if material else BELOW_MARGIN if equivalent else ""
        return Verdict(up if c.effect.estimate >= c.no_effect else down, qualifier)
    return Verdict(VerdictLabel.EQUIVALENT, "") if equivalent else _open(VerdictLabel.INCONCLUSIVE, c)


def _open(label: VerdictLabel, c: Comparison) -> Verdict:
    """What is not settled, with the size of a new study that would probably settle it."""
    blocks = blocks_of_a_new_study(c)
    qualifier = "" if blocks is None else f"a new study of about {block_count(blocks)} {c.unit}"
    return Verdict(label, qualifier, blocks)


def blocks_of_a_new_study(c: Comparison) -> int | None:
    """Blocks with which a new study would probably settle a contrast; None without a margin.

    First what the plan would ask for: enough to find an effect of the margin's size, and to show equivalence if there
    is none. Where that many were run, the effect lies somewhere between: then the cheaper of the two with the
    estimate as truth.
    """
    if c.against is None:
        return None
    planned = max(c.against.needed_difference, c.against.needed_equivalence, c.floor_n)
    if planned > c.n:
        return planned
    half = math.log(c.against.high) if c.scale == "ratio" else c.against.high
    sd, size = c.effect.sd, _effect(c)
    ways = []
    if size > 0:
        ways.append(blocks_for_difference(sd, size, alpha=c.alpha, m=c.m_family, jointly=c.jointly))
    if size < half:
        ways.append(blocks_for_equivalence(sd, half, effect=size, alpha=c.alpha, m=c.m_family))
    return max(c.n + 1, min(ways))


def _effect(c: Comparison) -> float:
    """Size of the estimate on the scale of the analysis."""
    if c.scale == "difference":
        return abs(c.effect.estimate)
    # Of a baseline whose runs rank worst the ratio is beyond every number, towards zero.
    return abs(math.log(c.effect.estimate)) if c.effect.estimate > 0 else math.inf


def _beyond(c: Comparison, size: float) -> bool:
    """Whether the whole interval lies on one side, further from "no effect" than `size`."""
    effect = c.effect
    if effect.low <= c.no_effect <= effect.high:
        return False
    return min(effect_size(effect.low, c.scale), effect_size(effect.high, c.scale)) > size


def block_count(n: int) -> str:
    """Blocks of a new study as they are written: beyond 1000 the number says nothing."""
    return str(n) if n < 1000 else "1000 or more"
