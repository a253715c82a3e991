"""The result of one contrast, as data: the same for paired and for unpaired runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial.vocabulary import Scale, Warning

__all__ = ["Comparison", "Design", "Scale", "Warning"]


Design = Literal["paired", "unpaired"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A treatment against a baseline."""

    # Paired by block: exact signed-rank test. Unpaired runs: exact Mann-Whitney test.
    design: Design
    # Values compared: complete blocks (the same number twice), or runs of each treatment
    n_treatment: int
    n_baseline: int
    scale: Scale  # of `estimate`, `ci_low`, `ci_high`, `margin_high` and `mde`
    estimate: float  # Hodges-Lehmann estimate: treatment/baseline, or treatment - baseline in the response's unit
    # Interval at 1 - alpha nominal
    ci_low: float
    ci_high: float
    # An end that equals "no effect" exactly and is rejected by the test (only with ties or zeros in the data)
    ci_low_open: bool
    ci_high_open: bool
    confidence: float  # that the interval achieves
    # Exact two-sided p-value, not corrected for the family. p <= alpha exactly where the interval excludes "no effect"
    # (`excludes_no_effect`), except for a provisional interval.
    p: float
    smallest_p: float  # the smallest p that so many values can give
    p_equivalence: float | None  # two one-sided tests against the margin; None without a margin
    # The effect and its interval as treatment/baseline, by the same exact test of the log ratios; None where a value is
    # not positive
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    # The same in the response's own unit, from the differences of the values themselves. It is no ratio times a
    # baseline: where that moves from session to session, what is added often does not.
    difference: float
    difference_low: float
    difference_high: float
    baseline_median: float  # median of the baseline, in the response's unit
    # One-sided test, in the direction of the estimate, that the effect is no larger than the margin
    p_material: float | None
    margin_high: float | None  # upper one of the effective equivalence bounds; the lower is its mirror image
    margin_relative: float | None  # the relative part as it was declared
    # The absolute floor in the response's unit where it is the larger part and decides. Both tests against the margin
    # are on the scale of the part that decides, whatever `scale` is: a floor on ratios, or a share on differences,
    # would depend on this study's own baseline.
    margin_floor: float | None
    # Cross-checks of a paired contrast; they only warn
    p_sign_flip: float | None
    p_paired_t: float | None
    # Standard deviation of the difference of two runs: of the block differences where paired, else sqrt(2) times the
    # pooled one; of the log ratios, or in the response's unit
    sd: float
    # Minimum detectable effect at power 0.8 and alpha/m_family: ratio - 1, or the response's unit. None below the
    # floor.
    mde: float | None
    # Blocks, or runs of each treatment, that would find an effect the size of the margin (power 0.8), or show
    # equivalence if there is no effect
    needed_difference: int | None
    needed_equivalence: int | None
    floor_n: int  # fewest blocks, or runs of each treatment, that can reach alpha in this family
    alpha: float  # nominal error rate
    m_family: int  # contrasts of the family
    method: str  # how the interval was made
    warnings: tuple[Warning, ...]  # what a reader must know
    jointly: bool = False  # whether they are corrected in a way that does not raise the floor with their number
    coarse: bool = False  # whether the interval was widened by the buckets of histograms

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
        """The value of `estimate` that means no effect."""
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
        null = self.no_effect
        below = self.ci_low > null or (self.ci_low_open and self.ci_low == null)
        above = self.ci_high < null or (self.ci_high_open and self.ci_high == null)
        return below or above

    @property
    def margin(self) -> float | None:
        """Effective margin: a ratio minus one, or the response's unit; None without one."""
        return None if self.margin_high is None else self.margin_high - self.no_effect

    def lies(self, where: Literal["within", "beyond"]) -> bool:
        """Whether the whole interval lies within the margin, or beyond it on one side."""
        if self.margin_high is None:
            return False
        high, low = self.margin_high, 1 / self.margin_high if self.scale == "ratio" else -self.margin_high
        if where == "within":
            return low < self.ci_low and self.ci_high < high
        return self.ci_low > high or self.ci_high < low

    def widened(self, treatment: float, baseline: float) -> Comparison:
        """The intervals with what the buckets of histograms leave open; those of a difference as they are.

        A quantile lies somewhere in its bucket, and not in the same place for both treatments: that error is the same
        in every run, so no number of runs takes it out, and no test sees it. Given is the width of each one's bucket as
        a share of the quantile.
        """
        if self.scale != "ratio" or not treatment + baseline > 0:
            return self
        low = self.ci_low * max(0.0, 1 - treatment) / (1 + baseline)
        high = self.ci_high * (1 + treatment) / (1 - baseline) if baseline < 1 else math.inf
        unknown = (treatment * self.estimate + baseline) * self.baseline_median
        return replace(
            self,
            ci_low=low,
            ci_high=high,
            ratio_low=low,
            ratio_high=high,
            ci_low_open=False,
            ci_high_open=False,
            difference_low=self.difference_low - unknown,
            difference_high=self.difference_high + unknown,
            coarse=True,
        )
