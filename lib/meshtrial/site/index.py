"""All studies of a site: its first page, searched and filtered in the browser; their verdicts as JSON; and the feed.

The feed is RSS 2.0 (https://www.rssboard.org/rss-specification), a study an item. It holds no time of its making: the
same studies give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from meshtrial import __version__, paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.records.store import PLAN, read_json, write_text
from meshtrial.report.markup import render
from meshtrial.report.pages import script
from meshtrial.report.summary import one_line
from meshtrial.site.head import Head, whole_address
from meshtrial.site.published import SCHEMA, Published, as_json

INDEX, VERDICTS, FEED = "index.html", "verdicts.json", "feed.xml"
_ATOM = "http://www.w3.org/2005/Atom"


def refuse_foreign(root: Path) -> None:
    """Refuse a folder that is no place for a site: the checkout, a study, one whose first page is not ours."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; give the folder of the site")
    if root == paths.CHECKOUT or (root / PLAN).exists():
        raise UsageError(f"{root}: is the checkout or a study; the folder of the site stands first, then studies")
    if not (root / INDEX).exists():
        return
    try:
        ours = read_json(root / VERDICTS).get("schema") == SCHEMA
    except RecordError:
        ours = False
    if not ours:
        raise UsageError(f"{root}: holds an {INDEX} that is of no site made here; give another folder")


def write_site_index(
    root: Path, studies: Sequence[Published], broken: Sequence[tuple[str, str]] = (), base_url: str = ""
) -> Path:
    """Write ``index.html``, and ``verdicts.json``; pages that cannot be described are listed with their reason."""
    body = {"schema": SCHEMA, "studies": [study.to_dict() for study in studies]}
    write_text(root / VERDICTS, as_json(body))
    heaviest = sorted(studies, key=lambda one: one.weight, reverse=True)
    page = render(
        "site/index.html.j2",
        head=Head(
            title="Trials of service meshes",
            description="Recorded studies of what service meshes cost, with verdicts, data and how each was measured.",
            base_url=base_url,
            script=script("site/search.js"),
        ),
        # Of those that settle as much, the newest stays first.
        studies=[(study, json.dumps(study.study.treatments)) for study in heaviest],
        names=sorted({study.study.name for study in studies}),
        backends=sorted({(study.study.backend, study.where) for study in studies}),
        treatments=sorted({name for study in studies for name in study.study.treatments}),
        broken=broken,
        version=__version__,
    )
    write_text(root / INDEX, page)
    return root / INDEX


def checked_base(url: str) -> str:
    """An address under which a site is served, with a slash at its end."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        sound = False
    if not sound or any(sign.isspace() for sign in url):
        raise UsageError(f"--base-url {url}: is no address of a site; give one like https://example.org/meshes/")
    return url if url.endswith("/") else url + "/"


def write_feed(root: Path, studies: Sequence[Published], base_url: str) -> Path:
    """Write ``feed.xml``, the newest study first; its links must be whole: ``base_url`` is of `checked_base`."""
    ElementTree.register_namespace("atom", _ATOM)
    rss = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(rss, "channel")
    _add(channel, "title", "Trials of service meshes")
    _add(channel, "link", base_url)
    _add(channel, "description", "Recorded studies of what service meshes cost, with their verdicts.")
    _add(channel, "language", "en")
    own = {"href": whole_address(base_url, FEED), "rel": "self", "type": "application/rss+xml"}
    ElementTree.SubElement(channel, f"{{{_ATOM}}}link", own)
    for study in studies:
        item = ElementTree.SubElement(channel, "item")
        link = whole_address(base_url, study.address)
        _add(item, "title", study.title)
        _add(item, "link", link)
        ElementTree.SubElement(item, "guid", isPermaLink="true").text = link
        _add(item, "pubDate", format_datetime(study.moment))
        _add(item, "category", study.study.name)
        _add(item, "description", f"{study.study.question} {study.sentence}")
    ElementTree.indent(rss, " ")
    path = root / FEED
    body = ElementTree.tostring(rss, encoding="unicode")
    write_text(path, f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n')
    return path


def _add(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, name).text = one_line(text)
