"""All studies of a site: its first page; their verdicts as JSON; and the feed.

The feed is RSS 2.0 (https://www.rssboard.org/rss-specification), a study an item. It holds no time of its making: the
same studies give the same bytes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from email.utils import format_datetime
from pathlib import Path

from markupsafe import Markup

from meshtrial import __version__, paths
from meshtrial.errors import UsageError
from meshtrial.records.store import PLAN, write_text
from meshtrial.report.markup import render, style_sheet
from meshtrial.report.summary import one_line
from meshtrial.site.published import SCHEMA, Published, as_json

INDEX, VERDICTS, FEED = "index.html", "verdicts.json", "feed.xml"
SCHEMAS = Path("docs", "schema")  # in the checkout and in every site, so that an address in use stays


def sheets() -> list[Markup]:
    """Styles: those of the reports, and what only the site needs."""
    return [style_sheet(name) for name in ("objects.css", "page.css", "site/site.css")]


def refuse_foreign(root: Path) -> None:
    """Refuse a folder that is no place for a site: the checkout, a study, one whose first page is not ours."""
    is_foreign = (root / INDEX).exists() and not (root / VERDICTS).is_file()
    if is_foreign or root.is_file() or root == paths.CHECKOUT or (root / PLAN).exists():
        raise UsageError(
            f"{root}: is a file, the checkout, a study or somebody else's web page; "
            "name the folder of the site first, then studies"
        )


def checked_base(url: str) -> str:
    """An address under which a site is served, with a slash at its end."""
    if not re.fullmatch(r"https?://[^\s?#/:\[\]]+(:\d+)?(/[^\s?#]*)?", url):
        raise UsageError(f"--base-url {url}: is no address of a site; give one like https://example.org/meshes/")
    return url if url.endswith("/") else url + "/"


def write_site_index(
    root: Path, studies: Sequence[Published], broken: Sequence[tuple[str, str]] = (), base_url: str = ""
) -> Path:
    """Write ``index.html``, ``verdicts.json`` with its schemas and, for a site whose address is known, ``feed.xml``.

    Studies come as `all_published` gives them, the newest first; pages that cannot be described are listed with their
    reason. The feed's links must be whole: ``base_url`` is of `checked_base`.
    """
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(paths.CHECKOUT / SCHEMAS, root / SCHEMAS, dirs_exist_ok=True)
    write_text(root / VERDICTS, as_json({"schema": SCHEMA, "studies": [asdict(study) for study in studies]}))
    if base_url:
        # XML cannot hold every sign that a title can.
        feed = render("site/feed.xml.j2", studies=studies, base=base_url, date=format_datetime, line=one_line)
        write_text(root / FEED, feed)
    page = render(
        "site/index.html.j2",
        # Of those that settle as much, the newest stays first.
        studies=sorted(studies, key=lambda one: one.weight, reverse=True),
        broken=broken,
        has_feed=(root / FEED).is_file(),
        sheets=sheets(),
        version=__version__,
    )
    write_text(root / INDEX, page)
    return root / INDEX
