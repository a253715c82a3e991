"""The effect in each session of a study, and where the estimate of another session would lie.

A session is a sample of the states of a machine or cluster. Its effect is the mean of its block differences: logarithms
of ratios, or differences in the response's unit. Verdicts describe the measured sessions, and the prediction interval
describes another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshtrial import stats
from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow


@dataclass(frozen=True)
class SessionEffects:
    """A contrast's effect by session: ratios, or differences in the response's stored unit."""

    estimates: tuple[float | None, ...]  # one per session of the plan; None for a session without complete blocks
    blocks: tuple[int, ...]  # complete blocks of each session
    # Prediction interval of another session's estimate; None with fewer than three sessions
    low: float | None
    high: float | None


def session_effects(data: StudyData, row: VerdictRow, *, by_difference: bool) -> SessionEffects:
    """Return the effect of a verdict row in each session, as a ratio or as a difference."""
    names = [row.treatment, row.baseline]
    included = set(data.inclusions[row.load].blocks)
    means: list[float | None] = []
    counts = []
    for session in data.plan.sessions:
        blocks = [block for block in session if block in included]
        complete = LoadBlocks.of(data.table, row.load, blocks).complete(names, row.response)
        treated, base = complete.values(names, row.response).values()
        counts.append(len(complete.blocks))
        if by_difference:
            differences = treated - base
        else:
            is_positive = bool(len(treated)) and bool((treated > 0).all() and (base > 0).all())
            differences = np.log(treated / base) if is_positive else treated[:0]
        means.append(float(differences.mean()) if len(differences) else None)
    ends = stats.next_session([mean for mean in means if mean is not None], data.plan.study.alpha)
    low, high = (None, None) if ends is None else (float(ends[0]), float(ends[1]))
    if by_difference:
        return SessionEffects(tuple(means), tuple(counts), low, high)
    estimates = tuple(None if mean is None else float(np.exp(mean)) for mean in means)
    low, high = (None if end is None else float(np.exp(end)) for end in (low, high))
    return SessionEffects(estimates, tuple(counts), low, high)
