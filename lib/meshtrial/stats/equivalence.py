"""Equivalence against a margin that was declared before the first run (two one-sided tests, Schuirmann 1987).

Absence of a significant difference is never shown as sameness. "Equivalent" needs its own test: the effect is shown
to be smaller than the margin in both directions.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.signedrank import as_sample, signed_rank_p


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
