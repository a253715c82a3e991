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
from meshtrial.vocabulary import BELOW_MARGIN, MATERIAL, Word, directions, sentence

# Of ten blocks whose differences wander (AR(1), rho 0.8), 1 % have a mean beyond so many of their standard deviations;
# of eight 2 %, and with rho 0.9 6 to 8 %: a twentyfold latency stays one.
DEPENDENT_SDS = 4.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said of one contrast."""

    label: Word
    # Of a difference `"material"` (shown to be larger than the margin), `"below margin"` (equivalence is shown too)
    # or nothing; else what the verdict lacks to be conclusive
    qualifier: str
    reason: str  # the rule that decided, with its numbers
    # Blocks (or runs of each treatment) of a new study that would probably settle an open contrast. Never blocks to be
    # added to this one: adding until it is significant has 8 to 11 % false positives.
    blocks: int | None = None
    mde: float | None = None  # minimum detectable effect, to be printed beside an inconclusive verdict

    @property
    def text(self) -> str:
        """What a report prints."""
        return sentence(self.label, self.qualifier)


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
    # Why the gates or proofs failed, or that the treatment did not keep up with the load
    invalid: str | None = None,
    saturated: str | None = None,
) -> Verdict:
    """Apply the verdict table to one contrast."""
    if invalid is not None:
        return Verdict(Word.INVALID, "", invalid)
    if saturated is not None:
        return Verdict(Word.SATURATED, "", saturated)
    if comparison is None or p_adjusted is None:
        return Verdict(Word.INVALID, "", "fewer than 2 complete blocks are left")
    c = comparison
    if c.provisional:
        reason = f"with n = {c.n} the exact test cannot go below p = {c.smallest_p:.3g}"
        return Verdict(Word.INCONCLUSIVE, f"at least {c.floor_n} {c.unit}", reason, c.floor_n)
    margin = c.margin
    if dependent and _effect(c) <= DEPENDENT_SDS * c.sd:
        reason = "block differences depend on each other, so the exact test's p-value is too small"
        return Verdict(Word.DEPENDENT, "", reason, mde=c.mde)
    if noise is not None and noise.shaken(margin) and not _beyond(c, noise.floor):
        size = "" if margin is None else f", beside a margin of {_size(margin, c)}"
        return _open(Word.UNSTABLE, f"baseline and twin differ by {_size(noise.floor, c)} (p = {noise.p:.2g}){size}", c)

    different, equivalent, material = (
        p is not None and p <= c.alpha for p in (p_adjusted, p_equivalence_adjusted, p_material_adjusted)
    )
    if c.coarse and (different or equivalent):
        # No test sees what buckets hide, so the whole interval must say the same.
        if not (c.excludes_no_effect if different else c.lies("within")):
            reason = "the interval, with the buckets of its quantiles, holds another answer too"
            return Verdict(Word.INCONCLUSIVE, "the buckets are too coarse to tell", reason, mde=c.mde)
        equivalent, material = equivalent and c.lies("within"), material and c.lies("beyond")
    if different:
        up, down = directions(kind)
        qualifier = MATERIAL if material else BELOW_MARGIN if equivalent else ""
        label = up if c.estimate >= c.no_effect else down
        return Verdict(label, qualifier, f"adjusted p = {p_adjusted:.3g}", mde=c.mde)
    if equivalent:
        reason = f"adjusted equivalence p = {p_equivalence_adjusted:.3g} within the margin {_size(margin or 0.0, c)}"
        return Verdict(Word.EQUIVALENT, "", reason, mde=c.mde)
    return _open(Word.INCONCLUSIVE, f"adjusted p = {p_adjusted:.3g}", c)


def _open(label: Word, reason: str, c: Comparison) -> Verdict:
    """What is not settled, with the size of a new study that would probably settle it."""
    blocks = blocks_of_a_new_study(c)
    qualifier = "" if blocks is None else f"a new study of about {block_count(blocks)} {c.unit}"
    return Verdict(label, qualifier, reason, blocks, c.mde)


def blocks_of_a_new_study(c: Comparison) -> int | None:
    """Blocks with which a new study would probably settle a contrast; None without a margin.

    First what the plan would ask for: enough to find an effect of the margin's size, and to show equivalence if there
    is none. Where that many were run, the effect lies somewhere between: then the cheaper of the two with the
    estimate as truth.
    """
    if c.margin_high is None or c.needed_difference is None or c.needed_equivalence is None:
        return None
    planned = max(c.needed_difference, c.needed_equivalence, c.floor_n)
    if planned > c.n:
        return planned
    ratio = c.scale == "ratio"
    half = math.log(c.margin_high) if ratio else c.margin_high
    effect = _effect(c)
    ways = []
    if effect > 0:
        ways.append(blocks_for_difference(c.sd, effect, alpha=c.alpha, m=c.m_family, jointly=c.jointly))
    if effect < half:
        ways.append(blocks_for_equivalence(c.sd, half, effect=effect, alpha=c.alpha, m=c.m_family))
    return max(c.n + 1, min(ways))


def _effect(c: Comparison) -> float:
    """Size of the estimate on the scale of the analysis."""
    if c.scale == "difference":
        return abs(c.estimate)
    # Of a baseline whose runs rank worst the ratio is beyond every number, towards zero.
    return abs(math.log(c.estimate)) if c.estimate > 0 else math.inf


def _beyond(c: Comparison, size: float) -> bool:
    """Whether the whole interval lies on one side, further from "no effect" than `size`."""
    if c.ci_low <= c.no_effect <= c.ci_high:
        return False
    return min(effect_size(c.ci_low, c.scale), effect_size(c.ci_high, c.scale)) > size


def _size(value: float, c: Comparison) -> str:
    return f"{value:.1%}" if c.scale == "ratio" else f"{value:.3g}"


def block_count(n: int) -> str:
    """Blocks of a new study as they are written: beyond 1000 the number says nothing."""
    return str(n) if n < 1000 else "1000 or more"
