"""The verdict table, in its order. There is no verdict "no difference": what was not shown is `inconclusive`.

**Noise floor.** The baseline and its twin ``none-aa`` are the same treatment, so their contrast shows noise only. The
floor is the size of that apparent effect, |Hodges-Lehmann estimate|, as a ratio minus one or in the response's unit. By
chance it exceeds the margin in a fifth to a third of healthy studies. Therefore a test, not the estimate, makes the
other contrasts `unstable` (`NoiseFloor.noise_exceeds_margin`). A contrast whose whole interval lies beyond the floor
keeps its verdict: a threefold latency stays `slower` when baseline and twin differ by 12 %.
"""

import math
from dataclasses import dataclass

from meshtrial.stats.contrast import Comparison
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence
from meshtrial.vocabulary import BELOW_MARGIN, MATERIAL, VerdictLabel, directions

# Stricter than the usual 5 %, because this test is made beside every other one of the study.
SHAKEN_P = 0.01


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What the study's own A/A contrast shows."""

    floor: float  # size of the apparent effect: max(ratio, 1/ratio) - 1, or |difference| in the response's unit
    # Smallest and largest effect inside the A/A interval, in the same unit; low is 0 if the interval includes none
    low: float
    upper: float
    p: float  # exact p-value of the A/A contrast
    level: float = SHAKEN_P  # level of the A/A test: 1 %, or the smallest p-value of six or seven blocks

    def noise_exceeds_margin(self, margin: float | None) -> bool:
        """Whether the A/A contrast shows more noise than the margin allows (a ratio minus one, or in the unit).

        Baseline and twin are equal, so one of two things is improbable: their interval lies wholly beyond the margin,
        or their test rejects at its level while effects beyond the margin are not excluded.
        """
        beyond = margin is not None and self.low > margin
        within = margin is not None and self.upper <= margin
        return beyond or (self.p <= self.level and not within)


def noise_floor(twin: Comparison) -> NoiseFloor:
    """Return the noise floor from the paired contrast of the twin with the baseline."""
    effect = twin.effect
    size, *ends = (effect_size(value, twin.scale) for value in (effect.estimate, effect.low, effect.high))
    low = min(ends) if twin.excludes_no_effect else 0.0
    # Below the exact test's floor the interval is model-based and decides alone.
    level = SHAKEN_P if twin.provisional else max(SHAKEN_P, twin.smallest_p)
    return NoiseFloor(size, low, max(ends), effect.p, level)


def effect_size(value: float, scale: str) -> float:
    """Return the distance from "no effect": max(r, 1/r) - 1 for a ratio, |x| for a difference."""
    if scale == "difference":
        return abs(value)
    if value <= 0:
        return math.inf
    return max(value, 1 / value) - 1


# Larger effects keep their verdict. The mean of block differences that are autocorrelated (AR(1), rho 0.8) exceeds this
# many standard deviations in 1 % of studies of ten blocks and 2 % of eight. With rho 0.9, it does so in 6 to 8 %.
DEPENDENT_SDS = 4.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one contrast."""

    label: VerdictLabel
    # For a difference `"material"` (shown to exceed the margin), `"below margin"` (equivalence is shown too) or
    # nothing. For `saturated` and `invalid` the side, if it is not the treatment's. For others, what the verdict lacks.
    qualifier: str
    # Units (blocks, sessions, or runs of each treatment) of a new study that would probably settle an open contrast.
    # They are never to be added to this study: adding blocks until a result is significant gives 8 to 11 % false
    # positives.
    blocks: int | None = None


def decide(
    comparison: Comparison | None,  # None if fewer than 2 complete blocks remain
    *,
    # Each corrected for the family (Holm, or Benjamini-Hochberg for what is exploratory)
    p_adjusted: float | None,
    p_equivalence_adjusted: float | None = None,
    p_material_adjusted: float | None = None,
    noise: NoiseFloor | None = None,  # of the same response and load
    # Whether block differences depend on each other, which invalidates every exact test
    dependent: bool = False,
    kind: str = "latency",  # of the response; chooses the words for the direction
    stopped: VerdictLabel | None = None,  # the verdict of an excluded treatment or baseline
    stopped_side: str = "",  # side that stopped: `THE_BASELINE`, `BOTH`, or nothing for the treatment
) -> Verdict:
    """Apply the verdict table to one contrast."""
    if stopped is not None:
        return Verdict(stopped, stopped_side)
    if comparison is None or p_adjusted is None:
        return Verdict(VerdictLabel.INVALID, "")
    c = comparison
    if c.provisional:
        return Verdict(VerdictLabel.INCONCLUSIVE, f"at least {c.floor_n} {c.counted}", c.floor_n)
    if dependent and _effect(c) <= DEPENDENT_SDS * c.effect.sd:
        return Verdict(VerdictLabel.DEPENDENT, "")
    if noise is not None and noise.noise_exceeds_margin(c.margin) and not _beyond(c, noise.floor):
        return _open(VerdictLabel.UNSTABLE, c)

    different, equivalent, material = (
        p is not None and p <= c.alpha for p in (p_adjusted, p_equivalence_adjusted, p_material_adjusted)
    )
    if c.coarse and (different or equivalent):
        # No test accounts for the buckets, so the whole widened interval must agree.
        if not (c.excludes_no_effect if different else c.interval_is("within")):
            return Verdict(VerdictLabel.INCONCLUSIVE, "the buckets are too coarse to tell")
        equivalent, material = equivalent and c.interval_is("within"), material and c.interval_is("beyond")
    if different:
        up, down = directions(kind)
        qualifier = MATERIAL if material else BELOW_MARGIN if equivalent else ""
        return Verdict(up if c.effect.estimate >= c.no_effect else down, qualifier)
    return Verdict(VerdictLabel.EQUIVALENT, "") if equivalent else _open(VerdictLabel.INCONCLUSIVE, c)


def _open(label: VerdictLabel, c: Comparison) -> Verdict:
    """Return an open verdict with the size of a new study that would probably settle it."""
    blocks = blocks_of_a_new_study(c)
    qualifier = "" if blocks is None else f"a new study of {block_count(blocks)} {c.counted}"
    return Verdict(label, qualifier, blocks)


def blocks_of_a_new_study(c: Comparison) -> int | None:
    """Return the number of blocks with which a new study would probably settle a contrast; None without a margin.

    First, the number that a plan would ask for: enough to find an effect of the margin's size, and to show equivalence
    if there is none. If this study had that many, the effect lies in between; then the smaller of the two numbers with
    the estimate taken as true. An estimate whose interval includes "no effect" gives no such number: if nothing
    differs, it would lie anywhere between 17 and 4,000 blocks (simulated, 6 blocks).
    """
    if c.against is None or c.against.needed_difference is None or c.against.needed_equivalence is None:
        return None
    planned = max(c.against.needed_difference, c.against.needed_equivalence, c.floor_n)
    if planned > c.n:
        return planned
    half = math.log(c.against.high) if c.scale == "ratio" else c.against.high
    sd, size = c.effect.planned_sd, _effect(c)
    ways = []
    if size > 0 and c.excludes_no_effect:
        ways.append(blocks_for_difference(sd, size, alpha=c.alpha, m=c.m_family, jointly=c.jointly))
    if size < half:
        ways.append(blocks_for_equivalence(sd, half, effect=size, alpha=c.alpha, m=c.m_family))
    return max(c.n + 1, min(ways)) if ways else None


def _effect(c: Comparison) -> float:
    """Return the size of the estimate on the scale of the analysis."""
    if c.scale == "difference":
        return abs(c.effect.estimate)
    # If runs of the baseline rank worst, the ratio tends to 0.
    return abs(math.log(c.effect.estimate)) if c.effect.estimate > 0 else math.inf


def _beyond(c: Comparison, size: float) -> bool:
    """Whether the whole interval lies on one side, further from "no effect" than `size`."""
    ends = c.effect.low, c.effect.high
    return not ends[0] <= c.no_effect <= ends[1] and min(effect_size(end, c.scale) for end in ends) > size


def block_count(n: int) -> str:
    """Return "about n": beyond 20 with one significant digit, because an estimated noise gives no more."""
    rounded = n if n <= 20 else int(float(f"{n:.1g}"))
    return f"about {rounded}" if rounded < 1000 else "1000 or more"
