"""The page of several studies of one question: an effect over time, and what the days are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshtrial.inference import between
from meshtrial.records.dataset import StudyData
from meshtrial.report.figures.history import history
from meshtrial.report.markup import paragraph
from meshtrial.report.pages import Section, write_page
from meshtrial.report.tables.between import between as table


def write(path: Path, studies: Sequence[StudyData], response: str) -> None:
    """Write it; studies are compared where there are two.

    Parameters
    ----------
    path : Path
    studies : sequence of StudyData
        Of one question.
    response : str
        What is drawn.
    """
    if len(studies) > 1:
        shown = table(studies, between.compare(studies), between.differences(studies))
    else:
        shown = paragraph("One study: nothing to compare it with yet.")
    sections = (
        Section("Over time", (history(studies, response).html,)),
        Section("Study against study", (shown.html,)),
    )
    write_page(path, f"{studies[0].plan.study.name} over time", sections)
