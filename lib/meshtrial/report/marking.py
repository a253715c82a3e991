"""Marks whatever shows an analysis that was chosen after the runs, and tables the verdicts that it changes.

The mark is above a table, and in a figure's drawing, text and numbers. It is part of the drawing because pictures are
copied without the text around them.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, TypeVar

from meshtrial.lazy import pl
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, verdict_badge
from meshtrial.report.palette import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMN, _AFTER = "after the fact", "After the fact: {}."
HINT = "A hint for the next study, never this study's verdict."
_LETTERS_PER_IN, _LINE_IN = 12.5, 0.17
_T = TypeVar("_T")


def marked(output: _T, change: str) -> _T:
    """Return a figure, a fragment or a text with the mark of what was chosen after the runs; others unchanged."""
    if not change:
        return output
    # Tables need no matplotlib, which takes a moment to load and may not be installed.
    from meshtrial.report import sheet
    from meshtrial.report.figure import Figure

    text = _AFTER.format(change)
    result: object = output
    if isinstance(output, Figure):
        draw = output.draw

        def stamped() -> Canvas:
            canvas, lines = draw(), textwrap.wrap(text, int(sheet.WIDTH_IN * _LETTERS_PER_IN))
            canvas.set_figheight(canvas.get_figheight() + _LINE_IN * (len(lines) + 1))
            canvas.suptitle("\n".join(lines), x=0.01, ha="left", size=sheet.SMALL, weight="bold", color=INK)
            return canvas

        alt, caption = f"{text} {output.alt}", f"{text} {HINT} {output.caption}"
        table = output.table.with_columns(pl.lit(change).alias(COLUMN))
        result = Figure(stamped, alt, caption, table, output.nothing)
    elif isinstance(output, Fragment):
        result = join(Fragment("box", paragraph(f"{text} {HINT}"), True), output)
    elif isinstance(output, str):
        result = f"{text} {output}"
    return result  # type: ignore[return-value]


def moved(declared: StudyData, reanalysed: StudyData, change: str) -> Fragment:
    """Return one row per primary contrast whose verdict a later analysis changed, or that was not declared.

    Parameters
    ----------
    declared, reanalysed : StudyData
    change : str
        What was chosen after the runs; empty for nothing.
    """
    lead = _AFTER.format(change) if change else ""
    before = {row.key: row for row in declared.verdicts}
    later, primary = frames.contrasts(reanalysed), declared.plan.study.primary
    rows = [row for row in later.rows if row.response in primary and later.reported(row)]
    changed = [row for row in rows if row.key not in before or _verdict_key(before[row.key]) != _verdict_key(row)]
    if not changed:
        return paragraph(f"{lead} None of the {len(rows)} verdicts of primary responses changes.".strip())

    def verdict(row: VerdictRow | None) -> Cell:
        if row is None:
            return Cell("not declared")
        return Cell(row.verdict, html=verdict_badge(row.verdict), note=_verdict_key(row)[1])

    def margins(row: VerdictRow) -> str:
        old, new = wording.margin(before.get(row.key), "±"), wording.margin(row, "±")
        return new if old == new else f"{old} → {new}"

    several = len(reanalysed.plan.study.loads) > 1
    columns: list[Column[VerdictRow]] = [
        Column("treatment", lambda row: Cell(wording.treatment(row), note=f"against {row.baseline}")),
        *([Column("load", lambda row: row.load)] if several else []),
        Column("response", lambda row: wording.short_label(row.response)),
        Column("declared before the runs", lambda row: verdict(before.get(row.key))),
        Column("after the fact", verdict),
        Column("margin", margins, numeric=True),
    ]
    caption = f"Changed after the fact: {len(changed)} of {len(rows)} verdicts of primary responses"
    return Table.from_rows(caption, columns, changed, f"{lead} {HINT}").fragment()


def _verdict_key(row: VerdictRow) -> tuple[str, str]:
    """Return the verdict without the numbers in its qualifier: a new study's size changes with every margin."""
    return row.verdict, row.qualifier if row.verdict.different else ""
