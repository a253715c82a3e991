"""What the figures share: axes in a reader's units, labels that keep clear of one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from meshtrial.report import sheet, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.palette import PAPER, TreatmentStyle

_BELOW = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
_FACTORS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)


def empty(message: str) -> Figure:
    """A figure that says why there is nothing to see."""

    def draw() -> Canvas:
        figure, (axes,) = sheet.panels([0.7])
        axes.set_axis_off()
        axes.text(0, 0.5, "Nothing to draw.", va="center")
        return figure

    return Figure(draw, message, message, pl.DataFrame({"reason": [message]}), nothing=True)


def tick_values(low: float, high: float, most: int = 7) -> list[float]:
    """Round factors between two ratios, 1 among them, never closer together than labels are wide."""
    candidates = {f * 10.0**k for k in range(5) for f in _FACTORS if k == 0 or f in (1, 2, 5)} | set(_BELOW)
    gap = (math.log(high) - math.log(low)) / most
    chosen = [1.0] if low <= 1 <= high else []
    # Rounder values first, so that a crowded axis keeps 2 and 5 rather than 1.05.
    for value in sorted(candidates, key=_roundness):
        if low <= value <= high and all(abs(math.log(value / c)) >= gap for c in chosen):
            chosen.append(value)
    return sorted(chosen)


def _roundness(value: float) -> tuple[int, float]:
    digits = f"{value:.2g}".strip("0").replace(".", "").strip("0")
    return (len(digits), 0 if digits in ("1", "2", "5") else 1)


def factor_axis(axes: Axes, low: float, high: float, most: int = 7) -> None:
    """A logarithmic axis of ratios: 0.9×, 1×, 2×."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(tick_values(low, high, most)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}{wording.TIMES}"))


def added_axis(axes: Axes, low: float, high: float, most: int = 7) -> None:
    """An axis of what is added: −0.1, 0, +0.1."""
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 4, 5, 10]))
    # The last digit that a tick has is far above a float's own.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.signed(round(value, 9))))


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float, most: int = 6) -> None:
    """A logarithmic axis of plain values, labelled 0.1, 0.2, 0.5, 1."""
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    span = math.log10(high / low)
    steps: tuple[float, ...] = (1,) if span > most - 1 else (1, 3) if span > 2.6 else (1, 2, 5)
    if span < 0.7:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    if span < 0.25:
        steps = tuple(1 + 0.1 * i for i in range(90))
    found = [s * 10.0**d for d in decades for s in steps]
    inside = [value for value in found if low <= value <= high]
    while len(inside) > most + 2:
        inside = inside[::2]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", "\u202f")))


def estimate(
    axis: Axes,
    place: float,
    ends: Sequence[float],
    middle: float,
    look: TreatmentStyle,
    *,
    upright: bool = False,
    marker: str = "",
    filled: bool = True,
    size: float = 6.5,
    said: str = "",
) -> None:
    """An interval with its estimate: a mark on a line, open where nothing was shown, and what it says when touched."""
    line, dot = ([place] * len(ends), ends), ([place], [middle])
    axis.plot(*(line if upright else line[::-1]), color=look.colour, linewidth=2, solid_capstyle="butt")
    style = {"marker": marker or look.marker, "markerfacecolor": look.colour if filled else PAPER}
    (drawn,) = axis.plot(*(dot if upright else dot[::-1]), **look.marks(size) | style, markeredgewidth=1.4)
    if said:
        svg.tip(drawn, said)


def strip(
    axes: Axes, places: Sequence[float], values: Sequence[float], look: TreatmentStyle, *, upright: bool = True
) -> None:
    """Every value as a dot at its place on the other axis: a distribution with nothing hidden."""
    # It takes longer to load than matplotlib, and not every command draws.
    import seaborn

    seaborn.stripplot(
        x=places if upright else values,
        y=values if upright else places,
        orient="x" if upright else "y",
        native_scale=True,
        jitter=False,
        ax=axes,
        marker=look.marker,
        size=4,
        facecolors=look.face,
        edgecolor=look.colour,
        linewidth=0.9,
        alpha=0.7,
    )


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``values`` that are at least ``gap`` apart and lie between two bounds."""
    ranked = sorted(range(len(values)), key=lambda i: values[i])
    placed: list[float] = []
    for index in ranked:
        wanted = max(values[index], low)
        placed.append(wanted if not placed else max(wanted, placed[-1] + gap))
    # Pushed beyond the top: move back down from there.
    ceiling = high
    for place in range(len(placed) - 1, -1, -1):
        placed[place] = min(placed[place], ceiling)
        ceiling = placed[place] - gap
    found = [0.0] * len(values)
    for index, value in zip(ranked, placed, strict=True):
        found[index] = value
    return found
