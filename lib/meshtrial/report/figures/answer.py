"""The answer in one picture: every primary ratio with its interval and margin, small enough for a first screen.

A column a response, a row a treatment, one panel below another where loads or baselines differ. What a mark is worth in
words stands in the table of verdicts and in the forest plot; here the eye compares treatments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, estimate, factor_axis
from meshtrial.report.figures.forest import (
    DOTTED,
    alt_of,
    background,
    base_of,
    drawable,
    margin_words,
    span,
    table_of,
    tip_of,
)
from meshtrial.report.frames import Contrasts
from meshtrial.report.sheet import Sheet

MOST_ROWS = 18  # of a picture that is taken in at once
_TITLE_IN = 0.105  # of a letter of a panel's title


def answer(data: StudyData) -> Figure:
    """Every primary contrast of a study that a first screen has room for."""
    contrasts = frames.contrasts(data, primary=True, family="")
    contrasts = contrasts.where(contrasts.reported)
    if not contrasts.rows:
        return empty("No verdict of a primary response has been computed yet.")
    # Contrasts with one baseline at one load: a row of panels.
    groups = contrasts.panels("load", "baseline")
    shown = groups[:1]
    for group in groups[1:]:
        if sum(len(one.treatments) for one in (*shown, group)) > MOST_ROWS:
            break
        shown.append(group)
    drawn = [row for group in shown for row in group.rows]
    caption = (
        f"Ratio of each treatment to {base_of(contrasts)} with its interval, on a logarithmic scale. Shaded: the "
        f"margin, {margin_words(drawn)}. Filled marks: a difference or equivalence was shown; open: it was not."
    )
    if any(row.twin for row in drawn):
        caption += f" {DOTTED}"
    if len(shown) < len(groups):
        left = len(contrasts.rows) - len(drawn)
        caption += f" The forest plot below has the other {wording.count(left)} ratios too."
    return Figure(lambda sheet: _draw(contrasts, shown, sheet), alt_of(drawn), caption, table_of(drawn))


def _draw(contrasts: Contrasts, groups: Sequence[Contrasts], sheet: Sheet) -> Canvas:
    responses = list(dict.fromkeys(row.response for row in contrasts.rows))
    titles = [contrasts.title(group.rows[0]) for group in groups]
    row_in = 0.36 if sheet.narrow else 0.25
    heights = [
        0.3 + 0.2 * bool(title) + row_in * len(group.treatments) for title, group in zip(titles, groups, strict=True)
    ]
    heights[0] += 0.36
    heights[-1] += 0.12
    figure = svg.canvas(sheet.width_in, sum(heights))
    axes = figure.subplots(
        len(groups), len(responses), squeeze=False, sharex="col", gridspec_kw={"height_ratios": heights}
    )
    for column, response in enumerate(responses):
        low, high = span([row for group in groups for row in group.rows if row.response == response])
        for place, group in enumerate(groups):
            axis = axes[place][column]
            factor_axis(axis, low, high, 2 if sheet.narrow else 5)
            axis.tick_params(axis="x", labelsize=7.5, labelbottom=place == len(groups) - 1)
            _panel(axis, group, response, sheet, first=column == 0)
        letters = int(sheet.width_in / len(responses) / _TITLE_IN)
        title = textwrap.fill(wording.short_label(response), max(8, letters))
        _over(axes[0][column], title, 18 if titles[0] else 4, size=8.5, weight="bold")
    for title, (first, *_) in zip(titles, axes, strict=True):
        _over(first, title, 4, size=8, weight="normal")
    return figure


def _over(axis: Axes, title: str, points: int, *, size: float, weight: str) -> None:
    axis.annotate(title, (0, 1), (0, points), "axes fraction", "offset points", size=size, weight=weight, va="bottom")


def _panel(axis: Axes, group: Contrasts, response: str, sheet: Sheet, *, first: bool) -> None:
    names = group.treatments
    rows = {row.treatment: row for row in group.rows if row.response == response}
    background(axis, [rows[name] for name in names if name in rows])
    sheet.rows(axis, names if first else [""] * len(names), [group.looks[name].colour for name in names])
    if not sheet.narrow:
        axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines["left"].set_visible(False)
    low, high = axis.get_xlim()
    for place, row in ((place, rows[name]) for place, name in enumerate(names) if name in rows):
        mark = row.verdict
        if row.ratio is None or not drawable(row.ratio):
            axis.text(0.5, place, mark, transform=axis.get_yaxis_transform(), ha="center", va="center", size=7.5)
            continue
        ends = [
            min(max((*drawable(end), edge)[0], low), high) for end, edge in ((row.ci_low, low), (row.ci_high, high))
        ]
        look = group.looks[row.treatment]
        estimate(axis, place, ends, row.ratio, look, marker=mark.marker, filled=mark.filled, size=6, said=tip_of(row))
