"""The feed: a study an item, as RSS 2.0 (https://www.rssboard.org/rss-specification).

It holds no time of its making: the same studies give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from meshtrial.errors import UsageError
from meshtrial.records.store import write_text
from meshtrial.report.summary import one_line
from meshtrial.site.head import whole_address
from meshtrial.site.published import Published

FEED = "feed.xml"
_ATOM = "http://www.w3.org/2005/Atom"


def checked_base(url: str) -> str:
    """An address under which a site is served, with a slash at its end.

    Raises
    ------
    UsageError
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        sound = False
    if not sound or any(sign.isspace() for sign in url):
        raise UsageError(f"--base-url {url}: is no address of a site; give one like https://example.org/meshes/")
    return url if url.endswith("/") else url + "/"


def write_feed(root: Path, studies: Sequence[Published], base_url: str) -> Path:
    """Write ``feed.xml``.

    Parameters
    ----------
    root : Path
    studies : sequence of Published
        The newest first.
    base_url : str
        What :func:`checked_base` returned; links of a feed must be whole.
    """
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
