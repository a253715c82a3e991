"""Ratios with their intervals against the margin: the figure that a verdict can be read off, and all at a glance.

At a glance, for a first screen, a column is a response and a row a treatment, one panel below another where loads or
baselines differ. What a mark is worth in words stands in the table of verdicts and in the forest plot; there the eye
compares treatments.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, estimate, factor_axis
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet
from meshtrial.report.tables.between import letter

MOST_ROWS = 18  # of a picture that is taken in at once
_TITLE_IN = 0.105  # of a letter of a panel's title
_DOTTED = (
    "The A/A twin is the baseline deployed a second time: dotted lines carry the ends of its interval, what noise "
    "alone does, to the other rows."
)
_TWO = (
    " A and B are two studies: what one deployed, the other may lack. They share no block, so a difference between "
    "them may be the day as well as anything else; mt.tables.between says what agrees."
)


def forest(data: StudyData, load: str | None = None) -> Figure:
    """Every primary contrast of a study: ratio to the baseline, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        One load's label; all loads without it.
    """
    return forest_of(frames.contrasts(data, load=load, primary=True, family=""))


def forest_of(contrasts: Contrasts, note: str = "") -> Figure:
    """The same of any verdict rows, a panel a response, load and baseline; ``note`` ends its caption."""
    panels = contrasts.panels("load", "response", "baseline")
    shown = [panel for panel in panels if any(map(contrasts.reported, panel.rows))]
    if not shown:
        return empty("No verdict of a primary response has been computed yet.")
    rows = [row for panel in shown for row in panel.rows]
    caption = (
        f"Ratio of each treatment to {_base(contrasts)} (Hodges-Lehmann) with its interval. The shaded band is the "
        f"margin: {_margin_words(rows)}. Right of 1 costs more."
    )
    if any(row.twin for row in rows):
        caption += f" {_DOTTED}"
    absent = [panel.rows[0] for panel in panels if panel not in shown]
    if absent:
        named = wording.listing([f"{wording.short_label(row.response)} at {row.load}" for row in absent])
        caption += f" Not reported, and not drawn: {named}."
    return Figure(lambda sheet: _draw(contrasts, shown, sheet), _alt(rows), caption + note, _table(rows))


def two_studies(data: StudyData, other: StudyData) -> Figure:
    """Every primary contrast of two studies: ratio to its baseline, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
        Study A.
    other : StudyData
        Study B.
    """
    own = [frames.contrasts(one, primary=True, family="") for one in (data, other)]
    found = [_lettered(contrasts, letter(n)) for n, contrasts in enumerate(own)]
    loads = tuple(dict.fromkeys(load for contrasts in found for load in contrasts.loads))
    looks = palette.Looks((name, look) for contrasts in found for name, look in contrasts.looks.items())
    responses = list(dict.fromkeys(row.response for one in own for row in one.rows))
    treatments = list(dict.fromkeys(name for one in own for name in one.looks))

    def place(row: VerdictRow) -> tuple[object, ...]:
        name = row.treatment.rpartition(" ")[0]
        return loads.index(row.load), responses.index(row.response), row.baseline, not row.twin, treatments.index(name)

    # Stable: of a treatment that both deployed, A stands over B.
    rows = sorted((row for contrasts in found for row in contrasts.rows), key=place)
    missing = frozenset().union(*(contrasts.unreported for contrasts in found))
    return forest_of(Contrasts(tuple(rows), looks, loads, missing), _TWO)


def _lettered(contrasts: Contrasts, name: str) -> Contrasts:
    """Its treatments with the study's letter behind them; what they are compared with keeps its name."""
    return replace(
        contrasts,
        rows=tuple(replace(row, treatment=f"{row.treatment} {name}") for row in contrasts.rows),
        looks=palette.Looks((f"{treatment} {name}", look) for treatment, look in contrasts.looks.items()),
        unreported=frozenset(
            (load, response, f"{treatment} {name}") for load, response, treatment in contrasts.unreported
        ),
    )


def _base(contrasts: Contrasts) -> str:
    """What the ratios are to."""
    return contrasts.baselines[0] if len(contrasts.baselines) == 1 else "its baseline"


def _margin_words(rows: Sequence[VerdictRow]) -> str:
    """What the margin is: declared before the runs, or chosen after them."""
    return f"what {'is taken as' if any(row.after_the_fact for row in rows) else 'was declared'} too small to matter"


def _span(rows: Sequence[VerdictRow]) -> tuple[float, float]:
    """Ends of an axis that has room for these ratios, their intervals and margins."""
    ends = [value for row in rows for end in (row.ci_low, row.ci_high, row.ratio) for value in _drawable(end)]
    ends += [factor for row in rows for factor in _band(row)]
    low, high = min([0.9, *ends]), max([1.1, *ends])
    room = (math.log(high) - math.log(low)) * 0.05
    return math.exp(math.log(low) - room), math.exp(math.log(high) + room)


def _background(axis: Axes, rows: Sequence[VerdictRow]) -> None:
    """The margin's band, the line of no change, and how far the A/A twin's interval reaches."""
    band = next((_band(row) for row in rows if _band(row)), ())
    if band:
        axis.axvspan(*band, color=INK, alpha=0.09, linewidth=0)
    axis.axvline(1, color=INK, linewidth=0.9)
    for end in (end for row in rows if row.twin for side in (row.ci_low, row.ci_high) for end in _drawable(side)):
        axis.axvline(end, color=palette.GREY, linewidth=0.9, linestyle=(0, (1, 1.8)))


def _tip(row: VerdictRow) -> str:
    """What a mark says when a pointer rests on it."""
    added = "" if row.difference is None else wording.added(row)
    said = (f"{wording.treatment(row)} against {row.baseline}", _numbers(row), added, wording.verdict_text(row))
    return ", ".join(filter(None, said))


def _drawable(value: float | None) -> list[float]:
    """The value, where a logarithmic axis can hold it."""
    return [value] if value is not None and math.isfinite(value) and value > 0 else []


def _band(row: VerdictRow) -> tuple[float, ...]:
    return () if row.margin is None or row.ratio is None else (1 / (1 + row.margin), 1 + row.margin)


def _draw(contrasts: Contrasts, panels: Sequence[Contrasts], sheet: Sheet) -> Canvas:
    figure, axes = sheet.panels([0.62 + sheet.row_in * len(panel.rows) for panel in panels])
    for axis, panel in zip(axes, panels, strict=True):
        axis.set_title(sheet.wrapped(contrasts.title(panel.rows[0], wording.typical(panel.rows[0]))))
        factor_axis(axis, *_span(panel.rows), sheet.ticks)
        _background(axis, panel.rows)
        # Over its row a name shares the line with the verdict.
        names = [row.treatment if sheet.narrow else wording.treatment(row) for row in panel.rows]
        sheet.rows(axis, names, [contrasts.looks[row.treatment].colour for row in panel.rows])
        for place, row in enumerate(panel.rows):
            _row(axis, place, row, contrasts.looks[row.treatment], sheet)
        axis.spines["left"].set_visible(False)
    axes[-1].set_xlabel(f"ratio to {_base(contrasts)} (log scale)")
    return figure


def _row(axis: Axes, place: int, row: VerdictRow, look: palette.Look, sheet: Sheet) -> None:
    mark, beside = row.verdict, axis.get_yaxis_transform()
    # What the floor's share would have been stands in the table.
    said = f"{mark.glyph} {wording.verdict_text(row, brief=True)}"
    numbers = _numbers(row)
    if sheet.narrow:
        said = said.replace("(a new study of about ", "(new study: ")
        change = f"{wording.change(row.ratio, row.ci_high)}  " if row.ratio is not None else ""
        # How large a new study would be stands in the table too.
        text = change + (said if sheet.holds(row.treatment, change, said) else f"{mark.glyph} {mark}")
        axis.text(1, place - 0.38, text, transform=beside, ha="right", size=SMALL, gid="halo")
    else:
        text = f"{numbers}\n{said}" if numbers else said
        axis.text(1.02, place, text, transform=beside, va="center", size=SMALL, linespacing=1.15)
    if row.ratio is None or not _drawable(row.ratio):
        axis.plot([0.02], [place], marker=mark.marker, color=look.colour, transform=beside, clip_on=False)
        axis.text(0.05, place, _why_not_drawn(row), transform=beside, va="center", size=SMALL, gid="halo")
        return
    left, right = axis.get_xlim()
    ends = [(*_drawable(row.ci_low), left)[0], (*_drawable(row.ci_high), right)[0]]
    for end in ends:
        axis.plot([end, end], [place - 0.13, place + 0.13], color=look.colour, linewidth=1.2)
    estimate(axis, place, ends, row.ratio, look, marker=mark.marker, filled=mark.filled, size=7.5, said=_tip(row))


def _numbers(row: VerdictRow) -> str:
    if row.ratio is None:
        return ""
    return f"{wording.change(row.ratio, row.ci_high)} ({wording.change_interval(row.ci_low, row.ci_high)})"


def _why_not_drawn(row: VerdictRow) -> str:
    if row.verdict.standing == "stopped":
        return f"{row.verdict}: no ratio is given"
    if row.difference is not None:
        return f"{row.baseline} has none of it: {wording.added(row)}"
    return "not computed"


def _alt(rows: Sequence[VerdictRow]) -> str:
    """What a picture of these ratios shows, in numbers."""
    parts = []
    for row in rows:
        load = f" at {row.load}" if len({one.load for one in rows}) > 1 else ""
        against = f" against {row.baseline}" if len({one.baseline for one in rows}) > 1 else ""
        where = f"{wording.treatment(row)}{against}{load}, {wording.typical(row)}"
        parts.append(f"{where}: {_numbers(row) or _why_not_drawn(row)}, {wording.verdict_text(row)}")
    bases = wording.listing(list(dict.fromkeys(row.baseline for row in rows)))
    return alt_text(f"Forest plot of ratios to {bases}", parts)


def _table(rows: Sequence[VerdictRow]) -> pl.DataFrame:
    """A row a ratio."""
    return pl.DataFrame(
        {
            "treatment": [wording.treatment(row) for row in rows],
            "against": [row.baseline for row in rows],
            "load": [row.load for row in rows],
            "response": [wording.typical(row) for row in rows],
            "ratio": [row.ratio for row in rows],
            "low": [row.ci_low for row in rows],
            "high": [row.ci_high for row in rows],
            "confidence / %": [None if row.confidence is None else 100 * row.confidence for row in rows],
            "margin / %": [None if row.margin is None else 100 * row.margin for row in rows],
            "blocks": [row.n_blocks for row in rows],
            "verdict": [wording.verdict_text(row) for row in rows],
        },
        schema_overrides={"ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64},
    )


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
        f"Ratio of each treatment to {_base(contrasts)} with its interval, on a logarithmic scale. Shaded: the "
        f"margin, {_margin_words(drawn)}. Filled marks: a difference or equivalence was shown; open: it was not."
    )
    if any(row.twin for row in drawn):
        caption += f" {_DOTTED}"
    if len(shown) < len(groups):
        left = len(contrasts.rows) - len(drawn)
        caption += f" The forest plot below has the other {wording.count(left)} ratios too."
    return Figure(lambda sheet: _glance(contrasts, shown, sheet), _alt(drawn), caption, _table(drawn))


def _glance(contrasts: Contrasts, groups: Sequence[Contrasts], sheet: Sheet) -> Canvas:
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
        low, high = _span([row for group in groups for row in group.rows if row.response == response])
        for place, group in enumerate(groups):
            axis = axes[place][column]
            factor_axis(axis, low, high, 2 if sheet.narrow else 5)
            axis.tick_params(axis="x", labelsize=7.5, labelbottom=place == len(groups) - 1)
            _beside(axis, group, response, sheet, first=column == 0)
        letters = int(sheet.width_in / len(responses) / _TITLE_IN)
        title = textwrap.fill(wording.short_label(response), max(8, letters))
        _over(axes[0][column], title, 18 if titles[0] else 4, size=8.5, weight="bold")
    for title, (first, *_) in zip(titles, axes, strict=True):
        _over(first, title, 4, size=8, weight="normal")
    return figure


def _over(axis: Axes, title: str, points: int, *, size: float, weight: str) -> None:
    axis.annotate(title, (0, 1), (0, points), "axes fraction", "offset points", size=size, weight=weight, va="bottom")


def _beside(axis: Axes, group: Contrasts, response: str, sheet: Sheet, *, first: bool) -> None:
    names = group.treatments
    rows = {row.treatment: row for row in group.rows if row.response == response}
    _background(axis, [rows[name] for name in names if name in rows])
    sheet.rows(axis, names if first else [""] * len(names), [group.looks[name].colour for name in names])
    if not sheet.narrow:
        axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines["left"].set_visible(False)
    low, high = axis.get_xlim()
    for place, row in ((place, rows[name]) for place, name in enumerate(names) if name in rows):
        mark = row.verdict
        if row.ratio is None or not _drawable(row.ratio):
            axis.text(0.5, place, mark, transform=axis.get_yaxis_transform(), ha="center", va="center", size=7.5)
            continue
        ends = [
            min(max((*_drawable(end), edge)[0], low), high) for end, edge in ((row.ci_low, low), (row.ci_high, high))
        ]
        look = group.looks[row.treatment]
        estimate(axis, place, ends, row.ratio, look, marker=mark.marker, filled=mark.filled, size=6, said=_tip(row))
