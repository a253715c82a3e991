"""What a stopping rule may know of a running study, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from meshtrial.stats.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Progress:
    """What a rule may know of a running study.

    Attributes
    ----------
    run : int
        Blocks that were run.
    complete : int
        Blocks that are complete for every treatment.
    half_widths : mapping of str to float
        Relative half-width of every primary interval (`half_width`), by contrast; for the precision rule.
    conclusive : bool
        Whether every primary contrast is settled at the level of the present look; for two looks.
    """

    run: int
    complete: int
    half_widths: Mapping[str, float] = field(default_factory=dict)
    conclusive: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Go on or stop.

    Attributes
    ----------
    stop : bool
        Whether no further block is run.
    alpha : float
        Error rate of the analysis at this point: that of the final one where `stop`, of the interim look where not.
    reason : str
        Why, with the numbers.
    """

    stop: bool
    alpha: float
    reason: str


def half_width(comparison: Comparison) -> float:
    """Half-width of an interval: relative, sqrt(high/low) - 1, or in the response's unit on the difference scale.

    Infinite below the floor: a provisional interval stops nothing.
    """
    c = comparison
    if c.provisional:
        return math.inf
    if c.scale == "ratio":
        return math.sqrt(c.ci_high / c.ci_low) - 1
    return (c.ci_high - c.ci_low) / 2
