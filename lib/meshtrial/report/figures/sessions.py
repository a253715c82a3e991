"""How much a result changes: an effect in each session of a study, and over the studies of one question."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, NullLocator

from meshtrial.design.responses import response as registered
from meshtrial.inference.sessions import SessionEffects, session_effects, session_names
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import INK
from meshtrial.vocabulary import VerdictLabel

_SESSION_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("load", "response", "treatment", "against", "session"), pl.String),
    "estimate": pl.Float64,
    "blocks": pl.Int64,
    **dict.fromkeys(("predicted low", "predicted high"), pl.Float64),
    "unit": pl.String,
}


def sessions(data: StudyData) -> Figure:
    """Draw the estimate of each session, and as a band where the estimate of another one would be."""
    names = session_names(data)
    rows = [row for row in frames.contrasts(data, primary=True, between=False).rows if row.n_blocks]
    if len(names) < 2 or not rows:
        return empty("A study of one session shows no differences between sessions.")
    found = [(row, session_effects(data, row, by_difference=row.by_difference)) for row in rows]
    values = [line for row, effects in found for line in _session_lines(row, effects, names)]
    table = pl.DataFrame(values, schema=_SESSION_COLUMNS, orient="row")
    texts = {row.key: _session_text(row, effects) for row, effects in found}
    level = wording.declared_percent(1 - data.plan.study.alpha)
    caption = (
        "The mean of the block differences of each session, on the scale of the verdict. Band: where the estimate of "
        f"another session lies with {level} probability, if it is drawn like these. Two sessions give no band."
    )
    alt = alt_text("Estimates by session", texts.values())
    return Figure(lambda: _draw_sessions(data, names, table, texts), alt, caption, table)


def _session_lines(row: VerdictRow, effects: SessionEffects, names: Sequence[str]) -> list[tuple[object, ...]]:
    """Return a line of the table for each session, with effects in the unit of their axis."""
    response = wording.response_of(row)
    unit, scale = (wording.unit(response), response.scale) if row.by_difference else ("ratio", 1.0)
    shown = [None if value is None else value * scale for value in (*effects.estimates, effects.low, effects.high)]
    *estimates, low, high = shown
    return [
        (*row.key, name, value, blocks, low, high, unit)
        for name, value, blocks in zip(names, estimates, effects.blocks, strict=True)
    ]


def _session_text(row: VerdictRow, effects: SessionEffects) -> str:
    known = [value for value in effects.estimates if value is not None]
    text = f"{row.treatment} against {row.baseline} in {wording.short_label(row.response)}: "
    text += wording.range_of_effect(row, min(known), max(known)) if known else "no estimate"
    if effects.low is not None:
        text += f", another session {wording.range_of_effect(row, effects.low, effects.high)}"
    return text


def _draw_sessions(data: StudyData, names: Sequence[str], table: pl.DataFrame, texts: Mapping[Any, str]) -> Canvas:
    looks, drawn = palette.looks(data.plan.study), frames.order(data, table["treatment"].to_list())
    panels = list(table.group_by("load", "response", "unit", maintain_order=True))
    figure, axes = sheet.panels([2.3 + sheet.key_in(drawn), *[2.1] * (len(panels) - 1)], sharex=True)
    for axis, ((load, response, unit), rows) in zip(axes, panels, strict=True):
        for (treatment, against), contrast in rows.group_by("treatment", "against", maintain_order=True):
            look, points = looks[str(treatment)], contrast.with_row_index("at").drop_nulls("estimate")
            axis.plot(points["at"], points["estimate"], **look.line(1))
            (marks,) = axis.plot(points["at"], points["estimate"], **look.marks(6) | {"markerfacecolor": look.colour})
            sheet.set_tips(marks, texts[load, response, treatment, against])
            low, high = contrast.select("predicted low", "predicted high").row(0)
            if low is not None and high is not None:
                axis.axhspan(low, high, color=look.colour, alpha=0.15, linewidth=0)
        axis.axhline(1 if unit == "ratio" else 0, color=INK, linewidth=0.9)
        axis.set_ylabel("ratio" if unit == "ratio" else f"added / {unit}")
        title = frames.panel_title(frames.load_title(data, str(load)), wording.short_label(str(response)))
        axis.set_title(title, loc="left")
    sheet.key(axes[0], [looks[name] for name in drawn])
    axes[-1].set_xlim(-0.4, len(names) - 0.6)
    labelled = list(range(0, len(names), -(-len(names) // 12)))
    axes[-1].xaxis.set_major_locator(FixedLocator(labelled))
    axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].set_xticklabels([str(index + 1) for index in labelled])
    axes[-1].set_xlabel("session" if names[0].startswith("session") else "part")
    return figure


# --- studies of one question ------------------------------------------------------------------------------------------

_STUDY_COLUMNS: dict[str, Any] = {
    "study": pl.String,
    "began": pl.Datetime,
    **dict.fromkeys(("load", "treatment", "against"), pl.String),
    **dict.fromkeys(("estimate", "low", "high"), pl.Float64),
    "blocks": pl.Int64,
    "verdict": pl.String,
    "by_difference": pl.Boolean,
}
Marks = Sequence[tuple[str, str, str]]


def history(studies: Sequence[StudyData], name: str, marks: Marks = ()) -> Figure:
    """Draw one response of several studies of one question over time, one panel per load.

    `marks` has load, treatment and study of each change of level.
    """
    about = registered(name)
    rows = _study_rows(studies, about.name)
    if rows.is_empty():
        return empty(f"No study has a verdict on {about.label}.")
    by_difference = bool(rows["by_difference"].any())
    rows = rows.drop("by_difference")
    scale = "difference" if by_difference else "ratio"
    caption = (
        f"{about.label}: {scale} to the baseline of each study with its interval, at the time of its first run. "
        "Filled: a difference was called. A change that the A/A twin (the baseline deployed twice) shares comes from "
        "the day and not from the treatment."
    )
    if marks:
        caption += " Dotted: the first study after a change of level."
    parts = []
    for (load, treatment), points in rows.group_by("load", "treatment", maintain_order=True):
        low, high = (wording.number(float(v)) for v in (points["estimate"].min(), points["estimate"].max()))  # type: ignore[arg-type]
        parts.append(f"{treatment} at {load}: {points.height} studies, estimates from {low} to {high}")
    alt = alt_text("Studies over time", parts)
    return Figure(lambda: _draw_studies(studies, rows, about.name, by_difference, marks), alt, caption, rows)


def _study_rows(studies: Sequence[StudyData], name: str) -> pl.DataFrame:
    values = []
    for data in studies:
        began = datetime.datetime.fromtimestamp(data.began_unix_s or 0.0, datetime.UTC).replace(tzinfo=None)
        for row in data.verdicts:
            if row.response == name and row.n_blocks:
                about = (data.path.name, began, row.load, row.treatment, row.baseline)
                values.append((*about, *frames.effect(row), row.n_blocks, row.verdict.value, row.by_difference))
    frame = pl.DataFrame(values, schema=_STUDY_COLUMNS, orient="row")
    # Ratios and differences cannot share an axis; if there are both, the ratios are drawn.
    if frame["by_difference"].any() and not frame["by_difference"].all():
        frame = frame.filter(~pl.col("by_difference"))
    return frame.sort("load", "treatment", "began")


def _draw_studies(
    studies: Sequence[StudyData], rows: pl.DataFrame, name: str, by_difference: bool, marks: Marks
) -> Canvas:
    loads = rows["load"].unique(maintain_order=True).to_list()
    figure, axes = sheet.panels([2.6] * len(loads), sharex=True)
    looks = palette.Styles(pair for data in studies for pair in palette.looks(data.plan.study).items())
    for axis, load in zip(axes, loads, strict=True):
        for (treatment,), points in rows.filter(load=load).group_by("treatment", maintain_order=True):
            look = looks[str(treatment)]
            at = date2num(points["began"].to_list())  # type: ignore[no-untyped-call]
            axis.plot(at, points["estimate"], **look.line(1))
            for x, row in zip(at, points.iter_rows(named=True), strict=True):
                ends = [] if row["low"] is None or row["high"] is None else [row["low"], row["high"]]
                called = VerdictLabel(row["verdict"]).different
                sheet.estimate(axis, x, ends, row["estimate"], look, upright=True, filled=called, size=6)
                if (load, treatment, row["study"]) in marks:
                    axis.axvline(x, color=look.colour, linewidth=1.2, linestyle=":")
        axis.axhline(0 if by_difference else 1, color=INK, linewidth=0.9)
        axis.set_ylabel(f"difference / {wording.unit(name)}" if by_difference else "ratio to the baseline")
        axis.set_title(frames.panel_title(load if len(loads) > 1 else "", registered(name).label), loc="left")
    sheet.key(axes[0], [looks[treatment] for treatment in rows["treatment"].unique(maintain_order=True)])
    locator = AutoDateLocator(minticks=3, maxticks=max(6, sheet.TICKS))  # type: ignore[no-untyped-call]
    axes[-1].xaxis.set_major_locator(locator)
    axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes[-1].set_xlabel("first run of the study, UTC")
    return figure
