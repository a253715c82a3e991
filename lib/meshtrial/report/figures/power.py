"""What a study can detect: injected delays against their estimates, and the detectable effect by number of blocks.

The curve of detectable effects is for planning the next study. The noise of a contrast is the standard deviation of its
block differences in this study. The curve shows the effect that is detected with 80 % power at the study's error level
in its family. It applies to the same machine and load, and is no statement about this study's own verdicts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from meshtrial import stats
from meshtrial.inference.instrument import Detection, detections
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Columns, Figure, alt_text, empty
from meshtrial.report.palette import INK, TreatmentStyle
from meshtrial.vocabulary import VerdictLabel

BLOCKS = (5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 100)
_LABELLED = (6, 10, 20, 40, 100)


@dataclass(frozen=True)
class _Curve:
    """Detectable effects of one contrast by number of blocks, in per cent or in its response's unit."""

    row: VerdictRow
    unit: str
    scale: float  # factor by which a stored effect is multiplied for the drawing
    effects: Mapping[int, float]

    @property
    def text(self) -> str:
        """What this study detects."""
        row = self.row
        return f"{row.treatment} against {row.baseline}: {row.n_blocks} {row.counted} detect {wording.mde_text(row)}"


def power(data: StudyData, load: str = "") -> Figure:
    """Draw the effect detected with 80 % power by number of blocks, per treatment and primary response.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; default: the last that is not a search.
    """
    load = load or frames.last_rate(data)
    study, panels = data.plan.study, []
    for name in study.primary:
        rows = [row for row in frames.contrasts(data, load=load, response=name, between=False).rows if not row.twin]
        jointly = study.correction == "max-t"
        detectable = partial(stats.detectable_effect, alpha=study.alpha, m=len(rows), jointly=jointly)
        curves = [curve for row in rows if (curve := _curve(row, detectable))]
        # Contrasts judged by difference cannot share an axis with ratios; if there are both, ratios are drawn.
        ratios = [curve for curve in curves if not curve.row.by_difference]
        panels += [drawn] if (drawn := ratios or curves) else []
    if not panels:
        return empty("The noise of the primary responses is not known yet: too few blocks are finished.")
    every = [curve for curves in panels for curve in curves]
    counted = every[0].row.counted
    caption = (
        f"The effect that is detected with 80 % power at the error level of this study, by the number of {counted}, "
        "given the noise of its own differences. Filled: this study. Dashed: the margin; where a curve reaches it, a "
        "study is large enough to detect an effect of that size. Other machines and loads have other noise."
    )
    if len({curve.row.baseline for curve in every}) > 1:
        caption += " A treatment has a line for each of its baselines."
    parts = [f"{curve.text} at {wording.short_label(curve.row.response)}" for curve in every]
    alt = alt_text(f"Effects detected with 80 % power, falling with the number of {counted}", parts)
    table = pl.DataFrame(
        [
            (*curve.row.key[1:], n, effect, curve.unit, n == curve.row.n_blocks)
            for curve in every
            for n, effect in curve.effects.items()
        ],
        schema=["response", "treatment", "baseline", "blocks", "effect", "unit", "this study"],
        orient="row",
    )
    return Figure(lambda: _draw_curves(data, panels), alt, caption, table)


def _curve(row: VerdictRow, detectable: Callable[[int], float | None]) -> _Curve | None:
    own, response = detectable(row.n_blocks), wording.response_of(row)
    if row.mde is None or own is None or row.mde <= 0:
        return None
    noise = (row.mde if row.by_difference else math.log1p(row.mde)) / own
    unit, scale = (wording.unit(response), response.scale) if row.by_difference else ("%", 100.0)
    sizes = {n: noise * size for n in sorted({*BLOCKS, row.n_blocks}) if (size := detectable(n)) is not None}
    effects = {n: scale * (size if row.by_difference else math.expm1(size)) for n, size in sizes.items()}
    return _Curve(row, unit, scale, effects)


def _draw_curves(data: StudyData, panels: Sequence[Sequence[_Curve]]) -> Canvas:
    looks = palette.looks(data.plan.study)
    names = frames.order(data, [curve.row.treatment for curves in panels for curve in curves])
    figure, axes = sheet.panels([2.3 + sheet.key_in(names), *[2.1] * (len(panels) - 1)], sharex=True)
    for axis, curves in zip(axes, panels, strict=True):
        first = curves[0].row
        for curve in curves:
            look, own = looks[curve.row.treatment], curve.row.n_blocks
            axis.plot([*curve.effects], [*curve.effects.values()], **look.line())
            (dot,) = axis.plot([own], [curve.effects[own]], **look.marks(6) | {"markerfacecolor": look.colour})
            sheet.set_tips(dot, curve.text)
        margins = sorted({curve.row.margin * curve.scale for curve in curves if curve.row.margin})[:1]
        for margin in margins:
            axis.axhline(margin, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        values = [effect for curve in curves for effect in curve.effects.values()] + margins
        sheet.log_axis(axis, "y", min(values) / 1.15, max(values) * 1.15, 4)
        axis.set_ylabel(f"effect / {curves[0].unit}")
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(_LABELLED))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_title(
            frames.panel_title(frames.load_title(data, first.load), wording.short_label(first.response)), loc="left"
        )
    sheet.key(axes[0], [looks[name] for name in names])
    axes[-1].set_xlabel(panels[0][0].row.counted)
    return figure


_WORD_IN = 0.17  # how wide an upright word is
_MARKS = {VerdictLabel.SLOWER: "o", VerdictLabel.EQUIVALENT: "s", VerdictLabel.INCONCLUSIVE: "D"}


def detection(data: StudyData) -> Figure:
    """Draw the estimated added time against the delay that the relay reports, with intervals and verdicts."""
    delays = [one for one in detections(data) if one.row.difference is not None]
    # Without a relay, a deviation from the line is a treatment's cost and not an error of the instrument.
    if not delays or not any("relay" in run.extra for run in data.runs):
        return empty("No injected delay has been analysed.")
    caption = (
        "Delay added to the median request, estimated within blocks, against the mean delay that the relay reports. On "
        "the line, both are equal. Circles: called slower. Squares: equivalent (within the margin). Diamonds: "
        "inconclusive. The relay delays each request on its way to the server; a p50 can gain more or less than the "
        "mean."
    )

    def describe(one: Detection) -> str:
        injected, estimated = (wording.plain(value * 1e6) for value in (one.applied_s, one.row.difference or 0))
        return f"{injected} us injected: {estimated} us estimated, {one.row.sentence}"

    draw = partial(_draw_delays, delays)
    return Figure.from_rows(draw, delays, _DELAY_COLUMNS, "Injected and estimated delays", describe, caption)


def _microseconds(row: VerdictRow) -> list[float]:
    return [value or 0.0 for value in frames.differences(row, 1e6)]


def _draw_delays(delays: list[Detection]) -> Canvas:
    figure, (axes,) = sheet.panels([3.2])
    most = max(max(one.applied_s, one.row.difference_high or 0.0) for one in delays) * 1e6
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8, linestyle=":")
    # Words are upright, and spaced, because small delays are closer together than a word is wide or high.
    gap = _WORD_IN * most / sheet.WIDTH_IN
    places = sheet.spaced([one.applied_s * 1e6 for one in delays], gap, 0.0, 2 * most)
    for one, place in zip(delays, places, strict=True):
        middle, *ends = _microseconds(one.row)
        word, filled = one.row.verdict, one.row.verdict is not VerdictLabel.INCONCLUSIVE
        look = TreatmentStyle(one.treatment, INK, _MARKS.get(word, "x"), "-", filled)
        sheet.estimate(axes, one.applied_s * 1e6, ends, middle, look, upright=True, filled=filled)
        above: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom"}
        axes.annotate(word, (place, ends[1]), **above, rotation=90, fontsize=sheet.SMALL)
    axes.set_ylim(top=1.25 * axes.get_ylim()[1])
    axes.set_xlabel("injected delay / µs")
    axes.set_ylabel("estimated effect at p50 / µs")
    return figure


_DELAY_COLUMNS: Columns[Detection] = {
    "treatment": lambda one: one.treatment,
    "injected / µs": lambda one: one.asked_s * 1e6,
    "added by the relay / µs": lambda one: one.applied_s * 1e6,
    "estimated at p50 / µs": lambda one: _microseconds(one.row)[0],
    "estimate low / µs": lambda one: _microseconds(one.row)[1],
    "estimate high / µs": lambda one: _microseconds(one.row)[2],
    "detectable effect / µs": lambda one: None if one.detectable_s is None else one.detectable_s * 1e6,
    "verdict": lambda one: one.row.sentence,
}
