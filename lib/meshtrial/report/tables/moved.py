"""What an analysis after the fact changes: verdicts that moved, beside those that the study declared."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.marking import HINT, sentence
from meshtrial.report.markup import Cell, ColumnOf, Fragment, Table, paragraph, verdict_badge


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
    own = {row.key: row for row in declared.verdicts}
    rows = [row for row in frames.verdicts(later) if row.response in primary and not frames.not_reported(later, row)]
    changed = [row for row in rows if row.key not in own or _called(own[row.key]) != _called(row)]
    if not changed:
        return paragraph(f"{words} None of the {len(rows)} verdicts of primary responses moves.".strip())
    columns: list[ColumnOf[VerdictRow]] = [ColumnOf("treatment", _contrast)]
    if len(later.plan.study.loads) > 1:
        columns.append(ColumnOf("load", lambda row: row.load))
    columns += [
        ColumnOf("response", lambda row: wording.short_label(row.response)),
        ColumnOf("declared before the runs", lambda row: _verdict(own[row.key]) if row.key in own else "not declared"),
        ColumnOf("after the fact", _verdict),
        ColumnOf("margin", lambda row: _margins(own.get(row.key), row), numeric=True),
    ]
    caption = f"What moves after the fact: {len(changed)} of {len(rows)} verdicts of primary responses"
    return Table.of(caption, columns, changed, f"{words} {HINT}").fragment()


def _called(row: VerdictRow) -> tuple[str, str]:
    """The verdict without the numbers behind it: a new study's size changes with every margin."""
    return row.verdict, row.qualifier if row.verdict.different else ""


def _contrast(row: VerdictRow) -> Cell:
    return Cell(row.treatment + (" (A/A twin)" if row.twin else ""), note=f"against {row.baseline}")


def _verdict(row: VerdictRow) -> Cell:
    word, qualifier = _called(row)
    return Cell(word, html=verdict_badge(row.verdict), note=qualifier)


def _margins(own: VerdictRow | None, row: VerdictRow) -> str:
    before, after = wording.margin(own, "±"), wording.margin(row, "±")
    return after if before == after else f"{before} → {after}"
