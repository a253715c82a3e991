"""The sheet that a figure is drawn on: it knows its width, and what adapts to that.

A figure has one drawing, for any sheet. Whether names stand beside their rows or over them, how many keys fit on a line
and how close ticks may come is decided here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Text

from meshtrial.report import svg
from meshtrial.report.palette import Look

SMALL = 8.0
_CHARACTER_IN, _HANDLE_IN = 0.075, 0.65  # of a small label, and what stands before and after it
_BOLD_IN = 0.09  # of a row's name
_LETTER_IN = 0.1  # of a heading
_AXIS_IN = 0.4  # of the numbers beside an axis
_KEY_IN = 0.19  # a line of a key
_ROOMY_IN = 5.0


@dataclass(frozen=True)
class Sheet:
    """Something to draw on."""

    width_in: float

    @property
    def narrow(self) -> bool:
        """Whether names have no room beside what they name: a phone."""
        return self.width_in < _ROOMY_IN

    @property
    def row_in(self) -> float:
        """Height of a row with a name; the name may need a line of its own."""
        return 0.48 if self.narrow else 0.34

    @property
    def ticks(self) -> int:
        """Labelled ticks that fit along the width."""
        return max(3, round(self.width_in + 1))

    def panels(self, heights_in: Sequence[float], *, sharex: bool = False) -> tuple[Canvas, list[Axes]]:
        """Panels below one another: what a phone can show, a page can too."""
        figure = svg.canvas(self.width_in, sum(heights_in))
        axes = figure.subplots(
            len(heights_in), 1, squeeze=False, sharex=sharex, gridspec_kw={"height_ratios": list(heights_in)}
        )
        return figure, [row[0] for row in axes]

    def rows(self, axes: Axes, names: Sequence[str], colours: Sequence[str]) -> None:
        """Name the rows of a panel, the first on top: beside them where there is room, else over them."""
        axes.set_ylim(len(names) - 0.4, -0.8 if self.narrow else -0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        if self.narrow:
            axes.set_yticks([])
            for place, (name, colour) in enumerate(zip(names, colours, strict=True)):
                across = axes.get_yaxis_transform()
                axes.text(0, place - 0.38, name, transform=across, color=colour, weight="bold", size=SMALL, gid="halo")
            return
        axes.set_yticks(range(len(names)), names)
        for text, colour in zip(axes.get_yticklabels(), colours, strict=True):
            text.set_color(colour)
            text.set_fontweight("bold")

    def holds(self, *texts: str) -> bool:
        """Whether small texts stand on one line without touching."""
        return _CHARACTER_IN * sum(map(len, texts)) <= self.width_in

    def left_in(self, names: Iterable[str] = ()) -> float:
        """Width that such names of rows leave, beside which headings begin."""
        return self.width_in - (0 if self.narrow else _BOLD_IN * max(map(len, names), default=0))

    def wrapped(self, text: str, names: Iterable[str] = ()) -> str:
        """A panel's heading in as many lines as it needs, over rows with these names."""
        return _lines(text, self.left_in(names) / _LETTER_IN)

    def fit(self, canvas: Canvas) -> None:
        """Break headings and labels of axes that are longer than the sheet is wide."""
        for axes in canvas.axes:
            titles = (one for one in axes.get_children() if isinstance(one, Text) and one not in axes.texts)
            for text in (axes.xaxis.label, *titles):
                lines = text.get_text().splitlines()
                text.set_text("\n".join(_lines(line, (self.width_in - _AXIS_IN) / _LETTER_IN) for line in lines))

    def columns(self, labels: Iterable[str]) -> int:
        """How many keys with these labels fit on a line."""
        longest = max(map(len, labels), default=0)
        return max(1, min(4, int(self.width_in / (_HANDLE_IN + _CHARACTER_IN * longest))))

    def key_in(self, names: Sequence[str]) -> float:
        """Height of the lines beyond the first that a key with these names takes: what its panel must be higher."""
        return _KEY_IN * (-(-len(names) // self.columns(names)) - 1)

    def key(self, axes: Axes, looks: Iterable[Look], *, lines: bool = True) -> None:
        """Name the treatments above a panel, each with its line and marker; the panel's title moves up."""
        handles = [
            Line2D([], [], **look.marks(5) | {"linestyle": look.dash if lines else "none"}, label=look.name)
            for look in looks
        ]
        self.legend(axes, handles, loc="lower left", bbox_to_anchor=(0, 1.0), labelcolor="linecolor", handlelength=2.4)

    def legend(self, axes: Axes, handles: Sequence[Artist], **options: Any) -> None:
        """Keys above a panel, as many on a line as fit; the panel's title moves up."""
        columns = self.columns([str(handle.get_label()) for handle in handles])
        for handle in handles:
            handle.set_label(_lines(str(handle.get_label()), (self.width_in - _HANDLE_IN) / _CHARACTER_IN))
        lines = max(str(handle.get_label()).count("\n") + 1 for handle in handles)
        axes.legend(handles=handles, ncols=columns, borderaxespad=0.2, columnspacing=1.2, handletextpad=0.5, **options)
        if axes.get_title(loc="left"):
            axes.set_title(axes.get_title(loc="left"), pad=8 + 14 * lines * -(-len(handles) // columns))


def _lines(text: str, letters: float) -> str:
    """A text in lines of so many letters; the name of a treatment may go on behind the signs that join its parts."""
    return textwrap.fill(text.replace("+", "+ "), max(12, int(letters))).replace("+ ", "+")


# A phone shows the narrow one at a third more than its size: small labels are as large as the text around them.
WIDE, NARROW = Sheet(7.4), Sheet(2.9)
