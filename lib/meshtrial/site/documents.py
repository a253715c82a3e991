"""The documentation as pages: every Markdown file that README.md and docs/ lead to, at the same place in the site.

Because the site keeps the checkout's folders, a link between files leads to the same thing as it does there; only the
ending of a Markdown file changes. Files of other kinds that are linked are copied. MkDocs and MyST would want folders
and a frame of their own, and the anchors that mistune can give are not those of the repository's viewer.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import mistune
from markupsafe import Markup
from mistune.plugins.table import table as table_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from meshtrial import __version__
from meshtrial.errors import RecordError
from meshtrial.records.store import write_text
from meshtrial.report.markup import render
from meshtrial.site.head import Head

START, LAST = "README.md", "CHANGELOG.md"
_FOLDER = "docs"
_FIRST = (PurePosixPath("."), PurePosixPath(_FOLDER))
_MARKDOWN = ".md"
_LAST_LEVEL = 3  # deeper headings are not in the contents


@dataclass(frozen=True)
class Document:
    """A Markdown file as HTML."""

    source: PurePosixPath  # as seen from the checkout
    title: str
    html: Markup
    headings: Sequence[tuple[int, str, Markup]]  # level, anchor and text, of the second and third level
    linked: Sequence[PurePosixPath]  # files of the checkout that it links or shows

    @property
    def address(self) -> str:
        """Of its page, as seen from the site's root."""
        return _as_page(str(self.source))

    @property
    def name(self) -> str:
        """What the list of all pages calls it."""
        return "Read me" if str(self.source) == START else self.title


def write_documents(checkout: Path, root: Path, base_url: str = "") -> tuple[Path, ...]:
    """Write the pages of a checkout's documentation, and what they link, into a site's folder; return the pages."""
    documents = _read_all(checkout)
    for document in documents:
        page = render(
            "site/document.html.j2",
            head=Head(
                title=f"{document.title} · meshtrial",
                description=f"Documentation of meshtrial: {document.title}.",
                depth=len(document.source.parts) - 1,
                base_url=base_url,
                address=document.address,
            ),
            document=document,
            # Those beside it and those of the first two folders: the rest is in the index, which is one of them.
            documents=[one for one in documents if one.source.parent in (*_FIRST, document.source.parent)],
            version=__version__,
        )
        (root / document.address).parent.mkdir(parents=True, exist_ok=True)
        write_text(root / document.address, page)
    for other in {linked for document in documents for linked in document.linked}:
        if other.suffix != _MARKDOWN and (checkout / other).is_file():
            (root / other).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / other, root / other)
    return tuple(root / document.address for document in documents)


def _read_all(checkout: Path) -> list[Document]:
    """Every page that README.md and docs/ lead to, README.md first and those of docs/ before the others."""
    first = (checkout / START, *sorted((checkout / _FOLDER).rglob(f"*{_MARKDOWN}")), checkout / LAST)
    waiting = [PurePosixPath(path.relative_to(checkout).as_posix()) for path in first]
    documents: dict[PurePosixPath, Document] = {}
    for source in waiting:
        if source not in documents and (checkout / source).is_file():
            documents[source] = _read(checkout, source)
            waiting += [linked for linked in documents[source].linked if linked.suffix == _MARKDOWN]
    return list(documents.values())


def _read(checkout: Path, source: PurePosixPath) -> Document:
    try:
        text = (checkout / source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{checkout / source}: cannot be read ({error})") from None
    renderer = _Renderer(source.parent)
    html = mistune.Markdown(renderer=renderer, plugins=[table_plugin])(text)
    return Document(
        source,
        renderer.title or source.stem,
        Markup(html),
        [heading for heading in renderer.headings if 2 <= heading[0] <= _LAST_LEVEL],
        renderer.linked,
    )


class _Renderer(mistune.HTMLRenderer):
    """Markdown as this site needs it: anchors as in the checkout's own viewer, links to pages, coloured code.

    Raw HTML is shown as text: none of our pages has any.
    """

    def __init__(self, folder: PurePosixPath) -> None:
        super().__init__(escape=True)
        self.folder = folder
        self.title = ""
        self.headings: list[tuple[int, str, Markup]] = []
        self.linked: list[PurePosixPath] = []
        self._seen: Counter[str] = Counter()
        self._tables = 0

    def heading(self, text: str, level: int, **attributes: Any) -> str:
        """A heading with the anchor that links between the files use."""
        shown = Markup(text)
        anchor = anchor_of(shown.striptags())
        turn = self._seen[anchor]
        self._seen[anchor] += 1
        anchor = f"{anchor}-{turn}" if turn else anchor
        self.headings.append((level, anchor, Markup.escape(shown.striptags())))
        self.title = self.title or shown.striptags()
        return super().heading(text, level, id=anchor)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link; one to a Markdown file leads to its page."""
        target, mark, anchor = url.partition("#")
        if self._is_ours(target):
            self._note(target)
            url = _as_page(target) + mark + anchor
        return super().link(text, url, title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """An image; one of ours goes with the site."""
        if self._is_ours(url):
            self._note(url)
        return super().image(text, url, title)

    def block_code(self, code: str, info: str | None = None) -> str:
        """Code in the colours of its language, where one is named that is known."""
        try:
            lexer = get_lexer_by_name((info or "").split(maxsplit=1)[0])
        except (IndexError, ClassNotFound):
            return super().block_code(code, None)
        return str(highlight(code, lexer, HtmlFormatter()))

    def table(self, text: str) -> str:
        """A table that scrolls by itself on a narrow screen, reachable by keyboard."""
        self._tables += 1
        near = self.headings[-1][2] if self.headings else self.title
        return render("site/table.html.j2", label=f"Table {self._tables}: {near}", body=Markup(text))

    def _is_ours(self, url: str) -> bool:
        return bool(url) and not re.match(r"[a-z][a-z0-9+.-]*:|/", url, flags=re.IGNORECASE)

    def _note(self, url: str) -> None:
        path = posixpath.normpath(self.folder / url)
        if not path.startswith("../"):  # else it leads out of the checkout
            self.linked.append(PurePosixPath(path))


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading: small letters, no signs, hyphens for spaces.

    https://docs.github.com/en/get-started/writing-on-github/getting-started-with-writing-and-formatting-on-github/basic-writing-and-formatting-syntax#section-links
    """
    text = unicodedata.normalize("NFC", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _as_page(path: str) -> str:
    return path.removesuffix(_MARKDOWN) + ".html" if path.endswith(_MARKDOWN) else path
