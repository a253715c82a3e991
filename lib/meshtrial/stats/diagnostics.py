"""What could be wrong with a study although its p-values look fine. Diagnostics warn; they never change a verdict.

All of them look at one response at one load. Values are positive and analysed as logs, or as they are with
``scale="difference"``. Randomised blocks protect the test from drift and position; the warnings say what to mend so
that the next study is sharper, and name the few things that blocks do not protect from (carry-over, an arm that feels
the machine more than its baseline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Scale
from meshtrial.stats.dependence import autocorrelation, dependent_blocks
from meshtrial.stats.modes import modes
from meshtrial.stats.rankchecks import kruskal, spearman
from meshtrial.stats.ranknull import FloatArray
from meshtrial.stats.residuals import LEVEL, change_text, log_table, without_arms, without_blocks
from meshtrial.stats.warning import Warning


def drift(
    values: Mapping[str, ArrayLike], times: Mapping[str, ArrayLike], *, scale: Scale = "ratio"
) -> tuple[Warning, ...]:
    """Residuals of all runs against the time they were measured.

    Parameters
    ----------
    values, times : mapping of treatment to (blocks,) array_like
        The response, and when it was measured in seconds since the study began.
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
        ``"drift"`` or nothing.
    """
    names, table = log_table(values, scale)
    when = np.stack([np.asarray(times[name], dtype=np.float64) for name in names], axis=1).ravel()
    rest = without_arms(table).ravel()
    known = np.isfinite(rest) & np.isfinite(when)
    r, p = spearman(when[known], rest[known])
    if p > LEVEL:
        return ()
    slope = float(np.polyfit(when[known], rest[known], 1)[0]) * float(np.ptp(when[known]))
    text = (
        f"runs drift by {change_text(slope, scale)} over the study (Spearman {r:+.2f}, p = {p:.2g}); blocks absorb it, "
        "but look for heat, growing logs or a leak, and keep blocks short"
    )
    return (Warning("drift", text),)


def position_effect(
    values: Mapping[str, ArrayLike], positions: Mapping[str, ArrayLike], *, scale: Scale = "ratio"
) -> tuple[Warning, ...]:
    """Residuals (arms and blocks taken out) against the place of the run in its block.

    Parameters
    ----------
    values, positions : mapping of treatment to (blocks,) array_like
        The response, and the run's place in its block, from 1 (or 0).
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
        ``"position"`` or nothing.
    """
    names, table = log_table(values, scale)
    place = np.stack([np.asarray(positions[name], dtype=np.float64) for name in names], axis=1)
    return _grouped(
        without_blocks(table), place, "position", "at position {group:g} of a block", scale,
        "random order keeps the contrasts fair, but lengthen the pause or the warm-up between runs",
    )  # fmt: skip


def carry_over(
    values: Mapping[str, ArrayLike], previous: Mapping[str, Sequence[str | None]], *, scale: Scale = "ratio"
) -> tuple[Warning, ...]:
    """Residuals (arms and blocks taken out) against the treatment that ran before.

    Parameters
    ----------
    values : mapping of treatment to (blocks,) array_like
        The response.
    previous : mapping of treatment to (blocks,) sequence of str or None
        The treatment of the run before, None for the first (`previous_treatments`).
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
        ``"carry-over"`` or nothing.
    """
    names, table = log_table(values, scale)
    before = np.stack([np.array(list(previous[name]), dtype=object) for name in names], axis=1)
    return _grouped(
        without_blocks(table), before, "carry-over", "after a run of {group}", scale,
        "something of that treatment outlives its teardown: check for processes and sockets left, or pause longer",
    )  # fmt: skip


def _grouped(
    rest: FloatArray,
    labels: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    code: str,
    where: str,
    scale: Scale,
    advice: str,
) -> tuple[Warning, ...]:
    if labels.shape != rest.shape:
        raise UsageError(f"{code}: labels of shape {labels.shape} for values of shape {rest.shape}")
    groups: dict[object, list[float]] = {}
    for value, label in zip(rest.ravel().tolist(), labels.ravel().tolist(), strict=True):
        if math.isfinite(value) and label is not None and label == label:
            groups.setdefault(label, []).append(value)
    arrays = {label: np.array(found) for label, found in groups.items() if len(found) >= 3}
    p = kruskal(list(arrays.values()))
    if p > LEVEL:
        return ()
    worst = max(arrays, key=lambda label: abs(float(np.median(arrays[label]))))
    size = change_text(float(np.median(arrays[worst])), scale)
    return (Warning(code, f"runs {where.format(group=worst)} read {size} (Kruskal-Wallis p = {p:.2g}): {advice}"),)


def previous_treatments(positions: Mapping[str, ArrayLike]) -> dict[str, list[str | None]]:
    """The treatment that ran before each run, from the places in the blocks; blocks follow each other.

    Parameters
    ----------
    positions : mapping of treatment to (blocks,) array_like
        Place of the run in its block; nan where it has none.

    Returns
    -------
    dict of treatment to (blocks,) list of str or None
    """
    names = list(positions)
    place = np.stack([np.asarray(positions[name], dtype=np.float64) for name in names], axis=1)
    before: dict[str, list[str | None]] = {name: [None] * len(place) for name in names}
    last: str | None = None
    for block, row in enumerate(place):
        for arm in np.argsort(row, kind="stable"):
            if math.isfinite(row[arm]):
                before[names[arm]][block] = last
                last = names[arm]
    return before


def diagnose(
    values: Mapping[str, ArrayLike],
    baseline: str,
    *,
    positions: Mapping[str, ArrayLike] | None = None,
    times: Mapping[str, ArrayLike] | None = None,
    previous: Mapping[str, Sequence[str | None]] | None = None,
    scale: Scale = "ratio",
) -> tuple[Warning, ...]:
    """All diagnostics of one response at one load that its order of runs allows.

    Parameters
    ----------
    values : mapping of treatment to (blocks,) array_like
        The response; nan where a run is missing.
    baseline : str
        The control arm.
    positions, times : mapping of treatment to (blocks,) array_like, optional
        Place in the block; seconds since the study began.
    previous : mapping of treatment to sequence, optional
        Treatment that ran before; taken from `positions` where not given.
    scale : {"ratio", "difference"}
        Scale of the analysis.

    Returns
    -------
    tuple of Warning
    """
    if baseline not in values:
        raise UsageError(f"no treatment {baseline!r}; there are {', '.join(sorted(values))}")
    names, table = log_table(values, scale)
    kept = {name: values[name] for name, column in zip(names, table.T, strict=True) if np.isfinite(column).sum() >= 3}
    if baseline not in kept:
        return ()
    found = autocorrelation(values[baseline], scale=scale)
    for name in kept:
        if name != baseline:
            named = dependent_blocks(kept[name], kept[baseline], scale=scale)
            found += tuple(Warning(w.code, f"{name}: {w.message}") for w in named)
    if times is not None:
        found += drift(kept, times, scale=scale)
    if positions is not None:
        found += position_effect(kept, positions, scale=scale)
        previous = previous or previous_treatments(positions)
    if previous is not None:
        found += carry_over(kept, previous, scale=scale)
    rest = without_blocks(log_table(kept, scale)[1])
    return found + modes(rest[np.isfinite(rest)])
