"""Parts that were measured apart, added up within each block, against the whole that was measured too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial import stats
from meshtrial.design.studies.decomposition import chain_of
from meshtrial.design.study import Contrast
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray, included_blocks
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.stats.ranktests import signed_rank_p


@dataclass(frozen=True)
class Piece:
    """One line of a decomposition, in the response's stored unit."""

    name: str
    contrast: Contrast | None  # none for the sum and the remainder
    # Hodges-Lehmann estimate over the blocks and its interval
    estimate: float
    low: float
    high: float
    p: float  # exact two-sided p-value of nothing; not corrected


@dataclass(frozen=True)
class Decomposition:
    """A response's parts, their sum, the whole, and what is left between the two."""

    response: str
    load: str
    blocks: int  # in which every treatment was measured
    confidence: float  # that the intervals achieve
    parts: tuple[Piece, ...]
    together: Piece
    whole: Piece
    remainder: Piece
    margin: Margin | None  # the response's, of the baseline
    # Two one-sided exact tests that the remainder lies within it: that the parts add up. None without a margin.
    p_adds_up: float | None


def decompose(data: StudyData, response: str) -> Decomposition:
    """Differences within each block; a sum is one of differences of the same block, so the machine's state cancels.

    UsageError where fewer than two blocks have every treatment.
    """
    study, load = data.plan.study, data.plan.study.loads[0].label
    chain = chain_of(study.treatments)
    names = [t.name for t in study.treatments]
    runs = included_blocks(data, load).complete(names, response)
    if len(runs.blocks) < 2:
        raise UsageError(f"{response}: a decomposition needs two complete blocks; there are {len(runs.blocks)}")
    values = runs.values(names, response)

    def difference(contrast: Contrast) -> FloatArray:
        d: FloatArray = values[contrast.treatment] - values[contrast.baseline]
        return d

    differences = [(name, contrast, difference(contrast)) for name, contrast in chain.steps]
    added: FloatArray = np.sum([d for *_, d in differences], axis=0)
    all_at_once = difference(chain.whole)
    left, margin = all_at_once - added, study.margins.get(response)
    parts = tuple(_piece(name, contrast, d, study.alpha) for name, contrast, d in differences)
    return Decomposition(
        response=response,
        load=load,
        blocks=len(runs.blocks),
        confidence=stats.hodges_lehmann(added, study.alpha).confidence,
        parts=parts,
        together=_piece("parts together", None, added, study.alpha),
        whole=_piece("the whole", chain.whole, all_at_once, study.alpha),
        remainder=_piece("remainder", None, left, study.alpha),
        margin=margin,
        p_adds_up=None if margin is None else _within(left, margin, values[study.baseline.name]),
    )


def _within(d: FloatArray, margin: Margin, baseline: FloatArray) -> float:
    # The margin of every block's own baseline: that of all of them would be an estimate, which no exact test holds.
    size = np.maximum(margin.relative * np.abs(baseline), margin.floor)
    return max(signed_rank_p(size - d, "greater"), signed_rank_p(size + d, "greater"))


def _piece(name: str, contrast: Contrast | None, d: Sequence[float] | FloatArray, alpha: float) -> Piece:
    interval = stats.hodges_lehmann(d, alpha)
    return Piece(name, contrast, interval.estimate, interval.low, interval.high, interval.p)
