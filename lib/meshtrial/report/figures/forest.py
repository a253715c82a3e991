"""Effects with their intervals against the margin: the figure that a verdict can be read off, and all at a glance.

At a glance, for a first screen, columns are responses and rows are treatments, one panel below another where loads or
baselines differ. What a mark is worth in words stands in the table of verdicts and in the forest plot; there the eye
compares treatments.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, svg, wording
from meshtrial.report.figure import Columns, Figure
from meshtrial.report.figures.common import added_axis, empty, estimate, factor_axis
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.tables.between import letter

MOST_ROWS = 18  # of a picture that is taken in at once
_GLANCE_IN = 0.36  # of a row with its name over it
_TITLE_IN = 0.105  # of a letter of a panel's title
_DOTTED = (
    "The A/A twin is the baseline deployed a second time: dotted lines carry the ends of its interval, what noise "
    "alone does, to the other rows."
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
    " A and B are two studies: what one deployed, the other may lack. They share no block, so a difference between "
    "them may be the day as well as anything else; mt.tables.between says what agrees."
)


def columns_of(rows: Sequence[VerdictRow]) -> Columns[VerdictRow]:
    """The numbers of these rows; what is added, and a margin of that, in a column for each of their units."""
    columns = dict(_COLUMNS)
    for unit in dict.fromkeys(wording.unit(wording.response_of(row)) for row in rows):
        for place, name in enumerate(("added", "added low", "added high", "margin")):
            columns[f"{name} / {unit}".removesuffix(" / ")] = partial(_in_unit, unit, place)
    return columns


def _in_unit(unit: str, place: int, row: VerdictRow) -> float | None:
    """What is added, the ends of its interval, and the margin; nothing in another response's unit."""
    response = wording.response_of(row)
    margin = row.margin * response.scale if row.by_difference and row.margin is not None else None
    return (*frames.differences(row), margin)[place] if wording.unit(response) == unit else None


def forest(data: StudyData, load: str | None = None) -> Figure:
    """Every primary contrast of a study: effect on the scale of its verdict, interval, margin, verdict.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        One load's label; all loads without it.
    """
    return forest_of(frames.contrasts(data, load=load, primary=True, family=""))


def forest_of(contrasts: Contrasts, note: str = "") -> Figure:
    """The same of any verdict rows, one panel per response, load and baseline; ``note`` ends its caption."""
    panels = contrasts.panels("load", "response", "baseline")
    shown = [panel for panel in panels if any(map(contrasts.reported, panel.rows))]
    if not shown:
        return empty("No verdict of a primary response has been computed yet.")
    rows = [row for panel in shown for row in panel.rows]
    caption = (
        f"{_what(shown)} {_base(contrasts)} (Hodges-Lehmann) with its interval. The shaded band is the margin: "
        f"{_margin_words(rows)}. Right of the line is more."
    )
    if any(row.twin for row in rows):
        caption += f" {_DOTTED}"
    absent = [panel.rows[0] for panel in panels if panel not in shown]
    if absent:
        named = wording.listing([f"{wording.short_label(row.response)} at {row.load}" for row in absent])
        caption += f" Not reported, and not drawn: {named}."
    return _figure(lambda: _draw(contrasts, shown), rows, caption + note)


def two_studies(data: StudyData, other: StudyData) -> Figure:
    """Every primary contrast of two studies: effect, interval, margin, verdict.

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
    looks = palette.Styles((name, look) for contrasts in found for name, look in contrasts.looks.items())
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
        looks=palette.Styles((f"{treatment} {name}", look) for treatment, look in contrasts.looks.items()),
        unreported=frozenset(
            (load, response, f"{treatment} {name}") for load, response, treatment in contrasts.unreported
        ),
    )


def _added(rows: Sequence[VerdictRow]) -> bool:
    """Whether what is added is drawn of these rows: their verdicts are of it, and of no ratio."""
    compared = [row for row in rows if row.n_blocks]
    return bool(compared) and all(row.by_difference for row in compared)


def _what(panels: Sequence[Contrasts]) -> str:
    """What the panels show, on the way to the name of a baseline."""
    kinds = {_added(panel.rows) for panel in panels}
    if len(kinds) > 1:
        return "What each treatment adds to, or where there is an × its ratio to,"
    return "What each treatment adds to" if kinds == {True} else "Ratio of each treatment to"


def _base(contrasts: Contrasts) -> str:
    """What treatments are compared with."""
    return contrasts.baselines[0] if len(contrasts.baselines) == 1 else "its baseline"


def _margin_words(rows: Sequence[VerdictRow]) -> str:
    """What the margin is: declared before the runs, or chosen after them."""
    return f"what {'is taken as' if any(row.after_the_fact for row in rows) else 'was declared'} too small to matter"


@dataclass(frozen=True)
class _Drawn:
    """A row's effect in the units of its axis; an end that the axis cannot hold is None."""

    estimate: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        return self.low, self.high


def _drawn(row: VerdictRow, added: bool) -> _Drawn | None:
    """What of a row an axis can show; None where its effect is the other one, or there is none."""
    if not row.n_blocks or row.by_difference != added:
        return None
    # A logarithmic axis has no place for zero.
    middle, low, high = (end if added or (end and end > 0) else None for end in frames.effect(row))
    return None if middle is None else _Drawn(middle, low, high)


def _axis(axis: Axes, rows: Sequence[VerdictRow], ticks: int) -> None:
    """An axis that has room for these effects, their intervals and margins."""
    added = _added(rows)
    drawn = [found for row in rows if (found := _drawn(row, added))]
    ends = [end for one in drawn for end in (one.estimate, *one.ends) if end is not None and math.isfinite(end)]
    ends += [end for row in rows for end in _band(row, added)]
    if not added:
        low, high = (math.log(end) for end in (min([0.9, *ends]), max([1.1, *ends])))
        room = (high - low) * 0.05
        factor_axis(axis, math.exp(low - room), math.exp(high + room), ticks)
        return
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = (high - low or 1.0) * 0.05
    added_axis(axis, low - room, high + room, ticks)


def _background(axis: Axes, rows: Sequence[VerdictRow], added: bool) -> None:
    """The margin's band, the line of no change, and how far the A/A twin's interval reaches."""
    band = next((ends for row in rows if (ends := _band(row, added))), ())
    if band:
        axis.axvspan(*band, color=INK, alpha=0.09, linewidth=0)
    axis.axvline(0 if added else 1, color=INK, linewidth=0.9)
    twins = (found for row in rows if row.twin and (found := _drawn(row, added)))
    for end in (end for twin in twins for end in twin.ends if end is not None):
        axis.axvline(end, color=palette.GREY, linewidth=0.9, linestyle=(0, (1, 1.8)))


def _tip(row: VerdictRow) -> str:
    """What a mark says when a pointer rests on it."""
    said = (
        f"{wording.treatment(row)} against {row.baseline}",
        _numbers(row),
        wording.other_effect(row),
        wording.verdict_text(row),
    )
    return ", ".join(filter(None, said))


def unit_of(rows: Sequence[VerdictRow]) -> str:
    """The unit of an axis of what is added, as a title ends with it; nothing of a ratio's."""
    unit = wording.unit(wording.response_of(rows[0])) if _added(rows) else ""
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
        axis.set_title(contrasts.title(panel.rows[0], wording.typical(panel.rows[0]) + unit_of(panel.rows)))
        _axis(axis, panel.rows, sheet.TICKS)
        _background(axis, panel.rows, _added(panel.rows))
        sheet.rows(axis, names, [contrasts.looks[row.treatment].colour for row in panel.rows])
        for place, row in enumerate(panel.rows):
            _row(axis, place, row, _added(panel.rows), contrasts.looks[row.treatment])
        axis.spines["left"].set_visible(False)
    said = "added to" if _added(panels[-1].rows) else "ratio to"
    axes[-1].set_xlabel(f"{said} {_base(contrasts)}" + ("" if said == "added to" else " (log scale)"))
    return figure


def _row(axis: Axes, place: int, row: VerdictRow, added: bool, look: palette.TreatmentStyle) -> None:
    mark, beside = row.verdict, axis.get_yaxis_transform()
    # The name stands to the left on this line. How large a new study would be stands in the table too.
    said = f"{mark.glyph} {wording.verdict_text(row, brief=True)}".replace("(a new study of about ", "(new study: ")
    change = f"{wording.effect(row)}  " if row.n_blocks else ""
    texts = (change + said, f"{change}{mark.glyph} {mark}", f"{mark.glyph} {mark}")
    text = next((one for one in texts if sheet.holds(row.treatment, one)), mark.glyph)
    axis.text(1, place - 0.38, text, transform=beside, ha="right", size=sheet.SMALL, gid="halo")
    drawn = _drawn(row, added)
    if drawn is None:
        axis.plot([0.02], [place], marker=mark.marker, color=look.colour, transform=beside, clip_on=False)
        axis.text(0.05, place, _why_not_drawn(row), transform=beside, va="center", size=sheet.SMALL, gid="halo")
        return
    left, right = axis.get_xlim()
    ends = [left if drawn.low is None else drawn.low, right if drawn.high is None else drawn.high]
    for end in ends:
        axis.plot([end, end], [place - 0.13, place + 0.13], color=look.colour, linewidth=1.2)
    estimate(axis, place, ends, drawn.estimate, look, marker=mark.marker, filled=mark.filled, size=7.5, said=_tip(row))


def _numbers(row: VerdictRow) -> str:
    return wording.effect_in_full(row) if row.n_blocks else ""


def _why_not_drawn(row: VerdictRow) -> str:
    if row.verdict.standing == "stopped":
        return f"{row.verdict}: no effect is given"
    if row.n_blocks and row.difference is None:
        return "too many runs rank worst for a size"
    if row.difference is not None and row.ratio is None:
        return f"{row.baseline} has none of it: {wording.added(row)}"
    return "not computed"


def _figure(draw: Callable[[], Canvas], rows: Sequence[VerdictRow], caption: str) -> Figure:
    """A picture of these effects, both of them in its table."""
    loads, bases = (list(dict.fromkeys(names)) for names in zip(*((r.load, r.baseline) for r in rows), strict=True))

    def says(row: VerdictRow) -> str:
        against = f" against {row.baseline}" if len(bases) > 1 else ""
        load = f" at {row.load}" if len(loads) > 1 else ""
        where = f"{wording.treatment(row)}{against}{load}, {wording.typical(row)}"
        return f"{where}: {_numbers(row) or _why_not_drawn(row)}, {wording.verdict_text(row)}"

    return Figure.of(draw, rows, columns_of(rows), f"Forest plot against {wording.listing(bases)}", says, caption)


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
    what = _what(contrasts.panels("response"))
    caption = (
        f"{what} {_base(contrasts)} with its interval. Shaded: the margin, {_margin_words(drawn)}. Filled marks: a "
        "difference or equivalence was shown; open: it was not."
    )
    if any(row.twin for row in drawn):
        caption += f" {_DOTTED}"
    if len(shown) < len(groups):
        left = len(contrasts.rows) - len(drawn)
        caption += f" The forest plot below has the other {wording.count(left)} too."
    return _figure(lambda: _glance(contrasts, shown), drawn, caption)


def _responses(contrasts: Contrasts) -> list[str]:
    return list(dict.fromkeys(row.response for row in contrasts.rows))


def _glance(contrasts: Contrasts, groups: Sequence[Contrasts]) -> Canvas:
    responses = _responses(contrasts)
    titles = [contrasts.title(group.rows[0]) for group in groups]
    heights = [
        0.3 + 0.2 * bool(title) + _GLANCE_IN * len(group.treatments)
        for title, group in zip(titles, groups, strict=True)
    ]
    heights[0] += 0.5
    heights[-1] += 0.12
    figure = svg.canvas(sheet.WIDTH_IN, sum(heights))
    axes = figure.subplots(len(groups), len(responses), squeeze=False, gridspec_kw={"height_ratios": heights})
    for column, response in enumerate(responses):
        every = [row for group in groups for row in group.rows if row.response == response]
        for place, group in enumerate(groups):
            axis = axes[place][column]
            _axis(axis, every, 2)
            axis.tick_params(axis="x", labelsize=sheet.SMALL, labelbottom=place == len(groups) - 1)
            _beside(axis, group, response, first=column == 0, added=_added(every))
        letters = int(sheet.WIDTH_IN / len(responses) / _TITLE_IN)
        title = textwrap.fill(wording.short_label(response) + unit_of(every), max(8, letters))
        _over(axes[0][column], title, 18 if titles[0] else 4, weight="bold")
    for title, row in zip(titles, axes, strict=True):
        _over(row[0], title, 4, weight="normal")
        row[0].set_zorder(1)  # its names go on over the panels beside it
    return figure


def _over(axis: Axes, title: str, points: int, *, weight: str) -> None:
    where = ((0, 1), (0, points), "axes fraction", "offset points")
    axis.annotate(title, *where, size=sheet.SMALL, weight=weight, va="bottom")


def _beside(axis: Axes, group: Contrasts, response: str, *, first: bool, added: bool) -> None:
    names = group.treatments
    rows = {row.treatment: row for row in group.rows if row.response == response}
    _background(axis, [rows[name] for name in names if name in rows], added)
    sheet.rows(axis, names if first else [""] * len(names), [group.looks[name].colour for name in names])
    axis.spines["left"].set_visible(False)
    low, high = axis.get_xlim()
    for place, row in ((place, rows[name]) for place, name in enumerate(names) if name in rows):
        mark = row.verdict
        drawn = _drawn(row, added)
        if drawn is None:
            axis.text(
                0.5, place, mark, transform=axis.get_yaxis_transform(), ha="center", va="center", size=sheet.SMALL
            )
            continue
        edges = zip(drawn.ends, (low, high), strict=True)
        ends = [edge if end is None else min(max(end, low), high) for end, edge in edges]
        look = group.looks[row.treatment]
        estimate(
            axis, place, ends, drawn.estimate, look, marker=mark.marker, filled=mark.filled, size=6, said=_tip(row)
        )
