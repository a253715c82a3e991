"""Ratios with their intervals against the margin: the figure that a verdict can be read off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, estimate, factor_axis
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet
from meshtrial.report.tables.between import letter

DOTTED = (
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
        f"Ratio of each treatment to {base_of(contrasts)} (Hodges-Lehmann) with its interval. The shaded band is the "
        f"margin: {margin_words(rows)}. Right of 1 costs more."
    )
    if any(row.twin for row in rows):
        caption += f" {DOTTED}"
    absent = [panel.rows[0] for panel in panels if panel not in shown]
    if absent:
        named = wording.listing([f"{wording.short_label(row.response)} at {row.load}" for row in absent])
        caption += f" Not reported, and not drawn: {named}."
    return Figure(lambda sheet: _draw(contrasts, shown, sheet), alt_of(rows), caption + note, table_of(rows))


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


def base_of(contrasts: Contrasts) -> str:
    """What the ratios are to."""
    return contrasts.baselines[0] if len(contrasts.baselines) == 1 else "its baseline"


def margin_words(rows: Sequence[VerdictRow]) -> str:
    """What the margin is: declared before the runs, or chosen after them."""
    return f"what {'is taken as' if any(row.after_the_fact for row in rows) else 'was declared'} too small to matter"


def span(rows: Sequence[VerdictRow]) -> tuple[float, float]:
    """Ends of an axis that has room for these ratios, their intervals and margins."""
    ends = [value for row in rows for end in (row.ci_low, row.ci_high, row.ratio) for value in drawable(end)]
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
    for end in (end for row in rows if row.twin for side in (row.ci_low, row.ci_high) for end in drawable(side)):
        axis.axvline(end, color=palette.GREY, linewidth=0.9, linestyle=(0, (1, 1.8)))


def tip_of(row: VerdictRow) -> str:
    """What a mark says when a pointer rests on it."""
    added = "" if row.difference is None else wording.in_unit(wording.response_of(row), row.difference, sign=True)
    said = (f"{_name(row)} against {row.baseline}", _numbers(row), added, wording.verdict_text(row))
    return ", ".join(filter(None, said))


def drawable(value: float | None) -> list[float]:
    """The value, where a logarithmic axis can hold it."""
    return [value] if value is not None and math.isfinite(value) and value > 0 else []


def _band(row: VerdictRow) -> tuple[float, ...]:
    return () if row.margin is None or row.ratio is None else (1 / (1 + row.margin), 1 + row.margin)


def _draw(contrasts: Contrasts, panels: Sequence[Contrasts], sheet: Sheet) -> Canvas:
    figure, axes = sheet.panels([0.62 + sheet.row_in * len(panel.rows) for panel in panels])
    for axis, panel in zip(axes, panels, strict=True):
        axis.set_title(sheet.wrapped(contrasts.title(panel.rows[0], wording.typical(panel.rows[0]))))
        factor_axis(axis, *span(panel.rows), sheet.ticks)
        background(axis, panel.rows)
        # Over its row a name shares the line with the verdict.
        names = [row.treatment if sheet.narrow else _name(row) for row in panel.rows]
        sheet.rows(axis, names, [contrasts.looks[row.treatment].colour for row in panel.rows])
        for place, row in enumerate(panel.rows):
            _row(axis, place, row, contrasts.looks[row.treatment], sheet)
        axis.spines["left"].set_visible(False)
    axes[-1].set_xlabel(f"ratio to {base_of(contrasts)} (log scale)")
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
    if row.ratio is None or not drawable(row.ratio):
        axis.plot([0.02], [place], marker=mark.marker, color=look.colour, transform=beside, clip_on=False)
        axis.text(0.05, place, _why_not_drawn(row), transform=beside, va="center", size=SMALL, gid="halo")
        return
    left, right = axis.get_xlim()
    ends = [(*drawable(row.ci_low), left)[0], (*drawable(row.ci_high), right)[0]]
    for end in ends:
        axis.plot([end, end], [place - 0.13, place + 0.13], color=look.colour, linewidth=1.2)
    estimate(axis, place, ends, row.ratio, look, marker=mark.marker, filled=mark.filled, size=7.5, said=tip_of(row))


def _name(row: VerdictRow) -> str:
    return f"{row.treatment} (A/A twin)" if row.twin else row.treatment


def _numbers(row: VerdictRow) -> str:
    if row.ratio is None:
        return ""
    return f"{wording.change(row.ratio, row.ci_high)} ({wording.change_interval(row.ci_low, row.ci_high)})"


def _why_not_drawn(row: VerdictRow) -> str:
    if row.verdict.standing == "stopped":
        return f"{row.verdict}: no ratio is given"
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
    return alt_text(f"Forest plot of ratios to {bases}", parts)


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
