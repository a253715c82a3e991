"""Fragments, tables and cells: data that templates lay out for a page, a notebook or a terminal.

A `Fragment` is the name of a macro and the values that it lays out. HTML and text have a file of macros each
(``parts.html.j2``, ``parts.txt.j2``) with the same names. Sentences that both forms share are in a template of their
own. A `Table` consists of cells that each form arranges in its way.

Names and messages come from records, which may hold anything. Pages are therefore rendered with autoescape on: what is
not `Markup` is text. Each output of a notebook includes its style sheet, because JupyterLab shows outputs one by one.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from meshtrial import __version__
from meshtrial.report import palette, wording
from meshtrial.vocabulary import VerdictLabel

TEMPLATES = Path(__file__).parent / "templates"
# A page holds the SVG element of a figure, a notebook an image: JupyterLab strips SVG elements from the outputs of
# notebooks that it does not trust, such as those that papermill ran.
Form = Literal["page", "notebook", "text"]
# The MIME type under which a notebook keeps an output's form for pages; JupyterLab shows the HTML of the same output.
ON_PAGE = "application/vnd.meshtrial.page"
# The macros of each form.
_PARTS: dict[Form, str] = {"page": "parts.html.j2", "notebook": "parts.html.j2", "text": "parts.txt.j2"}
Row = TypeVar("Row")


class Displayable(ABC):
    """An object that a notebook displays, with further forms for pages and for text."""

    @abstractmethod
    def laid_out(self, form: Form) -> str:
        """Return the object in one of its forms."""

    @property
    def html(self) -> Markup:
        """The form for pages."""
        return Markup(self.laid_out("page"))

    @property
    def text(self) -> str:
        """The form for terminals and diffs."""
        return str(self.laid_out("text"))

    def _repr_html_(self) -> str:
        return Fragment("fragment", self, style_sheet()).laid_out("notebook")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {ON_PAGE: str(self.html)}

    def __repr__(self) -> str:
        return self.text


@cache
def _environment(form: Form) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=form != "text",
        auto_reload=False,
        undefined=StrictUndefined,
        # A nested object takes the form of its container.
        finalize=lambda value: value.laid_out(form) if isinstance(value, Displayable) else value,
    )
    environment.globals |= {"own_parts": _PARTS[form], "style_sheet": style_sheet, "version": __version__}
    return environment


def render(template: str, **values: Any) -> Markup:
    """Render a page from a template of this package."""
    return Markup(_environment("page").get_template(template).render(values))


def part(name: str, *values: Any) -> Markup:
    """Render one macro of ``parts.html.j2``."""
    return Fragment(name, *values).html


@cache
def style_sheet(name: str = "objects.css") -> Markup:
    """Return a style sheet of this package, with the palette's colours."""
    return render(name, light=palette.variables(dark=False), dark=palette.variables(dark=True))


class Fragment(Displayable):
    """A piece of a report: values, and the name of the macro that lays them out."""

    def __init__(self, name: str, *values: object) -> None:
        # `name` is a macro of the form's parts, or ``template.macro`` for one that all forms share.
        self._name, self._values = name, values

    def laid_out(self, form: Form) -> str:
        """Return the piece in one of its forms."""
        template, _, macro = self._name.rpartition(".")
        module = _environment(form).get_template(f"{template}.j2" if template else _PARTS[form]).module
        text: str = getattr(module, macro)(*self._values)
        return text.rstrip("\n") if form == "text" else text


def join(*parts: Displayable) -> Fragment:
    """Join fragments in order; the result is empty if there are none."""
    return Fragment("joined", parts)


def paragraph(text: str, css: str = "") -> Fragment:
    """Make a paragraph of plain text."""
    return Fragment("paragraph", text, css)


def bullets(items: Iterable[str]) -> Fragment:
    """Make a list of plain texts."""
    return Fragment("bullets", list(items))


def fold(title: str, summary: str, *body: Displayable) -> Fragment:
    """Fold a part that most readers skip under its title and a one-line summary. It is open in print."""
    return Fragment("fold", title, summary, join(*body))


def badge(glyph: str, word: str, tone: str) -> Fragment:
    """Make a badge: its glyph and word carry the meaning, its colour repeats it."""
    return Fragment("badge", glyph, word, tone)


def passed_of(passed: int, total: int, note: str = "") -> Cell:
    """Return ``passed/total`` as a cell, marked if some did not pass."""
    text = f"{passed}/{total}"
    return Cell(text, html=None if passed == total else badge("✕", text, "stopped"), note=note)


def verdict_badge(word: VerdictLabel) -> Fragment:
    """Make the badge of a verdict."""
    return badge(word.glyph, word, word.tone)


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    # The stored number behind the text, which the page keeps so that it can be traced to its record.
    value: object = None
    html: Markup | Fragment | None = None  # replaces the text on pages
    note: str = ""  # a second line, less prominent

    @property
    def line(self) -> str:
        """Text and note on one line."""
        return f"{self.text} ({self.note})" if self.note else self.text


def cell(value: object, digits: int = 3) -> Cell:
    """Return any value as a cell: a number keeps its full precision as the cell's value, None becomes a dash."""
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
    """Return a formatted number as a cell that keeps its value, or None for None."""
    return None if value is None else Cell(form(value), value, note=note)


def ranged(value: float, low: float, high: float, form: Callable[[float], str]) -> Cell:
    """Return a formatted number as a cell, with its interval as the note."""
    return Cell(form(value), value, note=f"{form(low)} to {form(high)}")


def spread(values: Sequence[float], form: Callable[[float], str]) -> Cell | None:
    """Return the median as a cell, with the range as the note if values differ; None if there are no values."""
    if not values:
        return None
    middle, least, most = statistics.median(values), min(values), max(values)
    return Cell(form(middle), middle, note=f"{form(least)} to {form(most)}" if least < most else "")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A heading, and a function that takes the column's value from a row: any value that `cell` accepts."""

    label: str
    value: Callable[[Row], object]
    _: KW_ONLY
    numeric: bool = False  # aligned right, in digits of equal width
    wide: bool = False  # wide enough for prose
    middle: bool = False  # of medium width


@dataclass(frozen=True)
class Table:
    """A table with a caption. The cells of its first column are row headers."""

    caption: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Sequence[Cell]]
    note: str = ""  # shown below the table
    keys: Sequence[str] = ()  # each row's identity in the records: load|response|treatment
    groups: Sequence[str] = ()  # each row's heading; it is shown above the first row of a group
    show_caption: bool = True
    css: str = ""
    sortable: bool = True  # by readers, within each group; False if the order of the rows matters

    @classmethod
    def from_rows(
        cls, caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row], note: str = "", **options: Any
    ) -> Table:
        """Make a table with one line per row; `options` are further fields of the table."""
        cells = [[cell(column.value(row)) for column in columns] for row in rows]
        return cls(caption, columns, cells, note, **options)

    def fragment(self, nothing: str = "") -> Fragment:
        """Return the table, or, if it has no row and `nothing` is given, that sentence."""
        return paragraph(nothing) if nothing and not self.rows else Fragment("table", self)

    def folded(self, summary: str, *, opened: bool = False) -> Fragment:
        """Return the table folded under its caption and a one-line summary."""
        return Fragment("folded_table", self, summary, opened)

    def new_group(self, index: int) -> str:
        """Return the heading above a row, or nothing if the row before has the same heading."""
        own, previous = (self.groups[at] if self.groups and at >= 0 else "" for at in (index, index - 1))
        return "" if own == previous else own

    def to_text(self) -> str:
        """Return the table in aligned columns, for a terminal."""
        lines = [[column.label for column in self.columns]]
        lines += [[cell.line for cell in row] for row in self.rows]
        titles = ["", *(self.new_group(index) for index in range(len(self.rows)))]
        aligned = zip(titles, in_line(lines, [column.numeric for column in self.columns]), strict=True)
        texts = [(f"\n{title}\n" if title else "") + line for title, line in aligned]
        return "\n".join([self.caption, *texts, *([self.note] if self.note else [])])


def in_line(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Align rows of text in columns, numeric ones to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]


def facts(
    caption: str, heads: tuple[str, str], rows: Iterable[tuple[str, object]], note: str = "", **options: Any
) -> Table:
    """Make a table of facts in reading order: a name and a value per row."""
    columns: list[Column[tuple[str, object]]] = [
        Column(heads[0], lambda row: row[0]),
        Column(heads[1], lambda row: row[1], wide=True),
    ]
    return Table.from_rows(caption, columns, rows, note, sortable=False, **options)
