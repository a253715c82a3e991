"""The picture that a link to a study is shown with: the forest of its first primary response at its first load.

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
# The larger the dots, the fewer rows fit and the better they are read.
_DOTS_PER_INCH = (200, 160, 150, 125, 120)
_ROOM_IN = 1.55  # title, axis and the line below it
_TITLE = 15.0
_CHARACTER_IN = 0.115  # of a title in that size


def picture(data: StudyData) -> bytes:
    """The PNG, 1200 by 630 pixels."""
    shown, left = _fitting(_contrasts(data), _rows(_DOTS_PER_INCH[-1]))
    dots = next((dots for dots in _DOTS_PER_INCH if _rows(dots) >= len(shown.rows)), _DOTS_PER_INCH[-1])
    width, height = WIDTH / dots, HEIGHT / dots
    study = data.plan.study
    kept, planned = frames.blocks_of(data)
    below = [study.loads[0].label, f"{kept} of {planned} blocks", f"plan {data.plan.sha256[:8]}", "meshtrial"]
    if left:
        below.insert(0, f"the first {len(shown.rows)} of {len(shown.rows) + left} contrasts")
    with svg.style():
        canvas = forest_of(shown).draw(Sheet(width))
        canvas.set_size_inches(width, height)
        title = textwrap.fill(study.title, int(width / _CHARACTER_IN))
        canvas.suptitle(title, x=0.02, ha="left", size=_TITLE, weight="bold")
        canvas.supxlabel(" · ".join(below), x=0.98, ha="right", size=8.5, color=INK)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", dpi=dots, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _rows(dots: int) -> int:
    sheet = Sheet(WIDTH / dots)
    return int((HEIGHT / dots - _ROOM_IN) / sheet.row_in)


def _contrasts(data: StudyData) -> Contrasts:
    load = frames.loads(data)[0]
    primary = frames.contrasts(data, load=load, primary=True)
    reported = [row.response for row in primary.rows if primary.reported(row)]
    return primary.where(lambda row: row.response == next(iter(reported), row.response))


def _fitting(contrasts: Contrasts, most: int) -> tuple[Contrasts, int]:
    kept = contrasts.rows[:most]
    return contrasts.where(lambda row: row in kept), len(contrasts.rows) - len(kept)
