"""What an analysis after the fact changes: verdicts that moved, beside those that the study declared."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.marking import HINT, sentence
from meshtrial.report.markup import Cell, Column, Fragment, Table, paragraph
from meshtrial.report.tables.headline import verdict_badge


def moved(declared: StudyData, later: StudyData, said: str) -> Fragment:
    """A row a primary contrast whose verdict is another one after the fact, or that was not declared.

    Parameters
    ----------
    declared : StudyData
        The study's own verdicts.
    later : StudyData
        The same runs, judged otherwise.
    said : str
        What was chosen after the runs; empty for nothing.
    """
    words = sentence(said) if said else ""
    primary = set(declared.plan.study.primary)
    own = {_key(row): row for row in declared.verdicts}
    rows = [row for row in frames.verdicts(later) if row.response in primary and not frames.not_reported(later, row)]
    changed = [row for row in rows if _key(row) not in own or _said(own[_key(row)]) != _said(row)]
    if not changed:
        text = f"{words} None of the {len(rows)} verdicts of primary responses moves.".strip()
        return Fragment(paragraph(text), text)
    several = len(later.plan.study.loads) > 1
    columns = [Column("treatment"), *([Column("load")] if several else []), Column("response")]
    columns += [Column("declared before the runs"), Column("after the fact"), Column("margin", numeric=True)]
    cells = [_cells(own.get(_key(row)), row, several) for row in changed]
    caption = f"What moves after the fact: {len(changed)} of {len(rows)} verdicts of primary responses"
    return Table(caption, columns, cells, f"{words} {HINT}").fragment()


def _key(row: VerdictRow) -> tuple[str, str, str, str]:
    return row.load, row.response, row.treatment, row.baseline


def _said(row: VerdictRow) -> str:
    """The verdict without the numbers behind it: a new study's size changes with every margin."""
    return " ".join(filter(None, (wording.kind(row), row.qualifier)))


def _cells(own: VerdictRow | None, row: VerdictRow, several: bool) -> Sequence[Cell]:
    before = "–" if own is None or own.margin is None else f"±{wording.margin(own)}"
    after = "–" if row.margin is None else f"±{wording.margin(row)}"
    return [
        Cell(row.treatment + (" (A/A twin)" if row.twin else ""), note=f"against {row.baseline}"),
        *([Cell(row.load)] if several else []),
        Cell(wording.short_label(row.response)),
        Cell("not declared") if own is None else _verdict(own),
        _verdict(row),
        Cell(after if before == after else f"{before} → {after}"),
    ]


def _verdict(row: VerdictRow) -> Cell:
    return Cell(wording.kind(row), html=verdict_badge(row), note=row.qualifier)
