"""A page that no notebook makes: a title and sections, one offline file of the same make as a study's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from meshtrial import __version__
from meshtrial.records.store import write_text
from meshtrial.report.markup import render, style_sheet
from meshtrial.report.script import script


@dataclass(frozen=True)
class Section:
    """A heading, which may be empty, and what stands below it."""

    title: str
    parts: tuple[Markup, ...]

    @property
    def anchor(self) -> str:
        """What a link to it ends in."""
        return self.title.replace(" ", "-")


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write it; it fetches nothing."""
    page = render(
        "comparison.html.j2",
        title=title,
        headings=[("2", section.anchor, section.title) for section in sections if section.title],
        sections=sections,
        sheets=[style_sheet("objects.css"), style_sheet("page.css")],
        version=__version__,
        script=script(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
