"""Figures: a drawing, a text alternative with its numbers, a caption, and the numbers as a table.

A notebook shows the drawing as an image. A page holds the SVG element itself, whose text can be selected and whose
colours are the page's. The same drawing serves all screen sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.report import sheet
from meshtrial.report.markup import Cell, Column, Displayable, Form, Fragment, Table, cell

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], object]]  # column heading to a function that takes its value from a row


@dataclass(frozen=True, repr=False)
class Figure(Displayable):
    """A figure of a report.

    Attributes
    ----------
    draw : callable
        Draws on panels of `meshtrial.report.sheet`. It is called at once, so errors appear where the figure is made.
    alt : str
        What the drawing shows, in numbers.
    caption : str
        How to read the drawing.
    table : polars.DataFrame
        The drawn numbers, in display units that the column names give.
    nothing : bool
        Whether the figure only explains why there is nothing to draw.
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
        with sheet.style():
            canvas = self.draw()
            sheet.fit(canvas)
        object.__setattr__(self, "svg", sheet.to_svg(canvas, self.alt))

    @classmethod
    def from_rows(
        cls,
        draw: Callable[[], Canvas],
        rows: Iterable[Row],
        columns: Columns[Row],
        summary: str,
        describe: Callable[[Row], str],
        caption: str,
    ) -> Figure:
        """Make a figure whose table has one line per row, and whose alt text is a summary and a part per row."""
        listed = list(rows)
        table = pl.DataFrame([pl.Series(name, [value(row) for row in listed]) for name, value in columns.items()])
        return cls(draw, alt_text(summary, map(describe, listed)), caption, table.cast({pl.Null: pl.Float64}))

    def laid_out(self, form: Form) -> str:
        """Return the drawing with caption and numbers; as text, the alt text replaces the drawing."""
        return Fragment("figure", self, form == "notebook").laid_out(form)

    @property
    def address(self) -> str:
        """The drawing as the address of an image."""
        return sheet.data_uri(self.svg)

    @property
    def numbers(self) -> Table:
        """The drawn numbers as a table that shows four significant digits and keeps the exact values."""

        def value(name: str, row: dict[str, object]) -> Cell:
            return cell(row[name], digits=4)

        columns: list[Column[dict[str, object]]] = [
            Column(name, partial(value, name), numeric=kind.is_numeric()) for name, kind in self.table.schema.items()
        ]
        caption = f"The numbers of this figure: {self.alt.partition('. ')[0]}"
        return Table.from_rows(caption, columns, self.table.iter_rows(named=True), show_caption=False)


def alt_text(summary: str, parts: Iterable[str]) -> str:
    """Return a summary sentence followed by the parts of a drawing, in numbers."""
    return f"{summary}. {'; '.join(parts)}."


def empty(message: str) -> Figure:
    """Return a figure that explains why there is nothing to draw."""

    def draw() -> Canvas:
        figure, (axes,) = sheet.panels([0.7])
        axes.set_axis_off()
        axes.text(0, 0.5, "Nothing to draw.", va="center")
        return figure

    return Figure(draw, message, message, pl.DataFrame({"reason": [message]}), nothing=True)
