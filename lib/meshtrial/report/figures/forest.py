"""Ratios with their intervals against the margin: the figure that a verdict can be read off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, svg, wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, factor_axis, panel_title
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK, PAPER
from meshtrial.report.sheet import SMALL, Sheet

DOTTED = (
    "The A/A twin is the baseline deployed a second time: dotted lines carry the ends of its interval, what noise "
    "alone does, to the other rows."
)


@dataclass(frozen=True)
class _Panel:
    title: str
    rows: list[VerdictRow]
    low: float
    high: float


def forest(data: StudyData, load: str | None = None) -> Figure:
    """Every primary contrast of a study: ratio to the baseline, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        One load's label; all loads without it.
    """
    return forest_of(frames.contrasts(data, load=load, primary=True))


def forest_of(contrasts: Contrasts, note: str = "") -> Figure:
    """The same of any verdict rows, a panel a response, load and baseline; ``note`` ends its caption."""
    groups: dict[tuple[str, str, str], list[VerdictRow]] = {}
    for row in contrasts.rows:
        groups.setdefault((row.load, row.response, row.baseline), []).append(row)
    shown = [rows for rows in groups.values() if any(contrasts.reported(row) for row in rows)]
    if not shown:
        return empty("No verdict of a primary response has been computed yet.")
    panels_shown = [_panel(contrasts, rows) for rows in shown]
    rows = [row for panel in panels_shown for row in panel.rows]
    caption = (
        f"Ratio of each treatment to {base_of(contrasts)} (Hodges-Lehmann) with its interval. The shaded band is the "
        f"margin: {margin_words(rows)}. Right of 1 costs more."
    )
    if any(row.twin for row in rows):
        caption += f" {DOTTED}"
    absent = [rows[0] for rows in groups.values() if rows not in shown]
    if absent:
        named = wording.listing([f"{wording.short_label(row.response)} at {row.load}" for row in absent])
        caption += f" Not reported, and not drawn: {named}."
    caption += note
    return Figure(lambda sheet: _draw(contrasts, panels_shown, sheet), alt_of(rows), caption, table_of(rows))


def base_of(contrasts: Contrasts) -> str:
    """What the ratios are to."""
    return contrasts.baselines[0] if len(contrasts.baselines) == 1 else "its baseline"


def margin_words(rows: Sequence[VerdictRow]) -> str:
    """What the margin is: declared before the runs, or chosen after them."""
    return f"what {'is taken as' if any(row.after_the_fact for row in rows) else 'was declared'} too small to matter"


def span(rows: Sequence[VerdictRow]) -> tuple[float, float]:
    """Ends of an axis that has room for these ratios, their intervals and margins."""
    ends = [value for row in rows for end in (row.ci_low, row.ci_high, row.ratio) for value in _drawable(end)]
    ends += [factor for row in rows for factor in _band(row)]
    low, high = min([0.9, *ends]), max([1.1, *ends])
    room = (math.log(high) - math.log(low)) * 0.05
    return math.exp(math.log(low) - room), math.exp(math.log(high) + room)


def background(axis: Axes, rows: Sequence[VerdictRow]) -> None:
    """The margin's band, the line of no change, and how far the A/A twin's interval reaches."""
    band = next((_band(row) for row in rows if _band(row)), ())
    if band:
        axis.axvspan(*band, color=INK, alpha=0.09, linewidth=0)
    axis.axvline(1, color=INK, linewidth=0.9)
    for end in (end for row in rows if row.twin for side in (row.ci_low, row.ci_high) for end in _drawable(side)):
        axis.axvline(end, color=palette.GREY, linewidth=0.9, linestyle=(0, (1, 1.8)))


def tip_of(row: VerdictRow) -> str:
    """What a mark says when a pointer rests on it."""
    added = "" if row.difference is None else wording.in_unit(wording.response_of(row), row.difference, sign=True)
    said = (f"{_name(row)} against {row.baseline}", _numbers(row), added, wording.verdict_text(row))
    return ", ".join(filter(None, said))


def _panel(contrasts: Contrasts, rows: list[VerdictRow]) -> _Panel:
    against = f"against {rows[0].baseline}" if len(contrasts.baselines) > 1 else ""
    title = panel_title(contrasts.load_title(rows[0].load), wording.typical(rows[0]), against)
    return _Panel(title, rows, *span(rows))


def _drawable(value: float | None) -> list[float]:
    """The value, where a logarithmic axis can hold it."""
    return [value] if value is not None and math.isfinite(value) and value > 0 else []


def _band(row: VerdictRow) -> tuple[float, ...]:
    return () if row.margin is None or row.ratio is None else (1 / (1 + row.margin), 1 + row.margin)


def _draw(contrasts: Contrasts, found: list[_Panel], sheet: Sheet) -> Canvas:
    figure, axes = sheet.panels([0.62 + sheet.row_in * len(panel.rows) for panel in found])
    for axis, panel in zip(axes, found, strict=True):
        axis.set_title(sheet.wrapped(panel.title))
        factor_axis(axis, panel.low, panel.high, sheet.ticks)
        background(axis, panel.rows)
        colours = [palette.look_of(contrasts.looks, row.treatment).colour for row in panel.rows]
        # Over its row a name shares the line with the verdict.
        sheet.rows(axis, [row.treatment if sheet.narrow else _name(row) for row in panel.rows], colours)
        for place, row in enumerate(panel.rows):
            _row(axis, place, row, palette.look_of(contrasts.looks, row.treatment), panel, sheet)
        axis.spines["left"].set_visible(False)
    axes[-1].set_xlabel(f"ratio to {base_of(contrasts)} (log scale)")
    return figure


def _row(axis: Axes, place: int, row: VerdictRow, look: palette.Look, panel: _Panel, sheet: Sheet) -> None:
    mark = wording.look(row)
    # What the floor's share would have been stands in the table.
    said = f"{mark.glyph} {wording.verdict_text(row).partition(';')[0]}"
    numbers = _numbers(row)
    if sheet.narrow:
        said = said.replace("(a new study of about ", "(new study: ")
        change = f"{wording.change(row.ratio, row.ci_high)}  " if row.ratio is not None else ""
        # How large a new study would be stands in the table too.
        text = change + (said if sheet.holds(row.treatment, change, said) else f"{mark.glyph} {mark.word}")
        axis.text(1, place - 0.38, text, transform=axis.get_yaxis_transform(), ha="right", size=SMALL, gid="halo")
    else:
        text = f"{numbers}\n{said}" if numbers else said
        axis.text(1.02, place, text, transform=axis.get_yaxis_transform(), va="center", size=SMALL, linespacing=1.15)
    if row.ratio is None or not _drawable(row.ratio):
        why = _why_not_drawn(row)
        axis.plot(
            [0.02], [place], marker=mark.marker, color=look.colour, transform=axis.get_yaxis_transform(), clip_on=False
        )
        axis.text(0.05, place, why, transform=axis.get_yaxis_transform(), va="center", size=SMALL, gid="halo")
        return
    low, high = (*_drawable(row.ci_low), panel.low)[0], (*_drawable(row.ci_high), panel.high)[0]
    axis.plot([low, high], [place, place], color=look.colour, linewidth=2.2, solid_capstyle="butt")
    for end in (low, high):
        axis.plot([end, end], [place - 0.13, place + 0.13], color=look.colour, linewidth=1.2)
    (dot,) = axis.plot(
        [row.ratio],
        [place],
        marker=mark.marker,
        markersize=7.5,
        color=look.colour,
        markerfacecolor=look.colour if mark.filled else PAPER,
        markeredgewidth=1.5,
        linestyle="none",
    )
    svg.tip(dot, tip_of(row))


def _name(row: VerdictRow) -> str:
    return f"{row.treatment} (A/A twin)" if row.twin else row.treatment


def _numbers(row: VerdictRow) -> str:
    if row.ratio is None:
        return ""
    return f"{wording.change(row.ratio, row.ci_high)} ({wording.change_interval(row.ci_low, row.ci_high)})"


def _why_not_drawn(row: VerdictRow) -> str:
    if wording.kind(row) in ("invalid", "saturated"):
        return f"{wording.kind(row)}: no ratio is given"
    if row.difference is not None:
        added = wording.in_unit(wording.response_of(row), row.difference, sign=True)
        return f"{row.baseline} has none of it: {added}"
    return "not computed"


def alt_of(rows: Sequence[VerdictRow]) -> str:
    """What a picture of these ratios shows, in numbers."""
    parts = []
    for row in rows:
        load = f" at {row.load}" if len({one.load for one in rows}) > 1 else ""
        against = f" against {row.baseline}" if len({one.baseline for one in rows}) > 1 else ""
        where = f"{_name(row)}{against}{load}, {wording.typical(row)}"
        parts.append(f"{where}: {_numbers(row) or _why_not_drawn(row)}, {wording.verdict_text(row)}")
    bases = wording.listing(list(dict.fromkeys(row.baseline for row in rows)))
    return f"Forest plot of ratios to {bases}. " + "; ".join(parts) + "."


def table_of(rows: Sequence[VerdictRow]) -> pl.DataFrame:
    """A row a ratio."""
    return pl.DataFrame(
        {
            "treatment": [_name(row) for row in rows],
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
