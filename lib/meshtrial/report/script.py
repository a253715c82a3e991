"""The one script of a page, and the digest by which the page's policy lets it run and nothing else.

A page is whole without it: every row stands there, folds open by themselves and on paper. It sorts tables, takes what
does not scroll out of the Tab key's way, and touches no network. It is the same text on every page, never put together
from data, so a name out of a record can be no part of it.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from meshtrial.report.markup import TEMPLATES


@dataclass(frozen=True)
class Script:
    """A script as a page holds it.

    Attributes
    ----------
    source : Markup
        What stands between the tags, to the byte.
    digest : str
        For the page's policy: ``sha256-`` and the base64 of the SHA-256 of `source`
        (https://www.w3.org/TR/CSP3/#grammardef-hash-source).
    """

    source: Markup
    digest: str


@cache
def script() -> Script:
    """The script of this package's pages."""
    source = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return Script(Markup(source), "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode())
