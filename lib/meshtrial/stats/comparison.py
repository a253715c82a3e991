"""The result of one contrast, the same for paired and for unpaired runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial.vocabulary import Scale, Unit, Warning

__all__ = ["AgainstMargin", "Comparison", "Design", "Effect", "Scale", "Unit", "Warning"]


Design = Literal["paired", "unpaired"]


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect with its exact test: treatment/baseline, or treatment - baseline in the response's unit."""

    estimate: float  # Hodges-Lehmann
    # Interval at 1 - alpha nominal
    low: float
    high: float
    confidence: float  # achieved by the interval
    # Exact two-sided p-value, not corrected for the family. Unless the interval is provisional, it excludes "no effect"
    # exactly where p <= alpha.
    p: float
    # Standard deviation of the difference of two runs, of log ratios or in the response's unit: paired, that of the
    # block differences; unpaired, sqrt(2) times the pooled one
    sd: float
    # Its upper confidence limit (70 %), with which new studies are planned: plans made with the estimate itself keep
    # their power in half of the cases only
    planned_sd: float
    # An end that equals "no effect" exactly and is rejected by the test (only with ties or zeros in the data)
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class AgainstMargin:
    """Both tests against the margin, and the size of a study that each of them needs."""

    high: float  # upper equivalence bound, on the effect's scale; the lower one is its mirror image
    relative: float  # the relative part, as declared
    # The absolute floor in the response's unit, if it is larger than the relative part and therefore decides. Both
    # tests use the scale of the deciding part, because a floor as a ratio, or a share as a difference, would depend on
    # this study's own baseline.
    floor: float | None
    p_equivalence: float  # two one-sided tests
    p_material: float  # one-sided, in the direction of the estimate: the effect is no larger than the margin
    # Blocks, or runs of each treatment, that find an effect of the margin's size with a power of 0.8, or that show
    # equivalence if there is no effect; planned with `Effect.planned_sd`. None if runs rank worst: no formula accounts
    # for such failures, and a plan without them has half of the promised power.
    needed_difference: int | None
    needed_equivalence: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A treatment compared with a baseline."""

    # Paired by block: exact signed-rank test. Unpaired: exact Mann-Whitney test.
    design: Design
    unit: Unit
    # Values compared: complete blocks or sessions (the same number twice), or runs of each treatment
    n_treatment: int
    n_baseline: int
    scale: Scale  # of the effect that carries the verdict, of its margin and of `mde`
    ratio: Effect | None  # tested as log ratios; None if a value is not positive
    # Tested as differences of the values themselves; it is not the ratio times the baseline's median
    difference: Effect
    baseline_median: float  # in the response's unit
    against: AgainstMargin | None  # None without a margin
    smallest_p: float  # the smallest p-value that this number of values can give
    floor_n: int  # fewest units that can reach alpha in this family
    # Minimum detectable effect at power 0.8, alpha/m_family and `Effect.planned_sd`: ratio - 1, or in the response's
    # unit. None below the floor, and if runs rank worst.
    mde: float | None
    alpha: float  # nominal error rate
    m_family: int  # number of contrasts in the family
    jointly: bool  # whether the correction leaves the floor of one contrast unchanged, as max-T does
    method: str  # how the interval was computed
    warnings: tuple[Warning, ...] = ()
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
        """Number of complete blocks or sessions, or of runs of the smaller sample."""
        return min(self.n_treatment, self.n_baseline)

    @property
    def counted(self) -> str:
        """Name of what `n` counts."""
        return "runs of each treatment" if self.unit == "run" else f"{self.unit}s"

    @property
    def no_effect(self) -> float:
        """The value of the effect that means "no effect"."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def m_floor(self) -> int:
        """Number by which the correction divides alpha for the most extreme contrast."""
        return 1 if self.jointly else self.m_family

    @property
    def provisional(self) -> bool:
        """Whether there are too few values for exact inference."""
        return self.smallest_p > self.alpha / self.m_floor

    @property
    def excludes_no_effect(self) -> bool:
        """Whether "no effect" lies outside the interval; an open end counts as outside."""
        null, effect = self.no_effect, self.effect
        below = effect.low > null or (effect.low_open and effect.low == null)
        above = effect.high < null or (effect.high_open and effect.high == null)
        return below or above

    @property
    def margin(self) -> float | None:
        """Effective margin: a ratio minus one, or in the response's unit; None without one."""
        return None if self.against is None else self.against.high - self.no_effect

    def interval_is(self, where: Literal["within", "beyond"]) -> bool:
        """Whether the whole interval lies within the margin, or beyond it on one side; False without a margin."""
        if self.against is None:
            return False
        effect, high = self.effect, self.against.high
        low = 1 / high if self.scale == "ratio" else -high
        if where == "within":
            return low < effect.low and effect.high < high
        return effect.low > high or effect.high < low

    def widened(self, treatment: float, baseline: float) -> Comparison:
        """Return the comparison with its ratio interval widened by the bucket widths of histograms.

        A quantile lies somewhere in its bucket, and its position there is the same in every run. No number of runs
        removes that error, and no test detects it. `treatment` and `baseline` are the widths of the two buckets as
        shares of the quantiles. A comparison on the difference scale is returned unchanged.
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
