"""The answer in one picture: every primary ratio with its interval and margin, small enough for a first screen.

A column a response, a row a treatment, one panel below another where loads or baselines differ. What a mark is worth in
words stands in the table of verdicts and in the forest plot; here the eye compares treatments.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, factor_axis
from meshtrial.report.figures.forest import DOTTED, alt_of, background, base_of, margin_words, span, table_of, tip_of
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import PAPER
from meshtrial.report.sheet import Sheet

MOST_ROWS = 18  # of a picture that is taken in at once
_TITLE_IN = 0.105  # of a letter of a panel's title


@dataclass(frozen=True)
class _Group:
    """Contrasts with one baseline at one load: a row of panels."""

    title: str
    treatments: tuple[str, ...]
    cells: dict[tuple[str, str], VerdictRow]


def answer(data: StudyData) -> Figure:
    """Every primary contrast of a study that a first screen has room for."""
    return answer_of(frames.contrasts(data, primary=True))


def answer_of(contrasts: Contrasts) -> Figure:
    """The same of any verdict rows."""
    rows = [row for row in contrasts.rows if contrasts.reported(row)]
    if not rows:
        return empty("No verdict of a primary response has been computed yet.")
    responses = list(dict.fromkeys(row.response for row in rows))
    groups = _groups(contrasts, rows)
    shown: list[_Group] = []
    for group in groups:
        if shown and sum(len(one.treatments) for one in (*shown, group)) > MOST_ROWS:
            break
        shown.append(group)
    drawn = [row for group in shown for row in group.cells.values()]
    caption = (
        f"Ratio of each treatment to {base_of(contrasts)} with its interval, on a logarithmic scale. Shaded: the "
        f"margin, {margin_words(drawn)}. Filled marks: a difference or equivalence was shown; open: it was not."
    )
    if any(row.twin for row in drawn):
        caption += f" {DOTTED}"
    if len(shown) < len(groups):
        left = sum(len(group.cells) for group in groups) - len(drawn)
        caption += f" The forest plot below has the other {wording.count(left)} ratios too."
    return Figure(lambda sheet: _draw(contrasts, responses, shown, sheet), alt_of(drawn), caption, table_of(drawn))


def _groups(contrasts: Contrasts, rows: Sequence[VerdictRow]) -> list[_Group]:
    found: dict[tuple[str, str], list[VerdictRow]] = {}
    for row in rows:
        found.setdefault((row.load, row.baseline), []).append(row)
    against = len(contrasts.baselines) > 1
    groups = []
    for (load, base), mine in found.items():
        said = [contrasts.load_title(load), f"against {base}" if against else ""]
        treatments = tuple(contrasts.order([row.treatment for row in mine]))
        cells = {(row.treatment, row.response): row for row in mine}
        groups.append(_Group(" · ".join(filter(None, said)), treatments, cells))
    return groups


def _draw(contrasts: Contrasts, responses: Sequence[str], groups: Sequence[_Group], sheet: Sheet) -> Canvas:
    row_in = 0.36 if sheet.narrow else 0.25
    heights = [0.3 + 0.2 * bool(group.title) + row_in * len(group.treatments) for group in groups]
    heights[0] += 0.36
    heights[-1] += 0.12
    figure = svg.canvas(sheet.width_in, sum(heights))
    axes = figure.subplots(
        len(groups), len(responses), squeeze=False, sharex="col", gridspec_kw={"height_ratios": heights}
    )
    for column, response in enumerate(responses):
        low, high = span([row for group in groups for (_, name), row in group.cells.items() if name == response])
        for place, group in enumerate(groups):
            axis = axes[place][column]
            factor_axis(axis, low, high, 2 if sheet.narrow else 5)
            axis.tick_params(axis="x", labelsize=7.5, labelbottom=place == len(groups) - 1)
            _panel(axis, contrasts, group, response, sheet, first=column == 0)
        letters = int(sheet.width_in / len(responses) / _TITLE_IN)
        title = textwrap.fill(wording.short_label(response), max(8, letters))
        axes[0][column].annotate(
            title, (0, 1), (0, 18 if groups[0].title else 4), xycoords="axes fraction", textcoords="offset points",
            weight="bold", size=8.5, va="bottom",
        )  # fmt: skip
    for group, (first, *_) in zip(groups, axes, strict=True):
        first.annotate(
            group.title, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", size=8, va="bottom"
        )
    return figure


def _panel(axis: Axes, contrasts: Contrasts, group: _Group, response: str, sheet: Sheet, *, first: bool) -> None:
    names = group.treatments
    rows = [row for name in names if (row := group.cells.get((name, response))) is not None]
    background(axis, rows)
    colours = [palette.look_of(contrasts.looks, name).colour for name in names]
    sheet.rows(axis, names if first else [""] * len(names), colours)
    if not sheet.narrow:
        axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines["left"].set_visible(False)
    low, high = axis.get_xlim()
    for row in rows:
        look, mark = palette.look_of(contrasts.looks, row.treatment), wording.look(row)
        place = names.index(row.treatment)
        if row.ratio is None or not (math.isfinite(row.ratio) and row.ratio > 0):
            axis.text(0.5, place, mark.word, transform=axis.get_yaxis_transform(), ha="center", va="center", size=7.5)
            continue
        ends = [
            min(max(end, low), high) if end is not None and end > 0 else edge
            for end, edge in ((row.ci_low, low), (row.ci_high, high))
        ]
        axis.plot(ends, [place, place], color=look.colour, linewidth=2, solid_capstyle="butt")
        (dot,) = axis.plot(
            [row.ratio], [place], marker=mark.marker, markersize=6, color=look.colour, linestyle="none",
            markerfacecolor=look.colour if mark.filled else PAPER, markeredgewidth=1.3,
        )  # fmt: skip
        svg.tip(dot, tip_of(row))
