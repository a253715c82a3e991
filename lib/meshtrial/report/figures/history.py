"""An effect over the studies of one question: each study's estimate with its interval, by the study's date."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import polars as pl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure as Canvas

from meshtrial.design.responses import response as registered
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, palette, sheet, wording
from meshtrial.report.figure import Figure, alt_text, empty
from meshtrial.report.palette import INK
from meshtrial.report.sheet import estimate
from meshtrial.vocabulary import VerdictLabel

_SCHEMA = {
    "study": pl.String,
    "began": pl.Datetime,
    "load": pl.String,
    "treatment": pl.String,
    "against": pl.String,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "blocks": pl.Int64,
    "verdict": pl.String,
}


Marks = Sequence[tuple[str, str, str]]


def history(studies: Sequence[StudyData], name: str, marks: Marks = ()) -> Figure:
    """Draw one response of several studies of one question over time, one panel per load.

    `marks` has load, treatment and study of each change of level.
    """
    about = registered(name)
    rows = _rows(studies, about.name)
    if rows.is_empty():
        return empty(f"No study has a verdict on {about.label}.")
    by_difference = rows["by_difference"].any()
    rows = rows.drop("by_difference")
    scale = "difference" if by_difference else "ratio"
    caption = (
        f"{about.label}: {scale} to the baseline of each study with its interval, at the time of its first run. "
        "Filled: a difference was called. A change that the A/A twin (the baseline deployed twice) shares comes from "
        "the day and not from the treatment."
    )
    if marks:
        caption += " Dotted: the first study after a change of level."
    return Figure(lambda: _draw(studies, rows, about.name, bool(by_difference), marks), _alt(rows), caption, rows)


def _rows(studies: Sequence[StudyData], name: str) -> pl.DataFrame:
    values = []
    for data in studies:
        began = datetime.datetime.fromtimestamp(data.began_unix_s or 0.0, datetime.UTC).replace(tzinfo=None)
        for row in data.verdicts:
            if row.response != name or not row.n_blocks:
                continue
            about = (data.path.name, began, row.load, row.treatment, row.baseline)
            values.append((*about, *frames.effect(row), row.n_blocks, row.verdict.value, row.by_difference))
    frame = pl.DataFrame(values, schema=_SCHEMA | {"by_difference": pl.Boolean}, orient="row")
    # Ratios and differences cannot share an axis; if there are both, the ratios are drawn.
    if frame["by_difference"].any() and not frame["by_difference"].all():
        frame = frame.filter(~pl.col("by_difference"))
    return frame.sort("load", "treatment", "began")


def _draw(studies: Sequence[StudyData], rows: pl.DataFrame, name: str, by_difference: bool, marks: Marks) -> Canvas:
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
                estimate(axis, x, ends, row["estimate"], look, upright=True, filled=called, size=6)
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


def _alt(rows: pl.DataFrame) -> str:
    parts = []
    for (load, treatment), points in rows.group_by("load", "treatment", maintain_order=True):
        low, high = (wording.number(float(v)) for v in (points["estimate"].min(), points["estimate"].max()))  # type: ignore[arg-type]
        parts.append(f"{treatment} at {load}: {points.height} studies, estimates from {low} to {high}")
    return alt_text("Studies over time", parts)
