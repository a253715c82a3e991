"""Injected delays against what was estimated: does the instrument see what is there?"""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from meshtrial.inference.instrument import Detection, detections
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.report import frames, sheet, wording
from meshtrial.report.figure import Columns, Figure
from meshtrial.report.figures.common import empty, estimate, spread
from meshtrial.report.palette import INK, TreatmentStyle
from meshtrial.vocabulary import VerdictLabel

_WORD_IN = 0.17  # how wide an upright word is
_MARKS = {VerdictLabel.SLOWER: "o", VerdictLabel.EQUIVALENT: "s", VerdictLabel.INCONCLUSIVE: "D"}


def detection(data: StudyData) -> Figure:
    """Estimated added milliseconds against the delay that the relay says it added, with intervals and verdicts."""
    delays = [one for one in detections(data) if one.row.difference is not None]
    # Without a relay, what lies off the line is a treatment's own cost and no error of the instrument.
    if not delays or not any("relay" in run.extra for run in data.runs):
        return empty("No injected delay has been analysed.")
    caption = (
        "Delay added to the median request, estimated within blocks, against the mean delay that the relay says it "
        "added. The line is where both are the same. Circles: called slower. Squares: shown to be below the "
        "margin. Diamonds: inconclusive. The relay delays each request on its way in; a p50 can gain more or less than "
        "the mean."
    )
    return Figure.of(lambda: _draw(delays), delays, _COLUMNS, "Injected delays, found again", _says, caption)


def _says(one: Detection) -> str:
    injected, found = (wording.plain(value * 1e6) for value in (one.applied_s, one.row.difference or 0))
    return f"{injected} us injected: {found} us estimated, {one.row.sentence}"


def _microseconds(row: VerdictRow) -> list[float]:
    """The estimate and the ends of its interval."""
    return [value or 0.0 for value in frames.differences(row, 1e6)]


def _draw(delays: list[Detection]) -> Canvas:
    figure, (axes,) = sheet.panels([3.2])
    most = max(max(one.applied_s, one.row.difference_high or 0.0) for one in delays) * 1e6
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8, linestyle=":")
    # Upright: small delays lie closer together than a word is wide, and closer than one is high.
    places = spread([one.applied_s * 1e6 for one in delays], _WORD_IN * most / sheet.WIDTH_IN, 0.0, 2 * most)
    for one, place in zip(delays, places, strict=True):
        middle, *ends = _microseconds(one.row)
        x, word = one.applied_s * 1e6, one.row.verdict
        look = TreatmentStyle(
            one.treatment, INK, _MARKS.get(word, "x"), "-", filled=word is not VerdictLabel.INCONCLUSIVE
        )
        estimate(axes, x, ends, middle, look, upright=True, filled=look.filled)
        axes.annotate(
            word,
            (place, ends[1]),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=90,
            fontsize=sheet.SMALL,
        )
    axes.set_ylim(top=1.25 * axes.get_ylim()[1])
    axes.set_xlabel("injected, us")
    axes.set_ylabel("estimated at p50, us")
    return figure


_COLUMNS: Columns[Detection] = {
    "treatment": lambda one: one.treatment,
    "asked / µs": lambda one: one.asked_s * 1e6,
    "added by the relay / µs": lambda one: one.applied_s * 1e6,
    "estimated at p50 / µs": lambda one: _microseconds(one.row)[0],
    "estimate low / µs": lambda one: _microseconds(one.row)[1],
    "estimate high / µs": lambda one: _microseconds(one.row)[2],
    "smallest effect seen / µs": lambda one: None if one.detectable_s is None else one.detectable_s * 1e6,
    "verdict": lambda one: one.row.sentence,
}
