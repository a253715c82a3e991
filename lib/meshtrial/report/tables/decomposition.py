"""What a sidecar's cost is made of: parts, their sum, the whole, and the remainder with its interval."""

from __future__ import annotations

from functools import partial

from meshtrial.errors import UsageError
from meshtrial.inference.decomposition import Decomposition, Piece, decompose
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, valued

_NOTE = (
    "Each part was measured by itself, and the whole with everything at once. Parts are differences within a block, "
    "and so is their sum; estimates of parts need not add up to the digit, for each is a median of its own. A "
    "remainder above zero: together they cost more than one by one; below: less. Intervals and p are not corrected; "
    "the verdicts on the same contrasts are above."
)


def decomposition(data: StudyData) -> Fragment:
    """A table a primary response."""
    shown = []
    for response in data.plan.study.primary:
        try:
            shown.append(_table(decompose(data, response), data.plan.study.alpha).fragment())
        except UsageError as error:
            shown.append(paragraph(f"No decomposition: {error}."))
    return join(*shown)


def _table(taken_apart: Decomposition, alpha: float) -> Table:
    def shown(value: float) -> str:
        return wording.in_unit(taken_apart.response, value, sign=True)

    def share(piece: Piece) -> Cell | None:
        of_whole = piece.estimate / taken_apart.whole.estimate if taken_apart.whole.estimate > 0 else None
        return valued(of_whole, partial(wording.percent, digits=2))

    columns: list[Column[Piece]] = [
        Column("part", lambda piece: Cell(piece.name, note=piece.contrast.treatment if piece.contrast else "")),
        Column("against", lambda piece: piece.contrast.baseline if piece.contrast else None),
        Column("adds", lambda piece: Cell(shown(piece.estimate), piece.estimate), numeric=True),
        Column(
            f"interval, {wording.percent(taken_apart.confidence, 3)}",
            lambda piece: f"{shown(piece.low)} to {shown(piece.high)}",
            numeric=True,
        ),
        Column("share of the whole", share, numeric=True),
        Column("p", lambda piece: Cell(wording.probability(piece.p), piece.p), numeric=True),
    ]
    pieces = [*taken_apart.parts, taken_apart.together, taken_apart.whole, taken_apart.remainder]
    caption = f"Parts of {wording.short_label(taken_apart.response)}, {taken_apart.blocks} blocks"
    return Table.of(caption, columns, pieces, f"{_adds_up(taken_apart, alpha)} {_NOTE}".strip())


def _adds_up(taken_apart: Decomposition, alpha: float) -> str:
    if taken_apart.margin is None or taken_apart.p_adds_up is None:
        return ""
    margin, p = (
        wording.margin_text(taken_apart.response, taken_apart.margin),
        wording.probability(taken_apart.p_adds_up),
    )
    if taken_apart.p_adds_up <= alpha:
        return f"The parts add up: the remainder is shown to lie within {margin} of the baseline (p = {p})."
    return f"That the parts add up is not shown: the remainder may lie beyond {margin} of the baseline (p = {p})."
