"""Equivalence against a margin that was declared before the first run (two one-sided tests, Schuirmann 1987).

Absence of a significant difference is never shown as sameness. "Equivalent" needs its own test: the effect is shown
to be smaller than the margin in both directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.signedrank import as_sample, signed_rank_p


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest change that nobody would act on.

    Attributes
    ----------
    relative : float
        Relative change, 0.05 for 5 %.
    floor : float or None
        Absolute change in the response's own unit, below which a relative change does not matter either
        (0.0001 s on a p50 of 0.0005 s is 20 %).

    Raises
    ------
    UsageError
        If a value is negative or both are zero.
    """

    relative: float
    floor: float | None = None

    def __post_init__(self) -> None:
        bad = not (math.isfinite(self.relative) and self.relative >= 0)
        bad = bad or (self.floor is not None and not (math.isfinite(self.floor) and self.floor >= 0))
        if bad or (self.relative == 0 and not self.floor):
            raise UsageError(
                f"a margin is a positive fraction and, optionally, a positive floor in the response's unit; "
                f"got relative={self.relative}, floor={self.floor}"
            )

    def ratio(self, baseline_median: float) -> float:
        """Upper bound of the ratio; the lower bound is its reciprocal, so swapping the arms changes nothing."""
        if not baseline_median > 0:
            raise UsageError(
                f"a ratio needs a positive baseline median, got {baseline_median}; use the difference scale"
            )
        return 1 + max(self.relative, (self.floor or 0.0) / baseline_median)

    def difference(self, baseline_median: float) -> float:
        """Largest difference in the response's unit; the bounds are minus and plus this.

        Raises
        ------
        UsageError
            If the baseline is zero and no floor was declared.
        """
        size = max(self.relative * abs(baseline_median), self.floor or 0.0)
        if not size > 0:
            raise UsageError(
                "the baseline is zero, so a relative margin means nothing: declare a floor in the response's unit"
            )
        return size

    def to_dict(self) -> dict[str, float | None]:
        """Plain form for a plan file."""
        return {"relative": self.relative, "floor": self.floor}


def equivalence_p(differences: ArrayLike, low: float, high: float, *, atol: float = 0.0) -> float:
    """p-value of "the centre lies outside (low, high)": the larger of two one-sided exact signed-rank tests.

    Parameters
    ----------
    differences : (n,) array_like
        One difference a block (log ratios for margins in ln).
    low, high : float
        The margins in the unit of the differences, low < high.
    atol : float
        Tolerance for ties.

    Returns
    -------
    float
        Small where the centre is shown to lie inside; at least 2^-n.

    Raises
    ------
    UsageError
        If the bounds are not in order, or the sample is empty or not finite.
    """
    if not low < high:
        raise UsageError(f"equivalence margins must be in order, got {low} and {high}")
    d = as_sample(differences)
    return max(signed_rank_p(d - low, "greater", atol), signed_rank_p(d - high, "less", atol))
