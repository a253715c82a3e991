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

COLUMN = "after the fact"
HINT = "A hint for the next study, never this study's verdict."
_LETTERS_PER_IN, _LINE_IN = 12.5, 0.17
_T = TypeVar("_T")


def sentence(change: str) -> str:
    """Return a sentence that names what was chosen after the runs."""
    return f"After the fact: {change}."


def marked(output: _T, change: str) -> _T:
    """Return a figure, a fragment or a text with the mark of what was chosen after the runs; others unchanged."""
    # Tables need no matplotlib, which takes a moment to load and may not be installed.
    from meshtrial.report.figure import Figure

    if not change:
        return output
    text = sentence(change)
    result: object = output
    if isinstance(output, Figure):
        result = Figure(
            lambda: _stamped(output.draw(), text),
            f"{text} {output.alt}",
            f"{text} {HINT} {output.caption}",
            output.table.with_columns(pl.lit(change).alias(COLUMN)),
            output.nothing,
        )
    elif isinstance(output, Fragment):
        result = join(Fragment("box", paragraph(f"{text} {HINT}"), True), output)
    elif isinstance(output, str):
        result = f"{text} {output}"
    return result  # type: ignore[return-value]


def _stamped(canvas: Canvas, text: str) -> Canvas:
    from meshtrial.report import sheet

    lines = textwrap.wrap(text, int(sheet.WIDTH_IN * _LETTERS_PER_IN))
    canvas.set_figheight(canvas.get_figheight() + _LINE_IN * (len(lines) + 1))
    canvas.suptitle("\n".join(lines), x=0.01, ha="left", size=sheet.SMALL, weight="bold", color=INK)
    return canvas


def moved(declared: StudyData, reanalysed: StudyData, change: str) -> Fragment:
    """Return one row per primary contrast whose verdict a later analysis changed, or that was not declared.

    Parameters
    ----------
    declared, reanalysed : StudyData
    change : str
        What was chosen after the runs; empty for nothing.
    """
    lead = sentence(change) if change else ""
    primary = set(declared.plan.study.primary)
    before = {row.key: row for row in declared.verdicts}
    rows = [
        row
        for row in frames.verdicts(reanalysed)
        if row.response in primary and not frames.not_reported(reanalysed, row)
    ]
    changed = [row for row in rows if row.key not in before or _verdict_key(before[row.key]) != _verdict_key(row)]
    if not changed:
        return paragraph(f"{lead} None of the {len(rows)} verdicts of primary responses changes.".strip())
    columns: list[Column[VerdictRow]] = [
        Column("treatment", lambda row: Cell(wording.treatment(row), note=f"against {row.baseline}"))
    ]
    if len(reanalysed.plan.study.loads) > 1:
        columns.append(Column("load", lambda row: row.load))
    columns += [
        Column("response", lambda row: wording.short_label(row.response)),
        Column(
            "declared before the runs",
            lambda row: _verdict(before[row.key]) if row.key in before else "not declared",
        ),
        Column("after the fact", _verdict),
        Column("margin", lambda row: _margins(before.get(row.key), row), numeric=True),
    ]
    caption = f"Changed after the fact: {len(changed)} of {len(rows)} verdicts of primary responses"
    return Table.from_rows(caption, columns, changed, f"{lead} {HINT}").fragment()


def _verdict_key(row: VerdictRow) -> tuple[str, str]:
    """Return the verdict without the numbers in its qualifier: a new study's size changes with every margin."""
    return row.verdict, row.qualifier if row.verdict.different else ""


def _verdict(row: VerdictRow) -> Cell:
    word, qualifier = _verdict_key(row)
    return Cell(word, html=verdict_badge(row.verdict), note=qualifier)


def _margins(declared: VerdictRow | None, row: VerdictRow) -> str:
    before, after = wording.margin(declared, "±"), wording.margin(row, "±")
    return after if before == after else f"{before} → {after}"
