"""A figure as a report needs it: drawing, text for those who do not see it, caption, and its numbers as a table.

In a notebook the drawing is an image (JupyterLab strips SVG elements from outputs it does not trust,
and every notebook that papermill ran is one of those). The exported page puts the SVG itself in its
place: text that can be selected, in the page's own colours. One drawing serves all screens.
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
from meshtrial.report.markup import Cell, Column, Table, cell, paragraph, part, style_sheet

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], object]]  # heading of a number, to what it is of a row


@dataclass(frozen=True)
class Figure:
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

    def _repr_html_(self) -> str:
        return str(part("fragment", self.embedded, style_sheet()))

    @property
    def embedded(self) -> Markup:
        """The figure in a notebook's output, alone or in a fragment: an image, which a page replaces by the drawing."""
        image = part("image", self.alt, svg_tools.data_uri(self.svg))
        return self._around(image)

    @property
    def html(self) -> Markup:
        """The figure for a page of its own: the drawing itself."""
        return self._around(Markup(self.svg))

    def _around(self, drawing: Markup) -> Markup:
        if self.nothing:
            return paragraph(self.caption, "mt-note").html
        count = f"{self.table.height} row{'s' * (self.table.height != 1)}"
        numbers = frame_table(self.table, f"The numbers of this figure: {self.alt.partition('. ')[0]}")
        return part("figure", drawing, self.caption, f"Table: the numbers drawn ({count})", numbers)

    def __repr__(self) -> str:
        numbers = frame_table(self.table, "The numbers of this figure").to_text()
        return f"Figure. {self.alt}\n{self.caption}\n\n{numbers}"


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
