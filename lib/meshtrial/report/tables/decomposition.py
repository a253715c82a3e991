"""What a sidecar's cost is made of: parts, their sum, the whole, and the remainder with its interval."""

from __future__ import annotations

from meshtrial.errors import UsageError
from meshtrial.inference.decomposition import Decomposition, Piece, decompose
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph

_NOTE = (
    "Each part was measured by itself, and the whole with everything at once. Parts are differences within a block, "
    "and so is their sum; estimates of parts need not add up to the digit, for each is a median of its own. A "
    "remainder above zero: together they cost more than one by one; below: less. Intervals and p are not corrected; "
    "the verdicts on the same contrasts stand above."
)


def decomposition(data: StudyData) -> Fragment:
    """A table a primary response."""
    found = []
    for response in data.plan.study.primary:
        try:
            found.append(_table(decompose(data, response)).fragment())
        except UsageError as error:
            text = f"No decomposition: {error}."
            found.append(Fragment(paragraph(text), text))
    return join(*found)


def _table(found: Decomposition) -> Table:
    label = wording.short_label(found.response)
    columns = [
        Column("part"),
        Column("against"),
        Column("adds", numeric=True),
        Column(f"interval, {wording.percent(found.confidence, 3)}", numeric=True),
        Column("share of the whole", numeric=True),
        Column("p", numeric=True),
    ]
    pieces = [*found.parts, found.together, found.whole, found.remainder]
    rows = [_row(found, piece) for piece in pieces]
    return Table(f"Parts of {label}, {found.blocks} blocks", columns, rows, _NOTE)


def _row(found: Decomposition, piece: Piece) -> list[Cell]:
    def shown(value: float) -> str:
        return wording.in_unit(found.response, value, sign=True)

    contrast = piece.contrast
    share = piece.estimate / found.whole.estimate if found.whole.estimate > 0 else None
    return [
        Cell(piece.name, note=contrast.treatment if contrast else ""),
        Cell(contrast.baseline if contrast else "–"),
        Cell(shown(piece.estimate), piece.estimate),
        Cell(f"{shown(piece.low)} to {shown(piece.high)}"),
        Cell("–" if share is None else wording.percent(share, 2), share),
        Cell(wording.probability(piece.p), piece.p),
    ]
