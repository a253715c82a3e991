"""Pages that no notebook makes: a title and sections, one offline file of the same make as a study's report.

Every page has one script, and the digest by which its policy lets that run and nothing else. A page is whole without
it: every row stands there, folds open by themselves and on paper. It sorts tables, takes what does not scroll out of
the Tab key's way, and touches no network. It is the same text on every page, never put together from data, so a name
out of a record can be no part of it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markupsafe import Markup

from meshtrial import __version__
from meshtrial.inference import between
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_text
from meshtrial.report.figures.history import history
from meshtrial.report.markup import TEMPLATES, Displayable, paragraph, render, style_sheet
from meshtrial.report.tables.between import between as table


@dataclass(frozen=True)
class Script:
    """A script as a page holds it."""

    source: Markup  # what stands between the tags, to the byte
    digest: str  # for the page's policy: `sha256-`, base64 (https://www.w3.org/TR/CSP3/#grammardef-hash-source)


@cache
def script() -> Script:
    """The script of all reports."""
    source = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return Script(Markup(source), "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode())


@dataclass(frozen=True)
class Section:
    """A heading, which may be empty, and what stands below it."""

    title: str
    parts: tuple[Displayable, ...]

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


def write_history(path: Path, studies: Sequence[StudyData], response: str) -> None:
    """Write the page of studies of one question: an effect over time, and studies compared where there are two."""
    if len(studies) > 1:
        shown = table(studies, between.compare(studies), between.differences(studies))
    else:
        shown = paragraph("One study: nothing to compare it with yet.")
    sections = (Section("Over time", (history(studies, response),)), Section("Study against study", (shown,)))
    write_page(path, f"{studies[0].plan.study.name} over time", sections)
