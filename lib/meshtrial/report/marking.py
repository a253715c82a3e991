"""The mark on everything that was analysed after the fact: over a table, and in a figure's drawing, words and numbers.

It stands in the drawing too, because a picture is copied without what was written around it.
"""

from __future__ import annotations

import textwrap
from typing import TypeVar

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.report.figure import Figure
from meshtrial.report.markup import Fragment, box, join, paragraph
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet

COLUMN = "after the fact"
HINT = "A hint for the next study, never this study's verdict."
_LETTERS_PER_IN, _LINE_IN = 12.5, 0.17
_T = TypeVar("_T")


def sentence(said: str) -> str:
    """What was chosen after the runs, as a sentence."""
    return f"After the fact: {said}."


def marked(shown: _T, said: str) -> _T:
    """The same with the mark; what is neither figure, table nor text is returned as it is.

    Parameters
    ----------
    shown : Figure, Fragment or str
    said : str
        What was chosen after the runs and what was declared instead; empty leaves everything as it is.
    """
    if not said:
        return shown
    text = sentence(said)
    found: object = shown
    if isinstance(shown, Figure):
        found = Figure(
            lambda sheet: _stamped(shown.draw(sheet), text, sheet),
            f"{text} {shown.alt}",
            f"{text} {HINT} {shown.caption}",
            shown.table.with_columns(pl.lit(said).alias(COLUMN)),
            shown.nothing,
        )
    elif isinstance(shown, Fragment):
        found = join(box(paragraph(f"{text} {HINT}"), alarm=True), shown)
    elif isinstance(shown, str):
        found = f"{text} {shown}"
    return found  # type: ignore[return-value]


def _stamped(canvas: Canvas, text: str, sheet: Sheet) -> Canvas:
    lines = textwrap.wrap(text, int(sheet.width_in * _LETTERS_PER_IN))
    canvas.set_figheight(canvas.get_figheight() + _LINE_IN * (len(lines) + 1))
    canvas.suptitle("\n".join(lines), x=0.01, ha="left", size=SMALL, weight="bold", color=INK)
    return canvas
