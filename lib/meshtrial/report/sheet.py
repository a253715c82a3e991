"""What figures are drawn on: panels of one width, in letters that stay legible when a screen scales the drawing.

A phone of 400 px shows a point as 1.2 px, a wide page as 1.7 px. So a drawing is narrow, its
names stand over their rows, and nothing adapts to a screen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text

from meshtrial.report import svg
from meshtrial.report.palette import TreatmentStyle

WIDTH_IN = 4.2
ROW_IN = 0.42  # height of a row with its name over it
TICKS = 5  # labelled ticks that fit along the width
SMALL = 8.5  # size of the smallest letters, in points: 10 px on a phone of 400 px
_CHARACTER_IN, _HANDLE_IN = 0.075, 0.55  # of a small label, and what stands before and after it
_LETTER_IN = 0.085  # of a heading
_AXIS_IN = 0.4  # of the numbers beside an axis
_KEY_IN = 0.19  # a line of a key


def panels(heights_in: Sequence[float], *, sharex: bool = False) -> tuple[Canvas, list[Axes]]:
    """Panels below one another, and the drawing that they are in."""
    figure = svg.canvas(WIDTH_IN, sum(heights_in))
    axes = figure.subplots(
        len(heights_in), 1, squeeze=False, sharex=sharex, gridspec_kw={"height_ratios": list(heights_in)}
    )
    return figure, [row[0] for row in axes]


def rows(axes: Axes, names: Sequence[str], colours: Sequence[str]) -> None:
    """Name the rows of a panel, the first on top, each name over its row."""
    axes.set_ylim(len(names) - 0.4, -0.8)
    axes.set_yticks([])
    for place, (name, colour) in enumerate(zip(names, colours, strict=True)):
        across = axes.get_yaxis_transform()
        text = axes.text(0, place - 0.38, name, transform=across, color=colour, weight="bold", size=SMALL, gid="halo")
        text.set_in_layout(False)  # a long name goes on over the panel beside it


def holds(*texts: str) -> bool:
    """Whether small texts stand on one line without touching."""
    return _CHARACTER_IN * sum(map(len, texts)) <= WIDTH_IN


def fit(canvas: Canvas) -> None:
    """Break headings and labels of axes that are longer than the drawing is wide."""
    for axes in canvas.axes:
        titles = (one for one in axes.get_children() if isinstance(one, Text) and one not in axes.texts)
        for text in (axes.xaxis.label, *titles):
            lines = text.get_text().splitlines()
            text.set_text("\n".join(_lines(line, (WIDTH_IN - _AXIS_IN) / _LETTER_IN) for line in lines))


def key_in(names: Sequence[str]) -> float:
    """Height of the lines beyond the first that a key with these names takes: what its panel must be higher."""
    return _KEY_IN * (-(-len(names) // _columns(names)) - 1)


def key(axes: Axes, looks: Iterable[TreatmentStyle], *, lines: bool = True) -> None:
    """Name the treatments above a panel, each with its line and marker; the panel's title moves up."""
    handles = [
        Line2D([], [], **look.marks(5) | {"linestyle": look.dash if lines else "none"}, label=look.name)
        for look in looks
    ]
    legend(axes, handles, loc="lower left", bbox_to_anchor=(0, 1.0), labelcolor="linecolor", handlelength=2.4)


def legend(axes: Axes, handles: Sequence[Artist], **options: Any) -> None:
    """Keys above a panel, as many on a line as fit; the panel's title moves up."""
    columns = _columns([str(handle.get_label()) for handle in handles])
    for handle in handles:
        handle.set_label(_lines(str(handle.get_label()), (WIDTH_IN - _HANDLE_IN) / _CHARACTER_IN))
    lines = max(str(handle.get_label()).count("\n") + 1 for handle in handles)
    axes.legend(handles=handles, ncols=columns, borderaxespad=0.2, columnspacing=1.2, handletextpad=0.5, **options)
    if axes.get_title(loc="left"):
        axes.set_title(axes.get_title(loc="left"), pad=8 + 14 * lines * -(-len(handles) // columns))


def _columns(labels: Iterable[str]) -> int:
    """How many keys with these labels fit on a line."""
    longest = max(map(len, labels), default=0)
    return max(1, min(4, int(WIDTH_IN / (_HANDLE_IN + _CHARACTER_IN * longest))))


def _lines(text: str, letters: float) -> str:
    """A text in lines of so many letters; the name of a treatment may go on behind the signs that join its parts."""
    return textwrap.fill(text.replace("+", "+ "), max(12, int(letters))).replace("+ ", "+")
