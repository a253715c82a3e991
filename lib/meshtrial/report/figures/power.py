"""What a study of this noise could find, by its number of blocks: the curve to read before the next one is planned.

The noise of a contrast is the standard deviation of its block differences, as this study saw it. What is drawn is the
effect that is then found four times out of five, at the study's error level in its family. Other noise gives
another curve, so it is a guide for the same machine and load, and no statement about this study's own verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from meshtrial import stats
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, svg, wording
from meshtrial.report.figure import Figure, alt_text
from meshtrial.report.figures.common import empty, log_axis
from meshtrial.report.palette import INK

BLOCKS = (5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 100)
_LABELLED = (6, 10, 20, 40, 100)


@dataclass(frozen=True)
class _Curve:
    """Detectable effects of one contrast at numbers of blocks, in per cent or its response's unit; and its own."""

    row: VerdictRow
    blocks: tuple[int, ...]
    effects: tuple[float, ...]

    @property
    def scale(self) -> float:
        """From a stored effect to what is drawn."""
        return wording.response_of(self.row).scale if self.row.by_difference else 100.0

    @property
    def unit(self) -> str:
        """Of what is drawn."""
        return wording.unit(wording.response_of(self.row)) if self.row.by_difference else "%"


def power(data: StudyData, load: str = "") -> Figure:
    """The effect that a study of so many blocks finds four times out of five, by treatment and primary response.

    Parameters
    ----------
    data : StudyData
    load : str, optional
        Label of a load; without it the last of the study that searches nothing.
    """
    load = load or frames.last_asked(data)
    panels: list[list[_Curve]] = []
    for name in data.plan.study.primary:
        rows = [row for row in frames.contrasts(data, load=load, response=name, family="").rows if not row.twin]
        sees = partial(
            stats.detectable_effect,
            alpha=data.plan.study.alpha,
            m=len(rows),
            jointly=data.plan.study.correction == "max-t",
        )
        found = [_curve(row, sees) for row in rows]
        curves = [curve for curve in found if curve]
        # What one side lacks is compared by difference, and has no axis in common with ratios.
        ratios = [curve for curve in curves if not curve.row.by_difference]
        panels += [shown] if (shown := ratios or curves) else []
    if not panels:
        return empty("No noise of a primary response is known yet: too few blocks are finished.")
    every = [curve for curves in panels for curve in curves]
    caption = (
        "The effect that is found four times out of five at the error level of this study, by the number of blocks, "
        "with the noise that its own block differences had. Filled: this study. Dashed: the margin; a curve reaches it "
        "where a study is large enough to find an effect of that size. Other machines and loads have other noise."
    )
    if len({curve.row.baseline for curve in every}) > 1:
        caption += " A treatment has a line for each of its baselines."
    return Figure(lambda: _draw(data, panels, load), _alt(every), caption, _table(every))


def _curve(row: VerdictRow, sees: Callable[[int], float | None]) -> _Curve | None:
    own = sees(row.n_blocks)
    if row.mde is None or own is None or row.mde <= 0:
        return None
    noise = (row.mde if row.by_difference else math.log1p(row.mde)) / own
    counts = sorted({*BLOCKS, row.n_blocks})
    standardised = [(n, sees(n)) for n in counts]
    reached = [(n, noise * size) for n, size in standardised if size is not None]
    ends = (size if row.by_difference else math.expm1(size) for _, size in reached)
    curve = _Curve(row, tuple(n for n, _ in reached), ())
    return replace(curve, effects=tuple(end * curve.scale for end in ends))


def _draw(data: StudyData, panels: Sequence[Sequence[_Curve]], load: str) -> Canvas:
    looks = palette.looks(data.plan.study)
    names = frames.order(data, [curve.row.treatment for curves in panels for curve in curves])
    figure, axes = sheet.panels([2.3 + sheet.key_in(names), *[2.1] * (len(panels) - 1)], sharex=True)
    for axis, curves in zip(axes, panels, strict=True):
        for curve in curves:
            _line(axis, curve, looks[curve.row.treatment])
        _frame(axis, curves)
        label = wording.short_label(curves[0].row.response)
        axis.set_title(frames.panel_title(frames.load_title(data, load), label), loc="left")
    sheet.key(axes[0], [looks[name] for name in names])
    axes[-1].set_xlabel("blocks")
    return figure


def _line(axis: Axes, curve: _Curve, look: palette.TreatmentStyle) -> None:
    axis.plot(curve.blocks, curve.effects, **look.line())
    at = curve.blocks.index(curve.row.n_blocks)
    (dot,) = axis.plot([curve.blocks[at]], [curve.effects[at]], **look.marks(6) | {"markerfacecolor": look.colour})
    svg.tip(dot, _finds(curve))


def _frame(axis: Axes, curves: Sequence[_Curve]) -> None:
    margins = sorted({curve.row.margin * curve.scale for curve in curves if curve.row.margin})
    for margin in margins[:1]:
        axis.axhline(margin, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    values = [effect for curve in curves for effect in curve.effects] + margins[:1]
    log_axis(axis, "y", min(values) / 1.15, max(values) * 1.15, 4)
    axis.set_ylabel(f"effect / {curves[0].unit}")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(_LABELLED))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finds(curve: _Curve) -> str:
    row = curve.row
    return f"{row.treatment} against {row.baseline}: {row.n_blocks} blocks find {wording.mde_text(row)}"


def _alt(curves: Sequence[_Curve]) -> str:
    found = [f"{_finds(curve)} at {wording.short_label(curve.row.response)}" for curve in curves]
    return alt_text("Effects that are found four times out of five, falling with the number of blocks", found)


def _table(curves: Sequence[_Curve]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            (
                curve.row.response,
                curve.row.treatment,
                curve.row.baseline,
                n,
                effect,
                curve.unit,
                n == curve.row.n_blocks,
            )
            for curve in curves
            for n, effect in zip(curve.blocks, curve.effects, strict=True)
        ],
        schema=["response", "treatment", "baseline", "blocks", "effect", "unit", "this study"],
        orient="row",
    )
