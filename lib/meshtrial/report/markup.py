"""HTML that a notebook cell ends in: escaped, readable as plain text too, styled by one sheet.

Everything a reader sees passes through :func:`escape` or is built here: names and messages come from
records, which may hold anything. Styles travel with every fragment, because JupyterLab shows outputs one
by one; the exported page takes the repeats out again.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"


def escape(text: object) -> str:
    """Text for HTML, in content and in quoted attributes alike."""
    return html.escape(str(text), quote=True)


@cache
def style_sheet(name: str = "objects.css") -> str:
    """A style sheet of this package."""
    return (TEMPLATES / name).read_text()


def style_element() -> str:
    """The sheet that every fragment carries; ``mt-style`` is what the exporter looks for."""
    return f'<style class="mt-style">{style_sheet()}</style>'


@dataclass(frozen=True)
class Fragment:
    """A piece of a report that shows itself in a notebook.

    Attributes
    ----------
    html : str
        Already escaped.
    text : str
        The same for a terminal, a diff, a screen without HTML.
    """

    html: str
    text: str

    def _repr_html_(self) -> str:
        return f'{style_element()}<div class="mt">{self.html}</div>'

    def __repr__(self) -> str:
        return self.text


def join(*parts: Fragment) -> Fragment:
    """Several fragments, one after another."""
    return Fragment("".join(p.html for p in parts), "\n\n".join(p.text for p in parts if p.text))


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text : str
        What is read.
    value : object
        The stored number behind it, kept in the page so that every figure can be followed to its row.
    html : str
        Where the text alone is not enough; escaped already.
    note : str
        A second, quieter line.
    """

    text: str
    value: object = None
    html: str = ""
    note: str = ""

    def markup(self, tag: str, attributes: str) -> str:
        """The cell as HTML."""
        shown = self.html or escape(self.text)
        if self.value is not None:
            shown = f'<data value="{escape(self.value)}">{shown}</data>'
        if self.note:
            shown += f'<br><small class="mt-quiet">{escape(self.note)}</small>'
        return f"<{tag}{attributes}>{shown}</{tag}>"


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
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    keys: Sequence[str] = ()
    groups: Sequence[str] = ()
    show_caption: bool = True
    css: str = ""

    def fragment(self) -> Fragment:
        """The table as HTML and as text."""
        return Fragment(self.to_html(), self.to_text())

    def to_html(self) -> str:
        """Scope headers, numbers to the right, and a box that scrolls sideways by itself on a narrow screen."""
        head = "".join(f'<th scope="col"{_classes(column)}>{escape(column.label)}</th>' for column in self.columns)
        body = "".join(self._group(index) + self._row(index, row) for index, row in enumerate(self.rows))
        if not self.rows:
            body = f'<tr><td colspan="{len(self.columns)}">nothing recorded</td></tr>'
        # A caption element is as wide as its table; a line of its own wraps on a phone.
        title = f'<p class="mt-caption" aria-hidden="true">{escape(self.caption)}</p>' if self.show_caption else ""
        note = f'<p class="mt-note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'{title}<div class="mt-scroll {self.css}" role="region" tabindex="0" '
            f'aria-label="{escape(self.caption)}"><table aria-label="{escape(self.caption)}">'
            f"<thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>{note}"
        )

    def _new_group(self, index: int) -> str:
        if not self.groups or (index > 0 and self.groups[index - 1] == self.groups[index]):
            return ""
        return self.groups[index]

    def _group(self, index: int) -> str:
        label = self._new_group(index)
        span = len(self.columns)
        return f'<tr class="mt-group"><th scope="rowgroup" colspan="{span}">{escape(label)}</th></tr>' if label else ""

    def _row(self, index: int, row: Sequence[Cell]) -> str:
        key = f' data-row="{escape(self.keys[index])}"' if index < len(self.keys) else ""
        cells = []
        for number, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
            tag, scope = ("th", ' scope="row"') if number == 0 else ("td", "")
            cells.append(cell.markup(tag, scope + _classes(column)))
        return f"<tr{key}>{''.join(cells)}</tr>"

    def to_text(self) -> str:
        """Columns in line, for a terminal."""
        lines = [[column.label for column in self.columns]]
        lines += [[cell.text + (f" ({cell.note})" if cell.note else "") for cell in row] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        titles = ["", *(self._new_group(index) for index in range(len(self.rows)))]
        shown = [
            (f"\n{title}\n" if title else "")
            + "  ".join(
                text.rjust(width) if column.numeric else text.ljust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for title, line in zip(titles, lines, strict=True)
        ]
        return "\n".join([self.caption, *shown, *([self.note] if self.note else [])])


def _classes(column: Column) -> str:
    names = [
        name for name, on in (("mt-num", column.numeric), ("mt-wide", column.wide), ("mt-middle", column.middle)) if on
    ]
    return f' class="{" ".join(names)}"' if names else ""


def details(summary: str, body: str, *, css: str = "") -> str:
    """A folded part; ``body`` is HTML."""
    return f'<details class="{css}"><summary>{escape(summary)}</summary>{body}</details>'


def paragraph(text: str, css: str = "") -> str:
    """One paragraph of plain text."""
    return f'<p class="{css}">{escape(text)}</p>' if css else f"<p>{escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """A list of plain texts."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def heading(text: str) -> str:
    """A heading inside an output: below the page's own, and not in its table of contents."""
    return f'<h4 class="mt-heading">{escape(text)}</h4>'
