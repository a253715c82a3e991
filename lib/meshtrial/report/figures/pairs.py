"""Every treatment against every other, as a matrix: which pairs were shown to differ, and by how much."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, sheet, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.figures.forest import columns_of, unit_of
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import GREY, HUES, INK
from meshtrial.vocabulary import BETWEEN

_LESS, _MORE = (to_rgb(colour) for colour in HUES[:2])
_STRONGEST = 0.55  # share of a colour that leaves the words on it legible, on a light page and a dark one
_FAINTEST = 0.25  # share of that for the smallest difference, so that it is seen
_COLOURS = LinearSegmentedColormap.from_list(
    "pairs", [(*_LESS, _STRONGEST), (*_LESS, 0.0), (*_MORE, 0.0), (*_MORE, _STRONGEST)]
)
_CELL_IN, _NAMES_IN = 0.5, 1.7


def pairs(data: StudyData) -> Figure:
    """Every pair of treatments in a study that compares them with each other, a matrix a response."""
    contrasts = frames.contrasts(data, primary=True, family=BETWEEN)
    contrasts = contrasts.where(lambda row: contrasts.reported(row) and row.n_blocks > 0)
    if not contrasts.rows:
        return empty("This study declared no contrasts between its treatments, or has no verdicts of them yet.")
    caption = (
        "Each treatment of a row against each of a column: the effect, and the sign of its verdict. Coloured: a "
        "difference was shown; the stronger the colour, the larger it is, orange for more and blue for less. All pairs "
        "of a matrix are corrected together."
    )
    return Figure.of(
        lambda: _draw(contrasts), contrasts.rows, columns_of(contrasts.rows), "Pairs of treatments", _says, caption
    )


def _says(row: VerdictRow) -> str:
    where = f"{row.treatment} against {row.baseline} at {row.load}, {wording.typical(row)}"
    return f"{where}: {wording.effect_in_full(row)}, {wording.verdict_text(row)}"


def _draw(contrasts: Contrasts) -> Canvas:
    panels = contrasts.panels("load", "response")
    heights = [_NAMES_IN + _CELL_IN * len(set(panel.treatments)) for panel in panels]
    figure, axes = sheet.panels(heights)
    for axis, panel in zip(axes, panels, strict=True):
        _matrix(axis, panel)
        load = panel.rows[0].load if len(contrasts.loads) > 1 else ""
        axis.set_title(frames.panel_title(load, wording.typical(panel.rows[0]) + unit_of(panel.rows)))
    return figure


def _matrix(axis: Axes, panel: Contrasts) -> None:
    # It takes longer to load than matplotlib, and not every command draws.
    import seaborn

    down, across = panel.treatments, list(dict.fromkeys(row.baseline for row in panel.rows))
    unit = unit_of(panel.rows)
    sizes, texts = np.zeros((len(down), len(across))), np.full((len(down), len(across)), "", dtype=object)
    for row in panel.rows:
        place = down.index(row.treatment), across.index(row.baseline)
        middle = frames.effect(row)[0]
        texts[place] = f"{row.verdict.glyph}\n{wording.signed(middle) if unit else wording.effect(row)}"
        if row.verdict.different and middle is not None:
            sizes[place] = middle if row.by_difference else math.log(middle)
    shares = np.abs(sizes) / (np.abs(sizes).max() or 1.0)
    seaborn.heatmap(
        np.sign(sizes) * (_FAINTEST + (1 - _FAINTEST) * shares),
        vmin=-1,
        vmax=1,
        cmap=_COLOURS,
        annot=texts,
        fmt="",
        annot_kws={"color": INK, "size": sheet.SMALL},
        cbar=False,
        linewidths=0.5,
        linecolor=GREY,
        xticklabels=[_broken(name) for name in across],
        yticklabels=[_broken(name) for name in down],
        ax=axis,
    )
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.tick_params(axis="x", labelrotation=90)
    axis.tick_params(axis="y", labelrotation=0)


def _broken(name: str) -> str:
    """The name of a treatment, a part a line."""
    return name.replace("+", "\n+")
