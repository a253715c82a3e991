"""What a notebook cell ends in, as HTML and as text: made by templates, escaped, styled by one sheet.

A part of a report is a `Fragment`, which knows both forms; parts are put together as fragments, so neither form is
written beside the other. A `Table` says what its columns show of a row, and each form divides the same cells its way.

Names and messages come from records, which may hold anything: every piece is a template with autoescape on, and what is
not `Markup` is text. Styles travel with every fragment, because JupyterLab shows outputs one by one; the exported page
takes the repeats out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from meshtrial.report import palette, wording
from meshtrial.vocabulary import Word

TEMPLATES = Path(__file__).parent / "templates"
STYLED = '<style class="mt-style">'  # how every fragment begins in a notebook (`fragment` in parts.html.j2)
Row = TypeVar("Row")


@cache
def _environment() -> Environment:
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


def render(template: str, **values: Any) -> Markup:
    """A page of this package's templates."""
    return Markup(_environment().get_template(template).render(values))


def part(name: str, *values: Any) -> Markup:
    """A piece of ``parts.html.j2``: its macro of that name, with these values."""
    return Markup(getattr(_environment().get_template("parts.html.j2").module, name)(*values))


@cache
def style_sheet(name: str = "objects.css") -> Markup:
    """A style sheet of this package, with the palette's colours."""
    return render(name, light=palette.variables(dark=False), dark=palette.variables(dark=True))


@dataclass(frozen=True)
class Fragment:
    """A piece of a report that shows itself in a notebook.

    Attributes
    ----------
    html : Markup
        What a page shows.
    text : str
        The same for a terminal, a diff, a screen without HTML.
    """

    html: Markup
    text: str

    def _repr_html_(self) -> str:
        return str(part("fragment", self.html, style_sheet()))

    def __repr__(self) -> str:
        return self.text


def join(*parts: Fragment) -> Fragment:
    """Several fragments, one after another; nothing where there are none."""
    return Fragment(Markup("").join(p.html for p in parts), "\n\n".join(p.text for p in parts if p.text))


def paragraph(text: str, css: str = "") -> Fragment:
    """One paragraph of plain text."""
    return Fragment(part("paragraph", text, css), text)


def bullets(items: Iterable[str]) -> Fragment:
    """A list of plain texts."""
    listed = list(items)
    return Fragment(part("bullets", listed), "\n".join(listed))


def heading(text: str) -> Fragment:
    """A heading inside an output: below the page's own, and not in its table of contents."""
    return Fragment(part("heading", text), text)


def box(body: Fragment, *, alarm: bool = False) -> Fragment:
    """What a reader must not miss."""
    return Fragment(part("box", body.html, alarm), body.text)


def prose(body: Fragment) -> Fragment:
    """Text in a column that reads well."""
    return Fragment(part("prose", body.html), body.text)


def fold(title: str, holds: str, *body: Fragment, opened: bool = False) -> Fragment:
    """A part that most readers skip: its title and, in a line, what it holds. It opens by itself on paper."""
    inside = join(*body)
    return Fragment(part("fold", title, holds, inside.html, opened), f"{title}\n{inside.text}")


def badge(glyph: str, word: str, tone: str) -> Markup:
    """Something judged: glyph and word first, colour only besides."""
    return part("badge", glyph, word, tone)


def passed_of(passed: int, total: int, note: str = "") -> Cell:
    """How many of all passed; marked where some did not."""
    text = f"{passed}/{total}"
    return Cell(text, html=None if passed == total else badge("✕", text, "stopped"), note=note)


def verdict_badge(word: Word) -> Markup:
    """A verdict's word."""
    return badge(word.glyph, word, word.tone)


@dataclass(frozen=True)
class Piece:
    """A part of a sentence, and how much it weighs: ``strong``, ``quiet``, ``clause`` (starts a line) or nothing."""

    text: str
    weight: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    # The stored number behind it, kept in the page so that every figure can be followed to its row.
    value: object = None
    html: Markup | None = None  # where the text alone is not enough
    note: str = ""  # a second, quieter line

    @property
    def line(self) -> str:
        """All that is read, on one line."""
        return f"{self.text} ({self.note})" if self.note else self.text


def cell(value: object, digits: int = 3) -> Cell:
    """Any value as a cell: a number as it is read with all of it behind, a dash for what is not there."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell("–")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int):
        return Cell(wording.count(value), value)
    if isinstance(value, float):
        return Cell(wording.number(value, digits), None if math.isnan(value) else repr(value))
    return Cell(str(value))


def valued(value: float | None, form: Callable[[float], str], note: str = "") -> Cell | None:
    """A number in words with all of it behind; nothing where it is not there."""
    return None if value is None else Cell(form(value), value, note=note)


def ranged(value: float, low: float, high: float, form: Callable[[float], str]) -> Cell:
    """A number in words, below it the ends of its interval."""
    return Cell(form(value), value, note=f"{form(low)} to {form(high)}")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A heading and what stands below it of a row: any value that `cell` takes."""

    label: str
    shows: Callable[[Row], object]
    _: KW_ONLY
    numeric: bool = False  # to the right, in figures of one width
    wide: bool = False  # at least so wide that prose can be read in it
    middle: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a caption; its first column heads its rows."""

    caption: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[Cell]]
    note: str = ""  # read below the table
    keys: Sequence[str] = ()  # what identifies each row in the records: load|response|treatment
    groups: Sequence[str] = ()  # a heading for each row; where it changes, it stands over the rows that share it
    show_caption: bool = True
    css: str = ""
    sortable: bool = True  # within each group; not where the order of the rows is what the table says

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row], note: str = "", **how: Any) -> Table:
        """One row per thing, as the columns show it."""
        cells = [[cell(column.shows(row)) for column in columns] for row in rows]
        return cls(caption, columns, cells, note, **how)

    def fragment(self, nothing: str = "") -> Fragment:
        """The table as HTML and as text; where it has no row, a sentence in its place, if there is one."""
        return paragraph(nothing) if nothing and not self.rows else Fragment(self.to_html(), self.to_text())

    def folded(self, holds: str, *, opened: bool = False) -> Fragment:
        """The table folded, under its caption and a line that says what it holds."""
        return Fragment(part("fold", self.caption, holds, self.to_html(), opened), self.to_text())

    def to_html(self) -> Markup:
        """The table as HTML."""
        return part("table", self)

    def new_group(self, index: int) -> str:
        """The heading over this row; empty where it is that of the row before."""
        if not self.groups or (index > 0 and self.groups[index - 1] == self.groups[index]):
            return ""
        return self.groups[index]

    def to_text(self) -> str:
        """Columns in line, for a terminal."""
        lines = [[column.label for column in self.columns]]
        lines += [[cell.line for cell in row] for row in self.rows]
        titles = ["", *(self.new_group(index) for index in range(len(self.rows)))]
        told = zip(titles, in_line(lines, [column.numeric for column in self.columns]), strict=True)
        shown = [(f"\n{title}\n" if title else "") + line for title, line in told]
        return "\n".join([self.caption, *shown, *([self.note] if self.note else [])])


def in_line(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Rows of text in columns of one width each, numeric ones to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]


def facts(
    caption: str, heads: tuple[str, str], rows: Iterable[tuple[str, object]], note: str = "", **how: Any
) -> Table:
    """What is so, a fact a row, in the order in which it is read."""
    name, value = heads
    columns: list[Column[tuple[str, object]]] = [
        Column(name, lambda row: row[0]),
        Column(value, lambda row: row[1], wide=True),
    ]
    return Table.of(caption, columns, rows, note, sortable=False, **how)
