"""The page of several studies of one question: an effect over time, and what the days are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from meshtrial import __version__
from meshtrial.inference import between
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_text
from meshtrial.report.figures.history import history
from meshtrial.report.markup import paragraph, render, style_sheet
from meshtrial.report.tables.between import between as table


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    parts: tuple[Markup, ...]

    @property
    def anchor(self) -> str:
        """What a link to it ends in."""
        return self.title.replace(" ", "-")


def page(studies: Sequence[StudyData], response: str) -> tuple[Section, ...]:
    """Its sections; the second compares the studies, where there are two."""
    sections = [Section("Over time", (Markup(history(studies, response)._repr_html_()),))]
    if len(studies) > 1:
        shown = table(studies, between.compare(studies), between.differences(studies)).html
    else:
        shown = paragraph("One study: nothing to compare it with yet.")
    return (*sections, Section("Study against study", (shown,)))


def write(path: Path, sections: Sequence[Section], study: str) -> None:
    """One file that fetches nothing."""
    made = render(
        "comparison.html.j2",
        title=f"{study} over time",
        headings=[("2", section.anchor, section.title) for section in sections],
        sections=sections,
        sheets=[style_sheet("objects.css"), style_sheet("page.css")],
        version=__version__,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, made)
