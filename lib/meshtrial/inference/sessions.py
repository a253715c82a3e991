"""The effect in each session of a study, and where the estimate of another session would lie.

A session is a sample of the states of a machine or cluster: a stretch of time, or the place of one part of a divided
study. Its effect is the mean of its block differences: logarithms of ratios, or differences in the response's unit.
The prediction interval describes another session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshtrial import stats
from meshtrial.inference.values import LoadBlocks, block_effects
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import session_of_block
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import Scale


@dataclass(frozen=True)
class SessionEffects:
    """A contrast's effect by session: ratios, or differences in the response's stored unit."""

    estimates: tuple[float | None, ...]  # one per session of the plan; None for a session without complete blocks
    blocks: tuple[int, ...]  # complete blocks of each session
    # Prediction interval of another session's estimate; None with fewer than three sessions
    low: float | None
    high: float | None


def session_names(data: StudyData) -> tuple[str, ...]:
    """Return the names of a study's sessions or places, in the order of their blocks; empty for a single one."""
    return tuple(dict.fromkeys(session_of_block(data.plan, data.environment).values()))


def session_effects(data: StudyData, row: VerdictRow, *, by_difference: bool) -> SessionEffects:
    """Return the effect of a verdict row in each session, as a ratio or as a difference, of the values as measured."""
    scale: Scale = "difference" if by_difference else "ratio"
    names, sessions = [row.treatment, row.baseline], session_of_block(data.plan, data.environment)
    included = data.inclusions[row.load].blocks
    means: list[float | None] = []
    counts = []
    for session in session_names(data):
        blocks = [block for block in included if sessions[block] == session]
        complete = LoadBlocks.of(data.table, row.load, blocks).complete(names, row.response)
        treated, base = complete.values(names, row.response).values()
        effects = block_effects(treated, base, scale)
        counts.append(len(complete.blocks))
        means.append(None if effects is None or not len(effects) else float(effects.mean()))
    ends = stats.next_session([mean for mean in means if mean is not None], data.plan.study.alpha)
    values = [*means, *((None, None) if ends is None else ends.tolist())]
    if scale == "ratio":
        values = [None if value is None else float(np.exp(value)) for value in values]
    *estimates, low, high = values
    return SessionEffects(tuple(estimates), tuple(counts), low, high)
