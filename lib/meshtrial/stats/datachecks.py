"""Checks of the measurements themselves: warm-up, the grain of a quantile, factors that should not vary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Warning
from meshtrial.stats.contrast import RESOLUTION, block_differences
from meshtrial.stats.intervals import hodges_lehmann
from meshtrial.stats.ranktests import as_sample
from meshtrial.vocabulary import COARSE_QUANTILE

_LEVEL = 0.01
_SMALLEST_CHANGE = 0.02


def warm_up(first: ArrayLike, second: ArrayLike) -> tuple[Warning, ...]:
    """First half of the measured time against the second, of the response in each run; positive.

    ``"warm-up"`` where they differ by at least 2 % at a level of 1 %.
    """
    a, b = as_sample(first, "first half"), as_sample(second, "second half")
    if len(a) != len(b):
        raise UsageError(f"every run has two halves, got {len(a)} first and {len(b)} second ones")
    d, atol = block_differences(b, a, "ratio")
    interval = hodges_lehmann(d, _LEVEL, atol=atol)
    change = math.expm1(interval.estimate)
    if interval.p > _LEVEL or abs(change) < _SMALLEST_CHANGE:
        return ()
    text = (
        f"the second half of a run reads {change:+.1%} against the first (p = {interval.p:.2g}): the system was still "
        "warming up; lengthen the warm-up"
    )
    return (Warning("warm-up", text),)


def coarse_quantile(
    resolution: float,
    value: float,
    relative_margin: float,
    what: str = "the quantile",
    finer: str = "use per-request data, or a finer histogram (fortio -r)",
) -> tuple[Warning, ...]:
    """A quantile that is known to a bucket only, against the margin that it is to be judged by, 0.05 for 5 %.

    The resolution is the width of the histogram's bucket that holds the quantile, or the step of the clock, in its
    unit; ``"coarse-quantile"`` where that is wider. Of another response than a quantile, ``what`` it is and what makes
    it ``finer``.
    """
    if not (resolution >= 0 and value > 0 and relative_margin > 0):
        raise UsageError(
            f"need resolution >= 0, value > 0 and margin > 0, got {resolution}, {value}, {relative_margin}"
        )
    if resolution <= relative_margin * value:
        return ()
    text = f"{what} is known to {resolution / value:.1%} only, the margin is {relative_margin:.1%}: {finer}"
    return (Warning(COARSE_QUANTILE, text),)


def repeated_values(values: ArrayLike, *, share: float = 0.5) -> tuple[Warning, ...]:
    """Values of different runs that repeat because the meter cannot tell them apart: fewer than a share are different.

    Nothing where all values are zero (a structural zero).
    """
    sample = np.sort(as_sample(values))
    tolerance = RESOLUTION * float(np.abs(sample).max())
    different = 1 + int((np.diff(sample) > tolerance).sum())
    if not sample.any() or different >= share * len(sample):
        return ()
    text = f"{len(sample)} runs show {different} different values: the meter is too coarse for ranks; use a finer one"
    return (Warning("repeated-values", text),)


def varying_factors(groups: Sequence[Hashable], factors: Mapping[str, Sequence[Hashable]]) -> tuple[Warning, ...]:
    """Factors that should be the same for all runs of a group, and are not (image, node, version).

    The group of each run is its treatment, or its treatment and load; a factor has a value of each run.
    """
    warnings = []
    for factor, levels in factors.items():
        if len(levels) != len(groups):
            raise UsageError(f"factor {factor!r} has {len(levels)} values for {len(groups)} runs")
        seen: dict[Hashable, Counter[Hashable]] = {}
        for group, level in zip(groups, levels, strict=True):
            seen.setdefault(group, Counter())[level] += 1
        for group, counts in seen.items():
            if len(counts) > 1:
                listed = ", ".join(f"{level} ({n})" for level, n in counts.items())
                text = (
                    f"{factor} varies inside {group}: {listed}; its effect is mixed with the noise: fix it, or "
                    "make it a treatment"
                )
                warnings.append(Warning("varying-factor", text))
    return tuple(warnings)
