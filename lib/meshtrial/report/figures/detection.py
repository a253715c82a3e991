"""Injected delays against what was estimated: does the instrument see what is there?"""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas

from meshtrial.inference.instrument import Detection, detections
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import wording
from meshtrial.report.figure import Figure
from meshtrial.report.figures.common import empty, estimate
from meshtrial.report.palette import INK, Look
from meshtrial.report.sheet import SMALL, Sheet
from meshtrial.vocabulary import Word

_MARKS = {Word.SLOWER: "o", Word.EQUIVALENT: "s", Word.INCONCLUSIVE: "D"}


def detection(data: StudyData) -> Figure:
    """Estimated added milliseconds against the delay that the relay says it added, with intervals and verdicts."""
    delays = [one for one in detections(data) if one.row.difference is not None]
    # Without a relay, what lies off the line is a treatment's own cost and no error of the instrument.
    if not delays or not any("relay" in run.extra for run in data.runs):
        return empty("No injected delay has been analysed.")
    alt = "; ".join(
        f"{wording.plain(one.applied_s * 1e6)} us injected: {wording.plain((one.row.difference or 0) * 1e6)} us "
        f"estimated, {one.row.sentence}"
        for one in delays
    )
    caption = (
        "Delay added to the median request, estimated within blocks, against the mean delay that the relay says it "
        "added. The line is where both are the same. Circles: called slower. Squares: shown to be below the "
        "margin. Diamonds: inconclusive. The relay delays each request on its way in; a p50 can gain more or less than "
        "the mean."
    )
    return Figure(lambda sheet: _draw(delays, sheet), alt, caption, _table(delays))


def _microseconds(row: VerdictRow) -> tuple[float, float, float]:
    """The estimate and the ends of its interval."""
    middle, low, high = ((value or 0.0) * 1e6 for value in (row.difference, row.difference_low, row.difference_high))
    return middle, low, high


def _draw(delays: list[Detection], sheet: Sheet) -> Canvas:
    figure, (axes,) = sheet.panels([3.2])
    most = max(max(one.applied_s, one.row.difference_high or 0.0) for one in delays) * 1e6
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8, linestyle=":")
    for one in delays:
        middle, *ends = _microseconds(one.row)
        x, word = one.applied_s * 1e6, one.row.verdict
        look = Look(one.treatment, INK, _MARKS.get(word, "x"), "-", filled=word is not Word.INCONCLUSIVE)
        estimate(axes, x, ends, middle, look, upright=True, filled=look.filled)
        axes.annotate(word, (x, ends[1]), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=SMALL)
    axes.set_xlabel("injected, us")
    axes.set_ylabel("estimated at p50, us")
    return figure


def _table(delays: list[Detection]) -> pl.DataFrame:
    rows = [
        (
            *(one.treatment, one.asked_s * 1e6, one.applied_s * 1e6, *_microseconds(one.row)),
            None if one.detectable_s is None else one.detectable_s * 1e6,
            one.row.sentence,
        )
        for one in delays
    ]
    columns = ["treatment", "asked, us", "added by the relay, us", "estimated at p50, us", "low", "high"]
    return pl.DataFrame(rows, schema=[*columns, "smallest effect seen, us", "verdict"], orient="row")
