"""A figure as a report needs it: drawing, text for those who do not see it, caption, and its numbers as a table.

In a notebook the drawing is an image. A page holds the SVG itself: text that can be selected, in the page's own
colours. One drawing serves all screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import polars as pl
from markupsafe import Markup
from matplotlib.figure import Figure as Canvas

from meshtrial.errors import UsageError
from meshtrial.report import sheet
from meshtrial.report import svg as svg_tools
from meshtrial.report.markup import Cell, Column, Displayable, Form, Fragment, Table, cell

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], object]]  # heading of a number, to what it is of a row


@dataclass(frozen=True, repr=False)
class Figure(Displayable):
    """What a figure is: a drawing, what it shows in words, how to read it, and its numbers.

    Attributes
    ----------
    draw : callable
        Draws, on panels of `meshtrial.report.sheet`. It is called at once: what cannot be drawn fails where it is made.
    alt : str
        What is seen, in numbers.
    caption : str
        How to read it.
    table : polars.DataFrame
        The numbers that are drawn, in display units named in the columns.
    nothing : bool
        Whether it only says why there is nothing to see.
    svg : str
        The drawing as an ``<svg>`` element for a page.
    """

    draw: Callable[[], Canvas]
    alt: str
    caption: str
    table: pl.DataFrame
    nothing: bool = False
    svg: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.alt.strip() or not self.caption.strip():
            raise UsageError("a figure needs alt text and a caption; say what is seen, in numbers")
        object.__setattr__(self, "svg", self._drawn())

    @classmethod
    def of(
        cls,
        draw: Callable[[], Canvas],
        rows: Iterable[Row],
        columns: Columns[Row],
        seen: str,
        says: Callable[[Row], str],
        caption: str,
    ) -> Figure:
        """A figure of rows: the same rows are its table, by columns, and its words, by what is said of each."""
        listed = list(rows)
        table = pl.DataFrame([pl.Series(name, [value(row) for row in listed]) for name, value in columns.items()])
        return cls(draw, alt_text(seen, map(says, listed)), caption, table.cast({pl.Null: pl.Float64}))

    def _drawn(self) -> str:
        with svg_tools.style():
            canvas = self.draw()
            sheet.fit(canvas)
        shown = svg_tools.to_svg(canvas, self.alt)
        _close(canvas)
        return shown

    def laid_out(self, form: Form) -> str:
        """The figure with its caption and its numbers; as text, what is seen instead of the drawing."""
        return Fragment("figure", self, form == "notebook").laid_out(form)

    @property
    def drawing(self) -> Markup:
        """The drawing itself, for a page."""
        return Markup(self.svg)

    @property
    def address(self) -> str:
        """The drawing as an image's address."""
        return svg_tools.data_uri(self.svg)

    @property
    def numbers(self) -> Table:
        """The numbers that are drawn."""
        return frame_table(self.table, f"The numbers of this figure: {self.alt.partition('. ')[0]}")


def alt_text(seen: str, parts: Iterable[str]) -> str:
    """What is seen, and then in numbers each part of it."""
    return f"{seen}. {'; '.join(parts)}."


def frame_table(frame: pl.DataFrame, caption: str) -> Table:
    """A data frame as a table: four significant digits shown, the whole value kept behind them."""
    columns = [
        Column[dict[str, object]](name, partial(_shown, name), numeric=kind.is_numeric())
        for name, kind in frame.schema.items()
    ]
    return Table.of(caption, columns, frame.iter_rows(named=True), show_caption=False)


def _shown(name: str, row: dict[str, object]) -> Cell:
    return cell(row[name], digits=4)


def _close(fig: Canvas) -> None:
    """A figure of pyplot is closed, so that it is neither shown twice nor left open."""
    if getattr(fig, "number", None) is None:
        return
    from matplotlib import pyplot

    pyplot.close(fig)
