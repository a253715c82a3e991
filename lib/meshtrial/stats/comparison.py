"""The result of one contrast, as data: the same for paired and for unpaired runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial.vocabulary import Scale, Warning

__all__ = ["AgainstMargin", "Comparison", "Design", "Effect", "Scale", "Warning"]


Design = Literal["paired", "unpaired"]


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect by one exact test: treatment/baseline, or treatment - baseline in the response's unit."""

    estimate: float  # Hodges-Lehmann
    # Interval at 1 - alpha nominal
    low: float
    high: float
    confidence: float  # that the interval achieves
    # Exact two-sided p-value, not corrected for the family. p <= alpha exactly where the interval excludes "no effect",
    # except for a provisional interval.
    p: float
    # Standard deviation of the difference of two runs: of the block differences where paired, else sqrt(2) times the
    # pooled one; of the log ratios, or in the response's unit
    sd: float
    # An end that equals "no effect" exactly and is rejected by the test (only with ties or zeros in the data)
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class AgainstMargin:
    """Both tests against the margin, and the size of a study for each of them."""

    high: float  # upper one of the effective equivalence bounds, as the effect is; the lower is its mirror image
    relative: float  # the relative part as it was declared
    # The absolute floor in the response's unit where it is the larger part and decides. Both tests against the margin
    # are on the scale of the part that decides, whatever that of the effect is: a floor on ratios, or a share on
    # differences, would depend on this study's own baseline.
    floor: float | None
    p_equivalence: float  # two one-sided tests
    p_material: float  # one-sided, in the direction of the estimate, that the effect is no larger than the margin
    # Blocks, or runs of each treatment, that would find an effect the size of the margin (power 0.8), or show
    # equivalence if there is no effect
    needed_difference: int
    needed_equivalence: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A treatment against a baseline."""

    # Paired by block: exact signed-rank test. Unpaired runs: exact Mann-Whitney test.
    design: Design
    # Values compared: complete blocks (the same number twice), or runs of each treatment
    n_treatment: int
    n_baseline: int
    scale: Scale  # of the effect that carries the verdict, of its margin and of `mde`
    ratio: Effect | None  # by the test of the log ratios; None where a value is not positive
    # By the test of the differences of the values themselves. It is no ratio times a baseline: where that moves from
    # session to session, what is added often does not.
    difference: Effect
    baseline_median: float  # in the response's unit
    against: AgainstMargin | None  # None without a margin
    smallest_p: float  # the smallest p that so many values can give
    floor_n: int  # fewest blocks, or runs of each treatment, that can reach alpha in this family
    # Minimum detectable effect at power 0.8 and alpha/m_family: ratio - 1, or the response's unit. None below the
    # floor.
    mde: float | None
    alpha: float  # nominal error rate
    m_family: int  # contrasts of the family
    jointly: bool  # whether they are corrected in a way that does not raise the floor with their number
    method: str  # how the interval was made
    warnings: tuple[Warning, ...] = ()  # what a reader must know
    # Cross-checks of a paired contrast; they only warn
    p_sign_flip: float | None = None
    p_paired_t: float | None = None
    coarse: bool = False  # whether the interval was widened by the buckets of histograms

    @property
    def effect(self) -> Effect:
        """The effect that carries the verdict."""
        return self.ratio if self.scale == "ratio" and self.ratio else self.difference

    @property
    def n(self) -> int:
        """Complete blocks, or runs of the smaller sample."""
        return min(self.n_treatment, self.n_baseline)

    @property
    def unit(self) -> str:
        """What `n` counts, in words."""
        return "blocks" if self.design == "paired" else "runs of each treatment"

    @property
    def no_effect(self) -> float:
        """The value of the effect that means none."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def m_floor(self) -> int:
        """By how many contrasts the correction divides the error rate at the least extreme."""
        return 1 if self.jointly else self.m_family

    @property
    def provisional(self) -> bool:
        """Whether there are too few values for the exact inference."""
        return self.smallest_p > self.alpha / self.m_floor

    @property
    def excludes_no_effect(self) -> bool:
        """Whether "no effect" lies outside the interval, an open end counting as outside."""
        null, effect = self.no_effect, self.effect
        below = effect.low > null or (effect.low_open and effect.low == null)
        above = effect.high < null or (effect.high_open and effect.high == null)
        return below or above

    @property
    def margin(self) -> float | None:
        """Effective margin: a ratio minus one, or the response's unit; None without one."""
        return None if self.against is None else self.against.high - self.no_effect

    def lies(self, where: Literal["within", "beyond"]) -> bool:
        """Whether the whole interval lies within the margin, or beyond it on one side."""
        if self.against is None:
            return False
        effect, high = self.effect, self.against.high
        low = 1 / high if self.scale == "ratio" else -high
        if where == "within":
            return low < effect.low and effect.high < high
        return effect.low > high or effect.high < low

    def widened(self, treatment: float, baseline: float) -> Comparison:
        """The intervals with what the buckets of histograms leave open; those of a difference as they are.

        A quantile lies somewhere in its bucket, and not in the same place for both treatments: that error is the same
        in every run, so no number of runs takes it out, and no test sees it. Given is the width of each one's bucket as
        a share of the quantile.
        """
        ratio, difference = self.ratio, self.difference
        if self.scale != "ratio" or ratio is None or not treatment + baseline > 0:
            return self
        low = ratio.low * max(0.0, 1 - treatment) / (1 + baseline)
        high = ratio.high * (1 + treatment) / (1 - baseline) if baseline < 1 else math.inf
        unknown = (treatment * ratio.estimate + baseline) * self.baseline_median
        return replace(
            self,
            ratio=replace(ratio, low=low, high=high, low_open=False, high_open=False),
            difference=replace(difference, low=difference.low - unknown, high=difference.high + unknown),
            coarse=True,
        )
