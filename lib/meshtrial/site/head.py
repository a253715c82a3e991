"""What stands in the head of every page of the site: title, description, Open Graph, and where the root lies."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urljoin

from markupsafe import Markup

from meshtrial.report.markup import style_sheet
from meshtrial.report.pages import Script

# Search engines and previews cut a description anyway; a whole verdict of many treatments would be pages long.
_MOST_DESCRIPTION = 300


@dataclass(frozen=True)
class Head:
    """Head of one page."""

    title: str
    description: str
    depth: int = 0  # folders between the site's root and the page
    base_url: str = ""  # where the site will be served, with a slash at its end, or empty; a feed needs it
    address: str = ""  # of the page, as seen from the root
    picture: str = ""  # likewise of what a preview shows; empty for none
    picture_says: str = ""  # the picture in words
    script: Script | None = None  # what the page holds, and lets run by its digest

    @property
    def root(self) -> str:
        """The way from the page to the root."""
        return "../" * self.depth

    @property
    def short_description(self) -> str:
        """Cut at a word."""
        if len(self.description) <= _MOST_DESCRIPTION:
            return self.description
        return self.description[:_MOST_DESCRIPTION].rsplit(" ", 1)[0] + " …"

    @property
    def url(self) -> str:
        """The page's whole address; empty without a base."""
        return whole_address(self.base_url, self.address)

    @property
    def picture_url(self) -> str:
        """The picture's whole address; Open Graph takes no other."""
        return whole_address(self.base_url, self.picture) if self.picture else ""

    @property
    def sheets(self) -> list[Markup]:
        """Styles: those of the reports, and what only the site needs."""
        return [style_sheet(name) for name in ("objects.css", "page.css", "site/site.css")]


def whole_address(base_url: str, address: str) -> str:
    """An address as seen from anywhere; empty without a base."""
    return urljoin(base_url, quote(address)) if base_url else ""
