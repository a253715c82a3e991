"""The first thing said: the smallest p that so many runs can give, and what would lower it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshtrial import stats
from meshtrial.compare.runs import Sample


def smallest_p_of(sample: Sample, treatment: str) -> float:
    """The smallest possible p of one contrast, uncorrected."""
    if sample.paired:
        return stats.smallest_p(len(sample.blocks))
    return stats.smallest_p_unpaired(len(sample.arms[sample.baseline]), len(sample.arms[treatment]))


def limit_sentences(sample: Sample, family: Sequence[str], alpha: float) -> list[str]:
    """The floor of every contrast, one sentence for those of equal size.

    Parameters
    ----------
    sample : Sample
    family : sequence of str
        Treatments that are corrected together.
    alpha : float
    """
    m = max(1, len(family))
    groups: dict[tuple[int, int], list[str]] = {}
    for name in family:
        groups.setdefault((len(sample.arms[sample.baseline]), len(sample.arms[name])), []).append(name)
    return [_sentence(sample, sizes, names, m, alpha) for sizes, names in groups.items()]


def _sentence(sample: Sample, sizes: tuple[int, int], names: Sequence[str], m: int, alpha: float) -> str:
    n_b, n_t = sizes
    p = smallest_p_of(sample, names[0])
    if sample.paired:
        n = len(sample.blocks)
        head, fraction = f"{n} blocks", f"2/{2**n}"
        needed, unit = stats.smallest_n(m, alpha), "blocks"
    else:
        head, fraction = f"{n_b} against {n_t} runs, not paired", f"2/{math.comb(n_b + n_t, n_b)}"
        needed, unit = stats.smallest_n_unpaired(m, alpha), "runs in each arm"
    whose = f" ({', '.join(names)})" if m > 1 else ""
    text = f"{head}{whose}: the smallest possible p is {fraction} = {_p(p)}"
    if m > 1:
        text += f", and {_p(min(1.0, m * p))} corrected over {m} contrasts"
    if m * p <= alpha:
        return text + "."
    return (
        f"{text}. Nothing below {_p(min(1.0, m * p))} is possible, so nothing can be called at {alpha:g}: "
        f"it takes at least {needed} {unit}."
    )


def _p(value: float) -> str:
    return f"{value:.2g}" if value != 0.1 else "0.10"
