"""What a notebook cell ends in, as HTML and as text: made by templates, escaped, styled by one sheet.

Names and messages come from records, which may hold anything: every piece is a template with autoescape on, and what is
not `Markup` is text. Styles travel with every fragment, because JupyterLab shows outputs one by one; the exported page
takes the repeats out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


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
    """A style sheet of this package."""
    return Markup((TEMPLATES / name).read_text())


def joined(parts: Iterable[Markup]) -> Markup:
    """Pieces one after another."""
    return Markup("").join(parts)


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
    """Several fragments, one after another."""
    return Fragment(joined(p.html for p in parts), "\n\n".join(p.text for p in parts if p.text))


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text : str
        What is read.
    value : object
        The stored number behind it, kept in the page so that every figure can be followed to its row.
    html : Markup or None
        Where the text alone is not enough.
    note : str
        A second, quieter line.
    """

    text: str
    value: object = None
    html: Markup | None = None
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A heading, whether numbers stand below it (to the right, in figures of one width), how wide it is at least."""

    label: str
    numeric: bool = False
    wide: bool = False
    middle: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a caption; its first column heads its rows.

    Attributes
    ----------
    note : str
        Read below the table.
    keys : tuple of str
        What identifies each row in the records, e.g. ``load|response|treatment``.
    groups : tuple of str
        A heading for each row; where it changes, it stands over the rows that share it.
    sortable : bool
        Whether a page lets a reader sort the rows, within each group; not where their order is what the table says.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    keys: Sequence[str] = ()
    groups: Sequence[str] = ()
    show_caption: bool = True
    css: str = ""
    sortable: bool = True

    def fragment(self) -> Fragment:
        """The table as HTML and as text."""
        return Fragment(self.to_html(), self.to_text())

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
        lines += [[cell.text + (f" ({cell.note})" if cell.note else "") for cell in row] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        titles = ["", *(self.new_group(index) for index in range(len(self.rows)))]
        shown = [
            (f"\n{title}\n" if title else "")
            + "  ".join(
                text.rjust(width) if column.numeric else text.ljust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for title, line in zip(titles, lines, strict=True)
        ]
        return "\n".join([self.caption, *shown, *([self.note] if self.note else [])])


def details(summary: str, body: Markup, *, css: str = "") -> Markup:
    """A folded part."""
    return part("details", summary, body, css)


def fold(title: str, holds: str, body: Markup, *, opened: bool = False) -> Markup:
    """A part that most readers skip: its title and, in a line, what it holds. It opens by itself on paper."""
    return part("fold", title, holds, body, opened)


def paragraph(text: str, css: str = "") -> Markup:
    """One paragraph of plain text."""
    return part("paragraph", text, css)


def bullets(items: Iterable[str]) -> Markup:
    """A list of plain texts."""
    return part("bullets", list(items))


def heading(text: str) -> Markup:
    """A heading inside an output: below the page's own, and not in its table of contents."""
    return part("heading", text)


def box(body: Markup, *, alarm: bool = False) -> Markup:
    """What a reader must not miss."""
    return part("box", body, alarm)


def prose(body: Markup) -> Markup:
    """Text in a column that reads well."""
    return part("prose", body)


def badge(glyph: str, word: str, tone: str) -> Markup:
    """A verdict: glyph and word first, colour only besides."""
    return part("badge", glyph, word, tone)
