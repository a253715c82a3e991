"""The estimate of each session with the prediction for another one: how much a result changes between sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, NullLocator

from meshtrial.inference.sessions import SessionEffects, session_effects, session_names
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, svg, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import INK

_SCHEMA = {
    "load": pl.String,
    "response": pl.String,
    "treatment": pl.String,
    "against": pl.String,
    "session": pl.String,
    "estimate": pl.Float64,
    "blocks": pl.Int64,
    "predicted low": pl.Float64,
    "predicted high": pl.Float64,
    "unit": pl.String,
}


@dataclass(frozen=True)
class _Contrast:
    row: VerdictRow
    effects: SessionEffects

    @property
    def unit(self) -> str:
        return wording.unit(wording.response_of(self.row)) if self.row.by_difference else "ratio"

    def shown(self, value: float | None) -> float | None:
        """Return an effect in the unit of its axis."""
        scale = wording.response_of(self.row).scale if self.row.by_difference else 1.0
        return None if value is None else value * scale


def sessions(data: StudyData) -> Figure:
    """Draw the estimate of each session, and as a band where the estimate of another one would be."""
    names = session_names(data)
    rows = [row for row in frames.contrasts(data, primary=True, between=False).rows if row.n_blocks]
    if len(names) < 2 or not rows:
        return empty("A study of one session shows no differences between sessions.")
    found = [_Contrast(row, session_effects(data, row, by_difference=row.by_difference)) for row in rows]
    level = wording.declared_percent(1 - data.plan.study.alpha)
    caption = (
        "The mean of the block differences of each session, on the scale of the verdict. Band: where the estimate of "
        f"another session lies with {level} probability, if it is drawn like these. Two sessions give no band."
    )
    return Figure(lambda: _draw(data, names, found), _alt(found), caption, _table(names, found))


def _draw(data: StudyData, names: Sequence[str], found: Sequence[_Contrast]) -> Canvas:
    panels: dict[tuple[str, str, str], list[_Contrast]] = {}
    for one in found:
        panels.setdefault((one.row.load, one.row.response, one.unit), []).append(one)
    looks = palette.looks(data.plan.study)
    drawn = frames.order(data, {one.row.treatment for one in found})
    figure, axes = sheet.panels([2.3 + sheet.key_in(drawn), *[2.1] * (len(panels) - 1)], sharex=True)
    for axis, ((load, response, unit), contrasts) in zip(axes, panels.items(), strict=True):
        for one in contrasts:
            look, effects = looks[one.row.treatment], one.effects
            shown = map(one.shown, effects.estimates)
            points = [(at, value) for at, value in enumerate(shown) if value is not None]
            where, values = [at for at, _ in points], [value for _, value in points]
            axis.plot(where, values, **look.line(1))
            (marks,) = axis.plot(where, values, **look.marks(6) | {"markerfacecolor": look.colour})
            svg.tip(marks, _text(one))
            low, high = one.shown(effects.low), one.shown(effects.high)
            if low is not None and high is not None:
                axis.axhspan(low, high, color=look.colour, alpha=0.15, linewidth=0)
        axis.axhline(1 if unit == "ratio" else 0, color=INK, linewidth=0.9)
        axis.set_ylabel("ratio" if unit == "ratio" else f"added / {unit}")
        title = frames.panel_title(frames.load_title(data, load), wording.short_label(response))
        axis.set_title(title, loc="left")
    sheet.key(axes[0], [looks[name] for name in drawn])
    axes[-1].set_xlim(-0.4, len(names) - 0.6)
    labelled = list(range(0, len(names), -(-len(names) // 12)))
    axes[-1].xaxis.set_major_locator(FixedLocator(labelled))
    axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].set_xticklabels([str(index + 1) for index in labelled])
    axes[-1].set_xlabel("session" if names[0].startswith("session") else "part")
    return figure


def _text(one: _Contrast) -> str:
    row, effects = one.row, one.effects
    known = [value for value in effects.estimates if value is not None]
    text = f"{row.treatment} against {row.baseline} in {wording.short_label(row.response)}: "
    text += wording.range_of_effect(row, min(known), max(known)) if known else "no estimate"
    if effects.low is not None:
        text += f", another session {wording.range_of_effect(row, effects.low, effects.high)}"
    return text


def _alt(found: Sequence[_Contrast]) -> str:
    return alt_text("Estimates by session", [_text(one) for one in found])


def _table(names: Sequence[str], found: Sequence[_Contrast]) -> pl.DataFrame:
    rows = [
        (
            *(one.row.load, one.row.response, one.row.treatment, one.row.baseline, name),
            *(one.shown(value), blocks, one.shown(one.effects.low), one.shown(one.effects.high), one.unit),
        )
        for one in found
        for name, value, blocks in zip(names, one.effects.estimates, one.effects.blocks, strict=True)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
