"""Injected delays against what was estimated: does the instrument see what is there?"""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.inference.instrument import Detection, detections
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty
from meshtrial.report.palette import INK
from meshtrial.report.sheet import SMALL, Sheet

_MARKS = {"slower": "o", "equivalent": "s", "inconclusive": "D"}


def detection(data: StudyData) -> Figure:
    """Estimated added milliseconds against the delay that the relay says it added, with intervals and verdicts."""
    found = [one for one in detections(data) if one.row.difference is not None]
    # Without a relay, what lies off the line is a treatment's own cost and no error of the instrument.
    if not found or not any("relay" in run.extra for run in data.runs):
        return empty("No injected delay has been analysed.")
    alt = "; ".join(
        f"{wording.plain(one.applied_s * 1e6)} us injected: {wording.plain((one.row.difference or 0) * 1e6)} us "
        f"estimated, {one.row.sentence}"
        for one in found
    )
    caption = (
        "Delay added to the median request, estimated within blocks, against the mean delay that the relay says it "
        "added. The line is where both are the same. Circles: called slower. Squares: shown to be below the "
        "margin. Diamonds: inconclusive. The relay delays each request on its way in; a p50 can gain more or less than "
        "the mean."
    )
    return Figure(lambda sheet: _draw(found, sheet), alt, caption, _table(found))


def _draw(found: list[Detection], sheet: Sheet) -> Canvas:
    figure, (axes,) = sheet.panels([3.2])
    most = max(max(one.applied_s, one.row.difference_high or 0.0) for one in found) * 1e6
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8, linestyle=":")
    for one in found:
        low, middle, high = (
            (value or 0.0) * 1e6 for value in (one.row.difference_low, one.row.difference, one.row.difference_high)
        )
        x = one.applied_s * 1e6
        mark = _MARKS.get(one.row.verdict, "x")
        axes.plot([x, x], [low, high], color=INK, linewidth=1.2)
        filled = "none" if one.row.verdict == "inconclusive" else INK
        axes.plot([x], [middle], marker=mark, color=INK, markerfacecolor=filled, markersize=6, linestyle="none")
        axes.annotate(
            one.row.verdict, (x, high), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=SMALL
        )
    axes.set_xlabel("injected, us")
    axes.set_ylabel("estimated at p50, us")
    return figure


def _table(found: list[Detection]) -> pl.DataFrame:
    rows = [
        {
            "treatment": one.treatment,
            "asked, us": one.asked_s * 1e6,
            "added by the relay, us": one.applied_s * 1e6,
            "estimated at p50, us": (one.row.difference or 0.0) * 1e6,
            "low": (one.row.difference_low or 0.0) * 1e6,
            "high": (one.row.difference_high or 0.0) * 1e6,
            "smallest effect seen, us": None if one.detectable_s is None else one.detectable_s * 1e6,
            "verdict": one.row.sentence,
        }
        for one in found
    ]
    return pl.DataFrame(rows)
