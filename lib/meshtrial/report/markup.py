"""What a notebook cell ends in: facts that templates lay out, on a page, in a notebook and as text.

A part of a report is a `Fragment`: the name of a macro and the facts that it lays out. HTML and text have a file of
macros each (``parts.html.j2``, ``parts.txt.j2``), with the same names; sentences that both say alike stand in a
template over these. A `Table` says what its columns show of a row, and each form divides the same cells its way.

Names and messages come from records, which may hold anything: pages are templates with autoescape on, and what is not
`Markup` is text. Styles travel with every output of a notebook, because JupyterLab shows outputs one by one.
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

from meshtrial.report import palette, wording
from meshtrial.vocabulary import VerdictLabel

TEMPLATES = Path(__file__).parent / "templates"
# A page holds a figure's drawing itself, a notebook an image: JupyterLab strips SVG elements from outputs that it does
# not trust, and every notebook that papermill ran is one of those.
Form = Literal["page", "notebook", "text"]
# The kind of output in which a notebook keeps what its page shows; JupyterLab shows the HTML beside it.
ON_PAGE = "application/vnd.meshtrial.page"
Row = TypeVar("Row")


class Displayable(ABC):
    """What shows itself in a notebook and has a form for a page and one for text."""

    @abstractmethod
    def laid_out(self, form: Form) -> str:
        """One of its forms."""

    @property
    def html(self) -> Markup:
        """What a page shows."""
        return Markup(self.laid_out("page"))

    @property
    def text(self) -> str:
        """The same for a terminal, a diff, a screen without HTML."""
        return str(self.laid_out("text"))

    def _repr_html_(self) -> str:
        return Fragment("fragment", self, style_sheet()).laid_out("notebook")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {ON_PAGE: str(self.html)}

    def __repr__(self) -> str:
        return self.text


@cache
def _environment(form: Form) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=form != "text",
        auto_reload=False,
        undefined=StrictUndefined,
        # What is nested takes the form of what it is in.
        finalize=lambda value: value.laid_out(form) if isinstance(value, Displayable) else value,
    )
    made.globals["own_parts"] = _parts_of(form)
    return made


def _parts_of(form: Form) -> str:
    return "parts.txt.j2" if form == "text" else "parts.html.j2"


def render(template: str, **values: Any) -> Markup:
    """A page of this package's templates."""
    return Markup(_environment("page").get_template(template).render(values))


def part(name: str, *values: Any) -> Markup:
    """A piece of ``parts.html.j2``: its macro of that name, with these values."""
    return Fragment(name, *values).html


@cache
def style_sheet(name: str = "objects.css") -> Markup:
    """A style sheet of this package, with the palette's colours."""
    return render(name, light=palette.variables(dark=False), dark=palette.variables(dark=True))


class Fragment(Displayable):
    """A piece of a report: facts, and the macro that lays them out."""

    def __init__(self, name: str, *values: object) -> None:
        # `name` is a macro of the form's parts, or ``template.macro`` where all forms share it.
        self._name, self._values = name, values

    def laid_out(self, form: Form) -> str:
        """One of its forms."""
        template, _, macro = self._name.rpartition(".")
        module = _environment(form).get_template(f"{template}.j2" if template else _parts_of(form)).module
        made: str = getattr(module, macro)(*self._values)
        return made.rstrip("\n") if form == "text" else made


def join(*parts: Displayable) -> Fragment:
    """Several fragments, one after another; nothing where there are none."""
    return Fragment("joined", parts)


def paragraph(text: str, css: str = "") -> Fragment:
    """One paragraph of plain text."""
    return Fragment("paragraph", text, css)


def bullets(items: Iterable[str]) -> Fragment:
    """A list of plain texts."""
    return Fragment("bullets", list(items))


def fold(title: str, holds: str, *body: Displayable, opened: bool = False) -> Fragment:
    """A part that most readers skip: its title and, in a line, what it holds. It opens by itself on paper."""
    return Fragment("fold", title, holds, join(*body), opened)


def badge(glyph: str, word: str, tone: str) -> Fragment:
    """Something judged: glyph and word first, colour only besides."""
    return Fragment("badge", glyph, word, tone)


def passed_of(passed: int, total: int, note: str = "") -> Cell:
    """How many of all passed; marked where some did not."""
    text = f"{passed}/{total}"
    return Cell(text, html=None if passed == total else badge("✕", text, "stopped"), note=note)


def verdict_badge(word: VerdictLabel) -> Fragment:
    """A verdict's word."""
    return badge(word.glyph, word, word.tone)


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    # The stored number behind it, kept in the page so that every figure can be followed to its row.
    value: object = None
    html: Markup | Fragment | None = None  # where the text alone is not enough
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


def spread(values: Sequence[float], form: Callable[[float], str]) -> Cell | None:
    """The median in words, below it the least and the most where they differ; nothing of no values."""
    if not values:
        return None
    middle, least, most = statistics.median(values), min(values), max(values)
    return Cell(form(middle), middle, note=f"{form(least)} to {form(most)}" if least < most else "")


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
        return paragraph(nothing) if nothing and not self.rows else Fragment("table", self)

    def folded(self, holds: str, *, opened: bool = False) -> Fragment:
        """The table folded, under its caption and a line that says what it holds."""
        return Fragment("folded_table", self, holds, opened)

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
