"""What is analysed after the fact: its mark, and the verdicts that move by it.

The mark stands over a table, and in a figure's drawing, words and numbers: in the drawing too, because a picture is
copied without what was written around it.
"""

from __future__ import annotations

import textwrap
from typing import TypeVar

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, sheet, wording
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Cell, Column, Fragment, Table, join, paragraph, verdict_badge
from meshtrial.report.palette import INK

COLUMN = "after the fact"
HINT = "A hint for the next study, never this study's verdict."
_LETTERS_PER_IN, _LINE_IN = 12.5, 0.17
_T = TypeVar("_T")


def sentence(said: str) -> str:
    """What was chosen after the runs, as a sentence."""
    return f"After the fact: {said}."


def marked(shown: _T, said: str) -> _T:
    """The same with the mark of what was chosen after the runs: a figure, a table or a text; others as they are."""
    if not said:
        return shown
    text = sentence(said)
    found: object = shown
    if isinstance(shown, Figure):
        found = Figure(
            lambda: _stamped(shown.draw(), text),
            f"{text} {shown.alt}",
            f"{text} {HINT} {shown.caption}",
            shown.table.with_columns(pl.lit(said).alias(COLUMN)),
            shown.nothing,
        )
    elif isinstance(shown, Fragment):
        found = join(Fragment("box", paragraph(f"{text} {HINT}"), True), shown)
    elif isinstance(shown, str):
        found = f"{text} {shown}"
    return found  # type: ignore[return-value]


def _stamped(canvas: Canvas, text: str) -> Canvas:
    lines = textwrap.wrap(text, int(sheet.WIDTH_IN * _LETTERS_PER_IN))
    canvas.set_figheight(canvas.get_figheight() + _LINE_IN * (len(lines) + 1))
    canvas.suptitle("\n".join(lines), x=0.01, ha="left", size=sheet.SMALL, weight="bold", color=INK)
    return canvas


def moved(declared: StudyData, later: StudyData, said: str) -> Fragment:
    """One row per primary contrast whose verdict is another one after the fact, or that was not declared.

    ``said`` is what was chosen after the runs; empty for nothing.
    """
    words = sentence(said) if said else ""
    primary = set(declared.plan.study.primary)
    own = {row.key: row for row in declared.verdicts}
    rows = [row for row in frames.verdicts(later) if row.response in primary and not frames.not_reported(later, row)]
    changed = [row for row in rows if row.key not in own or _called(own[row.key]) != _called(row)]
    if not changed:
        return paragraph(f"{words} None of the {len(rows)} verdicts of primary responses moves.".strip())
    columns: list[Column[VerdictRow]] = [
        Column("treatment", lambda row: Cell(wording.treatment(row), note=f"against {row.baseline}"))
    ]
    if len(later.plan.study.loads) > 1:
        columns.append(Column("load", lambda row: row.load))
    columns += [
        Column("response", lambda row: wording.short_label(row.response)),
        Column("declared before the runs", lambda row: _verdict(own[row.key]) if row.key in own else "not declared"),
        Column("after the fact", _verdict),
        Column("margin", lambda row: _margins(own.get(row.key), row), numeric=True),
    ]
    caption = f"What moves after the fact: {len(changed)} of {len(rows)} verdicts of primary responses"
    return Table.of(caption, columns, changed, f"{words} {HINT}").fragment()


def _called(row: VerdictRow) -> tuple[str, str]:
    """The verdict without the numbers behind it: a new study's size changes with every margin."""
    return row.verdict, row.qualifier if row.verdict.different else ""


def _verdict(row: VerdictRow) -> Cell:
    word, qualifier = _called(row)
    return Cell(word, html=verdict_badge(row.verdict), note=qualifier)


def _margins(own: VerdictRow | None, row: VerdictRow) -> str:
    before, after = wording.margin(own, "±"), wording.margin(row, "±")
    return after if before == after else f"{before} → {after}"
