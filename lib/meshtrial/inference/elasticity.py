"""Whether what treatments add grows with the level of the block: not at all (0), or in proportion to it (1).

A constant cost is best quoted as an amount and a proportional one as a ratio. The level is measured on treatments in
neither side of a contrast, because the noise of its own sides would make the two depend on each other.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from meshtrial import stats
from meshtrial.inference.values import included_blocks
from meshtrial.records.dataset import StudyData

# Smaller effects are mostly noise, and their logarithms vary for that reason alone.
_LEAST_RATIO = 1.5
# A wider interval cannot tell a constant cost from a proportional one.
_WIDEST = 0.5


@dataclass(frozen=True)
class Elasticity:
    """The slope of ln(added amount) on ln(level of the block), over the blocks of one response at one load."""

    slope: float
    low: float
    high: float
    contrasts: int  # treatments whose added amounts were averaged in each block
    blocks: int


def elasticity(data: StudyData, load: str, response: str) -> Elasticity | None:
    """Return the elasticity of what a study's treatments add to its baseline, with a Student-t interval.

    None with fewer than eight complete blocks, without a treatment beyond 1.5 times its baseline, or if the interval is
    wider than plus and minus 0.5. Noise in the measured level draws the slope towards 0.
    """
    study = data.plan.study
    excluded, base = data.inclusions[load].excluded, study.baseline.name
    names = [treatment.name for treatment in study.treatments if treatment.name not in excluded]
    complete = included_blocks(data, load).complete(names, response)
    values = complete.values(names, response)
    if base not in values or len(complete.blocks) < stats.FEWEST_BLOCKS or min(v.min() for v in values.values()) <= 0:
        return None
    twin = "" if study.twin is None else study.twin.name
    logs = {name: np.log(own) - np.log(own).mean() for name, own in values.items()}
    added, levels = [], []
    for name in names:
        amount = values[name] - values[base]
        others = [logs[other] for other in names if other not in (name, base)]
        typical = np.median(values[name] / values[base])
        if name not in (base, twin) and others and amount.min() > 0 and typical >= _LEAST_RATIO:
            added.append(np.log(amount) - np.log(amount).mean())
            levels.append(np.mean(others, axis=0))
    if not added:
        return None
    y, x = np.mean(added, axis=0), np.mean(levels, axis=0)
    n, spread = len(y), float(x @ x)
    if not spread:
        return None
    slope = float(x @ y) / spread
    rest = y - slope * x
    half = float(special.stdtrit(n - 2, 1 - study.alpha / 2)) * float(np.sqrt(rest @ rest / (n - 2) / spread))
    return Elasticity(slope, slope - half, slope + half, len(added), n) if half <= _WIDEST else None
