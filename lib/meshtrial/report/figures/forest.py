"""Effects with their intervals against the margin: forest plots, the picture of a first screen, and pairs.

The picture of a first screen has a column per response and a row per treatment, so that the eye compares treatments;
loads and baselines are panels below one another. The verdicts in words are in the forest plot and in the table. Pairs
of treatments are a matrix.
"""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, empty
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import GREY, HUES, INK

MOST_ROWS = 18  # rows that a first screen has room for
_GLANCE_IN = 0.36  # height of such a row with its name above it
_TITLE_IN = 0.105  # width of a letter in a panel's title
_DOTTED = (
    "The A/A twin is the baseline deployed a second time. Dotted lines extend the ends of its interval, which noise "
    "alone produced, to the other rows."
)
_COLUMNS: Columns[VerdictRow] = {
    "treatment": wording.treatment,
    "against": lambda row: row.baseline,
    "load": lambda row: row.load,
    "response": wording.typical,
    "blocks": lambda row: row.n_blocks,
    "verdict": wording.verdict_text,
    "verdict on": lambda row: row.scale,
    "confidence / %": lambda row: None if row.confidence is None else 100 * row.confidence,
    "ratio": lambda row: row.ratio,
    "ratio low": lambda row: row.ci_low,
    "ratio high": lambda row: row.ci_high,
    "margin / %": lambda row: None if row.by_difference or row.margin is None else 100 * row.margin,
}
_TWO = (
    " A and B are two studies; either may have treatments that the other lacks. They share no block, so a difference "
    "between them may come from the day or from anything else. mt.tables.between shows where they agree."
)


def columns_of(rows: Sequence[VerdictRow]) -> Columns[VerdictRow]:
    """Return the columns of these rows' numbers, with added amounts and their margins in a column per unit."""

    def in_unit(unit: str, place: int, row: VerdictRow) -> float | None:
        """Return the added amount, an end of its interval or its margin; None in the unit of another response."""
        response = wording.response_of(row)
        margin = row.margin * response.scale if row.by_difference and row.margin is not None else None
        return (*frames.differences(row), margin)[place] if wording.unit(response) == unit else None

    columns = dict(_COLUMNS)
    for unit in dict.fromkeys(wording.unit(wording.response_of(row)) for row in rows):
        for place, name in enumerate(("added", "added low", "added high", "margin")):
            columns[f"{name} / {unit}".removesuffix(" / ")] = partial(in_unit, unit, place)
    return columns


def forest(data: StudyData, load: str | None = None) -> Figure:
    """Draw every primary contrast of a study: effect on the scale of its verdict, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; default: all loads.
    """
    return forest_of(frames.contrasts(data, load=load, primary=True, between=False))


def forest_of(contrasts: Contrasts, note: str = "") -> Figure:
    """Draw any verdict rows, one panel per response, load and baseline; ``note`` ends the caption."""
    panels = contrasts.panels("load", "response", "baseline")
    reported = [panel for panel in panels if any(map(contrasts.reported, panel.rows))]
    if not reported:
        return empty("No verdict of a primary response has been computed yet.")
    rows = [row for panel in reported for row in panel.rows]
    caption = (
        f"{_effect_phrase(reported)} {_base(contrasts)} (Hodges-Lehmann) with its interval. The shaded band is the "
        f"margin: {_margin_phrase(rows)}. Right of the line is more."
    )
    if any(row.twin for row in rows):
        caption += f" {_DOTTED}"
    absent = [panel.rows[0] for panel in panels if panel not in reported]
    if absent:
        named = wording.listing([f"{wording.short_label(row.response)} at {row.load}" for row in absent])
        caption += f" Not reported and not drawn: {named}."
    return _figure(lambda: _draw(contrasts, reported), rows, caption + note)


def _margin_phrase(rows: Sequence[VerdictRow]) -> str:
    """Return what the margin is: declared before the runs, or chosen after them."""
    return f"effects {'taken' if any(row.after_the_fact for row in rows) else 'declared'} to be too small to matter"


def two_studies(data: StudyData, other: StudyData) -> Figure:
    """Draw every primary contrast of two studies: effect, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
        Study A.
    other : StudyData
        Study B.
    """
    studies = {"A": frames.contrasts(data, primary=True, between=False)}
    studies["B"] = frames.contrasts(other, primary=True, between=False)
    loads = tuple(dict.fromkeys(load for one in studies.values() for load in one.loads))
    responses = list(dict.fromkeys(row.response for one in studies.values() for row in one.rows))
    treatments = list(dict.fromkeys(name for one in studies.values() for name in one.looks))

    def sort_key(row: VerdictRow) -> tuple[object, ...]:
        place = treatments.index(row.treatment)
        return loads.index(row.load), responses.index(row.response), row.baseline, not row.twin, place

    # The sort is stable: a treatment that both studies have is listed as A, then B. Baselines keep their names.
    rows = sorted(
        ((row, letter) for letter, one in studies.items() for row in one.rows), key=lambda of: sort_key(of[0])
    )
    lettered = tuple(replace(row, treatment=f"{row.treatment} {letter}") for row, letter in rows)
    looks = palette.Styles(
        (f"{name} {letter}", look) for letter, one in studies.items() for name, look in one.looks.items()
    )
    missing = frozenset(
        (load, response, f"{name} {letter}")
        for letter, one in studies.items()
        for load, response, name in one.unreported
    )
    return forest_of(Contrasts(lettered, looks, loads, missing), _TWO)


def _by_difference(rows: Sequence[VerdictRow]) -> bool:
    compared = [row for row in rows if row.n_blocks]
    return bool(compared) and all(row.by_difference for row in compared)


def _effect_phrase(panels: Sequence[Contrasts]) -> str:
    """Return the beginning of a caption, which a baseline's name completes."""
    kinds = {_by_difference(panel.rows) for panel in panels}
    if len(kinds) > 1:
        return "Amount added by each treatment (ratio, on axes with ×) against"
    return "Amount that each treatment adds to" if kinds == {True} else "Ratio of each treatment to"


def _base(contrasts: Contrasts) -> str:
    return contrasts.baselines[0] if len(contrasts.baselines) == 1 else "its baseline"


# An effect in the units of its axis: estimate and ends of the interval; an end that the axis cannot show is None.
_AxisEffect = tuple[float, float | None, float | None]


def _axis_effect(row: VerdictRow, added: bool) -> _AxisEffect | None:
    """Return the effect that an axis of added amounts or of ratios can show, or None if the row has none."""
    if not row.n_blocks or row.by_difference != added:
        return None
    # A logarithmic axis cannot show zero.
    middle, low, high = (end if added or (end and end > 0) else None for end in frames.effect(row))
    return None if middle is None else (middle, low, high)


def _axis(axis: Axes, rows: Sequence[VerdictRow], ticks: int) -> None:
    added = _by_difference(rows)
    effects = [end for row in rows for end in _axis_effect(row, added) or ()]
    ends = [end for end in effects if end is not None and math.isfinite(end)]
    ends += [end for row in rows for end in _band(row, added)]
    if not added:
        low, high = (math.log(end) for end in (min([0.9, *ends]), max([1.1, *ends])))
        room = (high - low) * 0.05
        sheet.factor_axis(axis, math.exp(low - room), math.exp(high + room), ticks)
        return
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = (high - low or 1.0) * 0.05
    sheet.added_axis(axis, low - room, high + room, ticks)


def _background(axis: Axes, rows: Sequence[VerdictRow], added: bool) -> None:
    band = next((ends for row in rows if (ends := _band(row, added))), ())
    if band:
        axis.axvspan(*band, color=INK, alpha=0.09, linewidth=0)
    axis.axvline(0 if added else 1, color=INK, linewidth=0.9)
    for _, *edges in (effect for row in rows if row.twin and (effect := _axis_effect(row, added))):
        for end in edges:
            if end is not None:
                axis.axvline(end, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.8)))


def unit_of(rows: Sequence[VerdictRow]) -> str:
    """Return the unit of an axis of added amounts as the end of its title; nothing for ratios."""
    unit = wording.unit(wording.response_of(rows[0])) if _by_difference(rows) else ""
    return f", in {unit}" if unit else ""


def _band(row: VerdictRow, added: bool) -> tuple[float, ...]:
    if row.margin is None or not row.n_blocks or row.by_difference != added:
        return ()
    if added:
        half = row.margin * wording.response_of(row).scale
        return -half, half
    return 1 / (1 + row.margin), 1 + row.margin


def _draw(contrasts: Contrasts, panels: Sequence[Contrasts]) -> Canvas:
    figure, axes = sheet.panels([0.62 + sheet.ROW_IN * len(panel.rows) for panel in panels])
    for axis, panel in zip(axes, panels, strict=True):
        names = [row.treatment for row in panel.rows]
        added = _by_difference(panel.rows)
        axis.set_title(contrasts.title(panel.rows[0], wording.typical(panel.rows[0]) + unit_of(panel.rows)))
        _axis(axis, panel.rows, sheet.TICKS)
        _background(axis, panel.rows, added)
        sheet.rows(axis, names, [contrasts.looks[row.treatment].colour for row in panel.rows])
        for place, row in enumerate(panel.rows):
            _row(axis, place, row, added, contrasts.looks[row.treatment])
        axis.spines["left"].set_visible(False)
    base = _base(contrasts)
    label = f"added to {base}" if _by_difference(panels[-1].rows) else f"ratio to {base} (log scale)"
    axes[-1].set_xlabel(label)
    return figure


def _row(axis: Axes, place: int, row: VerdictRow, added: bool, look: palette.TreatmentStyle) -> None:
    verdict, beside = row.verdict, axis.get_yaxis_transform()
    # The verdict shares the line with the treatment's name, so the longest text that fits is taken.
    text = f"{verdict.glyph} {wording.verdict_text(row, brief=True)}".replace("(a new study of about ", "(new study: ")
    change = f"{wording.effect(row)}  " if row.n_blocks else ""
    texts = (change + text, f"{change}{verdict.glyph} {verdict}", f"{verdict.glyph} {verdict}")
    text = next((one for one in texts if sheet.fits_on_line(row.treatment, one)), verdict.glyph)
    axis.text(1, place - 0.38, text, transform=beside, ha="right", size=sheet.SMALL, gid="halo")
    effect = _axis_effect(row, added)
    if effect is None:
        axis.plot([0.02], [place], marker=verdict.marker, color=look.colour, transform=beside, clip_on=False)
        axis.text(0.05, place, _why_not_drawn(row), transform=beside, va="center", size=sheet.SMALL, gid="halo")
        return
    edges = zip(effect[1:], axis.get_xlim(), strict=True)
    ends = [edge if end is None else end for end, edge in edges]
    for end in ends:
        axis.plot([end, end], [place - 0.13, place + 0.13], color=look.colour, linewidth=1.2)
    _estimate(axis, place, ends, effect[0], row, look, 7.5)


def _estimate(
    axis: Axes,
    place: int,
    ends: Sequence[float],
    middle: float,
    row: VerdictRow,
    look: palette.TreatmentStyle,
    size: float,
) -> None:
    texts = (wording.effect_in_full(row), wording.other_effect(row), wording.verdict_text(row))
    tip = ", ".join(filter(None, (f"{wording.treatment(row)} against {row.baseline}", *texts)))
    marker, filled = row.verdict.marker, row.verdict.filled
    sheet.estimate(axis, place, ends, middle, look, marker=marker, filled=filled, size=size, tip=tip)


def _why_not_drawn(row: VerdictRow) -> str:
    if row.verdict.standing == "stopped":
        return f"{row.verdict}: no effect is given"
    if row.n_blocks and row.difference is None:
        return "no estimate: too many runs are ranked last"
    if row.difference is not None and row.ratio is None:
        return f"{row.baseline} uses none: {wording.added(row)}"
    return "not computed"


def _figure(draw: Callable[[], Canvas], rows: Sequence[VerdictRow], caption: str) -> Figure:
    loads, bases = (list(dict.fromkeys(names)) for names in zip(*((r.load, r.baseline) for r in rows), strict=True))

    def describe(row: VerdictRow) -> str:
        against = f" against {row.baseline}" if len(bases) > 1 else ""
        load = f" at {row.load}" if len(loads) > 1 else ""
        numbers = (wording.effect_in_full(row) if row.n_blocks else "") or _why_not_drawn(row)
        return (
            f"{wording.treatment(row)}{against}{load}, {wording.typical(row)}: {numbers}, {wording.verdict_text(row)}"
        )

    summary = f"Forest plot against {wording.listing(bases)}"
    return Figure.from_rows(draw, rows, columns_of(rows), summary, describe, caption)


def answer(data: StudyData) -> Figure:
    """Draw the primary contrasts of a study that a first screen has room for."""
    contrasts = frames.contrasts(data, primary=True, between=False)
    contrasts = contrasts.where(contrasts.reported)
    if not contrasts.rows:
        return empty("No verdict of a primary response has been computed yet.")
    # A group is one row of panels: the contrasts with one baseline at one load.
    groups = contrasts.panels("load", "baseline")
    chosen = groups[:1]
    for group in groups[1:]:
        if sum(len(one.treatments) for one in (*chosen, group)) > MOST_ROWS:
            break
        chosen.append(group)
    rows = [row for group in chosen for row in group.rows]
    caption = (
        f"{_effect_phrase(contrasts.panels('response'))} {_base(contrasts)} with its interval. Shaded: the margin, "
        f"{_margin_phrase(rows)}. Filled marks: a difference or equivalence was shown. Open marks: neither was."
    )
    if any(row.twin for row in rows):
        caption += f" {_DOTTED}"
    if len(chosen) < len(groups):
        remaining = len(contrasts.rows) - len(rows)
        caption += f" The forest plot below also has the other {wording.count(remaining)}."
    return _figure(lambda: _glance(contrasts, chosen), rows, caption)


def _glance(contrasts: Contrasts, groups: Sequence[Contrasts]) -> Canvas:
    responses = list(dict.fromkeys(row.response for row in contrasts.rows))
    titles = [contrasts.title(group.rows[0]) for group in groups]
    heights = [
        0.3 + 0.2 * bool(title) + _GLANCE_IN * len(group.treatments)
        for title, group in zip(titles, groups, strict=True)
    ]
    heights[0] += 0.5
    heights[-1] += 0.12
    figure = sheet.canvas(sheet.WIDTH_IN, sum(heights))
    axes = figure.subplots(len(groups), len(responses), squeeze=False, gridspec_kw={"height_ratios": heights})

    def set_title(axis: Axes, title: str, points: int, weight: str) -> None:
        where = ((0, 1), (0, points), "axes fraction", "offset points")
        axis.annotate(title, *where, size=sheet.SMALL, weight=weight, va="bottom")

    for column, response in enumerate(responses):
        every = [row for group in groups for row in group.rows if row.response == response]
        for place, group in enumerate(groups):
            axis = axes[place][column]
            _axis(axis, every, 2)
            axis.tick_params(axis="x", labelsize=sheet.SMALL, labelbottom=place == len(groups) - 1)
            _group_panel(axis, group, response, first=column == 0, added=_by_difference(every))
        letters = int(sheet.WIDTH_IN / len(responses) / _TITLE_IN)
        title = textwrap.fill(wording.short_label(response) + unit_of(every), max(8, letters))
        set_title(axes[0][column], title, 18 if titles[0] else 4, "bold")
    for title, row in zip(titles, axes, strict=True):
        set_title(row[0], title, 4, "normal")
        row[0].set_zorder(1)  # its names may extend over the next panels
    return figure


def _group_panel(axis: Axes, group: Contrasts, response: str, *, first: bool, added: bool) -> None:
    names = group.treatments
    rows = {row.treatment: row for row in group.rows if row.response == response}
    _background(axis, [rows[name] for name in names if name in rows], added)
    sheet.rows(axis, names if first else [""] * len(names), [group.looks[name].colour for name in names])
    axis.spines["left"].set_visible(False)
    low, high = axis.get_xlim()
    for place, row in ((place, rows[name]) for place, name in enumerate(names) if name in rows):
        effect = _axis_effect(row, added)
        if effect is None:
            across = axis.get_yaxis_transform()
            axis.text(0.5, place, row.verdict, transform=across, ha="center", va="center", size=sheet.SMALL)
            continue
        edges = zip(effect[1:], (low, high), strict=True)
        ends = [edge if end is None else min(max(end, low), high) for end, edge in edges]
        _estimate(axis, place, ends, effect[0], row, group.looks[row.treatment], 6)


_LESS, _MORE = (to_rgb(colour) for colour in HUES[:2])
_STRONGEST = 0.55  # opacity at which text stays legible, on a light page and on a dark one
_FAINTEST = 0.25  # share of that opacity for the smallest difference, so that it can be seen
_COLOURS = LinearSegmentedColormap.from_list(
    "pairs", [(*_LESS, _STRONGEST), (*_LESS, 0.0), (*_MORE, 0.0), (*_MORE, _STRONGEST)]
)
_CELL_IN, _NAMES_IN = 0.5, 1.7


def pairs(data: StudyData) -> Figure:
    """Draw a matrix per response for a study that compares its treatments with each other."""
    contrasts = frames.contrasts(data, primary=True, between=True)
    contrasts = contrasts.where(lambda row: contrasts.reported(row) and row.n_blocks > 0)
    if not contrasts.rows:
        return empty("This study declared no contrasts between its treatments, or they have no verdicts yet.")
    caption = (
        "Each row's treatment against each column's: the effect, and the symbol of its verdict. Coloured: a difference "
        "was shown; the stronger the colour, the larger it is, orange for more and blue for less. All pairs of a "
        "matrix are corrected together."
    )

    def describe(row: VerdictRow) -> str:
        where = f"{row.treatment} against {row.baseline} at {row.load}, {wording.typical(row)}"
        return f"{where}: {wording.effect_in_full(row)}, {wording.verdict_text(row)}"

    def draw() -> Canvas:
        panels = contrasts.panels("load", "response")
        figure, axes = sheet.panels([_NAMES_IN + _CELL_IN * len(set(panel.treatments)) for panel in panels])
        for axis, panel in zip(axes, panels, strict=True):
            # Names of treatments have a line for each feature.
            _matrix(axis, panel, [name.replace("+", "\n+") for name in panel.treatments])
        return figure

    rows = contrasts.rows
    return Figure.from_rows(draw, rows, columns_of(rows), "Pairs of treatments", describe, caption)


def _matrix(axis: Axes, panel: Contrasts, names: Sequence[str]) -> None:
    # Imported late: it takes longer to load than matplotlib, and not every command draws.
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
        xticklabels=[name.replace("+", "\n+") for name in across],
        yticklabels=names,
        ax=axis,
    )
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.tick_params(axis="x", labelrotation=90)
    axis.tick_params(axis="y", labelrotation=0)
    load = panel.rows[0].load if len(panel.loads) > 1 else ""
    title = frames.panel_title(load, wording.typical(panel.rows[0]) + unit)
    sheet.set_heading(axis, title, names)
