"""What all pages share, the digests by which a report names its records, and pages made without a notebook.

Every page has the same script, and a policy with its digest that allows this script only. The script sorts tables and
removes what does not scroll from the tab order; it fetches nothing. A page is complete without it. No part of the
script comes from data, so a name in a record cannot become code.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from meshtrial.design.responses import response as registered
from meshtrial.errors import RecordError
from meshtrial.inference.between import Between, differences, levels
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_text
from meshtrial.report.markup import TEMPLATES, Displayable, paragraph, render
from meshtrial.report.tables.between import between as table
from meshtrial.report.tables.between import levels as level_table


class Script(NamedTuple):
    """A script as part of a page: its exact bytes between the tags, and its digest for the page's policy.

    The digest is `sha256-` and base64 (https://www.w3.org/TR/CSP3/#grammardef-hash-source).
    """

    source: Markup
    digest: str


@cache
def script() -> Script:
    """Return the script of all pages."""
    source = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return Script(Markup(source), "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode())


def report_seal(html_path: Path) -> dict[str, str]:
    """Return the digests ``plan`` and ``verdicts`` and the folder ``records`` that a report names.

    The result is empty if the page has no provenance.
    """
    try:
        text = html_path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{html_path}: cannot be read ({error})") from None
    found = re.search(r'<div\b[^>]*\bclass="mt-seal"[^>]*>', text)
    return dict(re.findall(r'data-mt-(\w+)="([^"]*)"', found.group())) if found else {}


@dataclass(frozen=True)
class Section:
    """A heading, which may be empty, and the parts below it."""

    title: str
    parts: tuple[Displayable, ...]

    @property
    def anchor(self) -> str:
        """The fragment of a link to this section."""
        return self.title.replace(" ", "-")


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write a page as one file that fetches nothing."""
    headings = [("2", section.anchor, section.title) for section in sections if section.title]
    page = render("comparison.html.j2", title=title, headings=headings, sections=sections, script=script())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


def write_history(path: Path, studies: Sequence[StudyData], compared: Sequence[Between], response: str) -> None:
    """Write the page of a question's studies: an effect over time, and the studies compared if there are several."""
    from meshtrial.report.figures.sessions import history  # pages of tables need no matplotlib

    name, changes = registered(response).name, levels(compared)
    marks = [
        (one.load, one.treatment, studies[one.effects[change.index].study].path.name)
        for one, of_one in zip(compared, changes, strict=True)
        for change in of_one
        if one.response == name and one.baseline
    ]
    sections = [Section("Over time", (history(studies, response, marks),))]
    if compared:
        sections.append(Section("Changes of level", (level_table(studies, compared, changes),)))
        comparison = table(studies, compared, differences(studies))
    else:
        comparison = paragraph("There is one study so far, so nothing to compare it with.")
    sections.append(Section("Study against study", (comparison,)))
    write_page(path, f"{studies[0].plan.study.name} over time", sections)
