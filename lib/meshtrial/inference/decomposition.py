"""Parts that were measured separately: their sum within each block, compared with the measured whole."""

from dataclasses import asdict, dataclass, field

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
class Piece(stats.RankInterval):
    """One line of a decomposition, over the blocks and in the response's stored unit; p is not corrected."""

    name: str = field(kw_only=True)
    contrast: Contrast | None = field(kw_only=True)  # None for the sum and the remainder


@dataclass(frozen=True)
class Decomposition:
    """A response's parts, their sum, the whole, and the remainder."""

    response: str
    load: str
    blocks: int  # number of blocks in which every treatment was measured
    parts: tuple[Piece, ...]
    together: Piece
    whole: Piece
    remainder: Piece
    margin: Margin | None  # the response's, relative to the baseline
    # Two one-sided exact tests that the remainder lies within the margin: that the parts add up. None without a margin.
    p_adds_up: float | None


def decompose(data: StudyData, response: str) -> Decomposition:
    """Decompose a response by differences within each block, so that the machine's state cancels.

    Raise UsageError if fewer than two blocks have every treatment.
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
    remainder, margin, p_adds_up = all_at_once - added, study.margins.get(response), None
    if margin is not None:
        # The margin is relative to every block's own baseline: with an estimate, such as their median, the test would
        # not be exact.
        size = np.maximum(margin.relative * np.abs(values[study.baseline.name]), margin.floor)
        p_adds_up = max(signed_rank_p(size - remainder, "greater"), signed_rank_p(size + remainder, "greater"))
    return Decomposition(
        response=response,
        load=load,
        blocks=len(runs.blocks),
        parts=tuple(_piece(name, contrast, d, study.alpha) for name, contrast, d in differences),
        together=_piece("parts together", None, added, study.alpha),
        whole=_piece("the whole", chain.whole, all_at_once, study.alpha),
        remainder=_piece("remainder", None, remainder, study.alpha),
        margin=margin,
        p_adds_up=p_adds_up,
    )


def _piece(name: str, contrast: Contrast | None, d: FloatArray, alpha: float) -> Piece:
    return Piece(**asdict(stats.hodges_lehmann(d, alpha)), name=name, contrast=contrast)
