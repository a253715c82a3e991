"""The picture that a link to a study is shown with: the forest of its first primary response against its baseline.

A preview is as wide as a phone at most: few rows in large type say more there than all of them in small.
"""

from __future__ import annotations

import io
import textwrap

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, svg
from meshtrial.report.figures.forest import forest_of
from meshtrial.report.frames import Contrasts
from meshtrial.report.palette import INK
from meshtrial.report.sheet import Sheet

# What Open Graph's readers expect, in pixels.
WIDTH, HEIGHT = 1200, 630
# The more dots an inch, the fewer rows fit and the better they are read.
_DOTS_PER_INCH = (200, 160, 150, 125, 120)
_ABOVE_AND_BELOW_IN = 1.75  # title, the panel's own, its axis, and the last line
_BESIDE_IN = 5.1  # the plot, and the verdicts beside it
_NAME_IN = 0.085  # a character of a treatment's name
_PAD_IN = 0.14
_TITLE, _TITLE_IN = 15.0, 0.125  # size, and what a character takes then
_LAST_LINE = 8.5


def picture(data: StudyData) -> bytes:
    """The PNG, 1200 by 630 pixels."""
    all_of_it = _contrasts(data)
    dots = next((dots for dots in _DOTS_PER_INCH if _fits(all_of_it, dots)), _DOTS_PER_INCH[-1])
    kept = all_of_it.rows[: _rows(dots)]
    shown = all_of_it.where(lambda row: row in kept)
    with svg.style():
        canvas = forest_of(shown).draw(Sheet(WIDTH / dots))
        canvas.set_size_inches(WIDTH / dots, HEIGHT / dots)
        engine = canvas.get_layout_engine()
        if engine is not None:
            engine.set(w_pad=_PAD_IN, h_pad=_PAD_IN)  # type: ignore[call-arg]
        left = _PAD_IN * dots / WIDTH
        title = textwrap.fill(data.plan.study.title, int(WIDTH / dots / _TITLE_IN))
        canvas.suptitle(title, x=left, ha="left", size=_TITLE, weight="bold")
        said = _last_line(data, len(kept), len(all_of_it.rows))
        canvas.supxlabel(said, x=1 - left, ha="right", size=_LAST_LINE, color=INK)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", dpi=dots, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _contrasts(data: StudyData) -> Contrasts:
    """Of one response, load and baseline: the first that were reported."""
    found = frames.contrasts(data, load=frames.loads(data)[0], primary=True, family="")
    first = next(filter(found.reported, found.rows), None)
    if first is None:
        return found
    return found.where(lambda row: (row.response, row.baseline) == (first.response, first.baseline))


def _fits(contrasts: Contrasts, dots: int) -> bool:
    longest = max((len(row.treatment) for row in contrasts.rows), default=0)
    return len(contrasts.rows) <= _rows(dots) and _BESIDE_IN + _NAME_IN * longest <= WIDTH / dots


def _rows(dots: int) -> int:
    return int((HEIGHT / dots - _ABOVE_AND_BELOW_IN) / Sheet(WIDTH / dots).row_in)


def _last_line(data: StudyData, kept: int, of: int) -> str:
    blocks, planned = frames.blocks_of(data)
    load = data.plan.study.loads[0].label
    parts = [load, f"{blocks} of {planned} blocks", f"plan {data.plan.sha256[:8]}", "meshtrial"]
    return " · ".join([f"{kept} of {of} contrasts", *parts] if kept < of else parts)
