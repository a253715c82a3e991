"""Which values enter a family: the declared pairs, over the blocks that are complete for every treatment."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.ranknull import FloatArray


def declared_contrasts(
    names: Sequence[str], baseline: str, twin: str | None, contrasts: Sequence[tuple[str, str]] | None
) -> list[tuple[str, str]]:
    """The family: the declared pairs, or every treatment but the twin against the baseline.

    Raises
    ------
    UsageError
        If a name is unknown, a pair repeats, a contrast is of an arm with itself, or the twin is in the family.
    """
    for name in [baseline, *([twin] if twin else [])]:
        if name not in names:
            raise UsageError(f"no treatment {name!r}; there are {', '.join(sorted(names))}")
    if contrasts is None:
        return [(name, baseline) for name in names if name not in (baseline, twin)]
    pairs = list(contrasts)
    for a, b in pairs:
        unknown = sorted({a, b} - set(names))
        if unknown:
            raise UsageError(f"contrast {a} - {b}: no treatment {unknown[0]!r}; there are {', '.join(sorted(names))}")
        if a == b or twin in (a, b):
            raise UsageError(f"contrast {a} - {b}: an arm against itself, or the A/A twin, has no place in a family")
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise UsageError("a contrast is declared twice")
    return pairs


def complete_blocks(
    values: Mapping[str, ArrayLike], skip: set[str], blocks: Sequence[Hashable] | None
) -> tuple[dict[str, FloatArray], list[Hashable], tuple[Hashable, ...]]:
    """The arms over complete blocks, the labels of these, and of those left out (METHOD.md, "Gates")."""
    arms = {name: np.asarray(v, dtype=np.float64) for name, v in values.items() if name not in skip}
    shapes = {name: v.shape for name, v in arms.items()}
    if len(set(shapes.values())) > 1 or any(len(s) != 1 for s in shapes.values()):
        raise UsageError(f"every treatment needs one value a block (nan where it has none), got shapes {shapes}")
    n = next(iter(shapes.values()))[0] if shapes else 0
    labels = list(range(1, n + 1)) if blocks is None else list(blocks)
    if len(labels) != n or len(set(labels)) != n:
        raise UsageError(
            f"{n} values a treatment need {n} different block labels, got {len(labels)}; average slices first"
        )
    if any(bool(np.isinf(v).any()) for v in arms.values()):
        raise UsageError("a value is infinite; mark a run without a value by nan")
    whole = np.ones(n, dtype=bool)
    for v in arms.values():
        whole &= ~np.isnan(v)
    kept = [label for label, ok in zip(labels, whole, strict=True) if ok]
    gone = tuple(label for label, ok in zip(labels, whole, strict=True) if not ok)
    return {name: v[whole] for name, v in arms.items()}, kept, gone
