"""The result of one paired contrast, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshtrial.stats.warning import Warning

Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A treatment against a baseline, paired by block.

    Attributes
    ----------
    n : int
        Complete blocks.
    scale : {"ratio", "difference"}
        Scale of `estimate`, `ci_low`, `ci_high`, `margin_low`, `margin_high` and `mde`.
    estimate : float
        Hodges-Lehmann estimate: treatment/baseline, or treatment - baseline in the response's unit.
    ci_low, ci_high : float
        Interval at 1 - alpha nominal.
    ci_low_open, ci_high_open : bool
        An end that equals "no effect" exactly and is rejected by the test (only with ties or zeros in the data).
    confidence : float
        Confidence the interval actually achieves.
    p : float
        Exact two-sided signed-rank p-value, not corrected for the family. p <= alpha exactly where the interval
        excludes "no effect" (`excludes_no_effect`), except for a provisional interval.
    smallest_p : float
        The smallest p that n blocks can give.
    p_equivalence : float or None
        Two one-sided tests against the margin; None without a margin.
    difference, difference_low, difference_high : float
        The effect and its interval in the response's own unit, at the median baseline: on the ratio scale
        ``(ratio - 1) * baseline_median``, so that it never tells another story than the ratio.
    baseline_median : float
        Median of the baseline over the blocks, in the response's unit.
    margin_low, margin_high : float or None
        Effective equivalence bounds.
    p_sign_flip, p_paired_t : float
        Cross-checks; they only warn.
    sd : float
        Standard deviation of the block differences: of the log ratios (``sd_log``), or in the response's unit.
    mde : float or None
        Minimum detectable effect at power 0.8 and alpha/m_family: ratio - 1, or the response's unit. None below the
        floor.
    needed_difference, needed_equivalence : int or None
        Blocks that would find an effect the size of the margin (power 0.8), or show equivalence if there is no effect.
    floor_n : int
        Fewest blocks that can reach alpha in this family.
    alpha : float
        Nominal error rate.
    m_family : int
        Contrasts of the family.
    method : str
        How the interval was made.
    warnings : tuple of Warning
        What a reader must know.
    """

    n: int
    scale: Scale
    estimate: float
    ci_low: float
    ci_high: float
    ci_low_open: bool
    ci_high_open: bool
    confidence: float
    p: float
    smallest_p: float
    p_equivalence: float | None
    difference: float
    difference_low: float
    difference_high: float
    baseline_median: float
    margin_low: float | None
    margin_high: float | None
    p_sign_flip: float
    p_paired_t: float
    sd: float
    mde: float | None
    needed_difference: int | None
    needed_equivalence: int | None
    floor_n: int
    alpha: float
    m_family: int
    method: str
    warnings: tuple[Warning, ...]

    @property
    def sd_log(self) -> float | None:
        """Standard deviation of the log ratios; None on the difference scale."""
        return self.sd if self.scale == "ratio" else None

    @property
    def no_effect(self) -> float:
        """The value of `estimate` that means no effect."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def provisional(self) -> bool:
        """Whether there are too few blocks for the exact inference."""
        return self.n < self.floor_n

    @property
    def excludes_no_effect(self) -> bool:
        """Whether the interval leaves out "no effect", open ends counting as left out."""
        null = self.no_effect
        below = self.ci_low > null or (self.ci_low_open and self.ci_low == null)
        above = self.ci_high < null or (self.ci_high_open and self.ci_high == null)
        return below or above
