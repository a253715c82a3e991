"""An executed notebook as one offline page, and what such a page says of its origin.

A page has a single small script of its own, which sorts tables, and a content security policy that forbids fetching and
every other script. What is shown is what the notebook holds: errors first and loudest, code at the end, library chatter
on stderr dropped. How, `report/exporter.py` says.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup

from meshtrial import __version__
from meshtrial.errors import RecordError
from meshtrial.records.store import write_text
from meshtrial.report.markup import ON_PAGE, part, style_sheet
from meshtrial.report.pages import script


def notebook_to_html(ipynb_path: Path, html_path: Path, *, index: str = "") -> Path:
    """Write an executed notebook as one HTML file that needs nothing else; ``index`` is the page over all reports."""
    from nbconvert.filters import markdown2html  # nbconvert takes long to load

    from meshtrial.report.exporter import LOG_LINES, NOT_WHOLE, PageExporter, errors_of, tags_of

    notebook = _read(ipynb_path)
    stopped = [cell.source for cell in notebook.cells if NOT_WHOLE in tags_of(cell)]
    why = Markup(markdown2html("\n\n".join(stopped))) if stopped else ""
    exporter = PageExporter()
    numbers = itertools.count(1)
    resources = {
        "meshtrial": {
            "title": title_of(notebook, ipynb_path.stem),
            "language": str(notebook.metadata.get("language", "en")),
            "version": __version__,
            "on_page": ON_PAGE,
            "log_lines": LOG_LINES,
            "index": index,
            "objects_css": style_sheet("objects.css"),
            "page_css": style_sheet("page.css"),
            "script": script(),
            # Known when the cells were put in order and rendered.
            "banner": lambda shown: part("banner", errors_of(shown), why),
            "contents": lambda: part("contents", exporter.headings),
            "next_error": lambda: next(numbers),
        }
    }
    page, _ = exporter.from_notebook_node(notebook, resources=resources)
    html_path.parent.mkdir(parents=True, exist_ok=True)
    write_text(html_path, page)
    return html_path


def add_unfinished_banner(path: Path, what: str, kept: str, command: str) -> None:
    """Put a cell before all others of an executed notebook: its study did not come to its end.

    It says what ended the study, how much is kept and where, and the command that makes what is missing. On the page it
    becomes the banner. papermill's cell gives way to it, and what an earlier call put there.
    """
    from meshtrial.report.exporter import CELLS, NOT_WHOLE, PAPERMILL_TAG, tags_of

    notebook = _read(path)
    cells = [cell for cell in notebook.cells if NOT_WHOLE not in tags_of(cell)]
    if cells and PAPERMILL_TAG in tags_of(cells[0]):
        del cells[0]
    # Indented, so that nothing in a message is taken for markup.
    what, command = (textwrap.indent(text, "    ", lambda _: True) for text in (what, command))
    text = f"**This study did not come to its end.**\n\n{what}\n\n{kept}. To go on:\n\n{command}"
    notebook.cells = [CELLS.new_markdown_cell(text, metadata={"tags": [NOT_WHOLE]}), *cells]
    write_text(path, CELLS.writes(notebook) + "\n")


def report_seal(html_path: Path) -> dict[str, str]:
    """What a report says of its origin: ``plan`` and ``verdicts`` digests and the ``records`` folder.

    Empty where the page holds no provenance.
    """
    try:
        text = html_path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{html_path}: cannot be read ({error})") from None
    found = re.search(r'<div\b[^>]*\bclass="mt-seal"[^>]*>', text)
    return dict(re.findall(r'data-mt-(\w+)="([^"]*)"', found.group())) if found else {}


def title_of(notebook: Any, fallback: str) -> str:
    """The notebook's own title: metadata first, then its first heading."""
    named = notebook.metadata.get("title")
    if named:
        return str(named)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found = re.search(r"^#\s+(.+)$", cell.source, flags=re.MULTILINE)
            if found:
                return re.sub(r"[*_`]", "", found.group(1)).strip()
    return fallback


def _read(path: Path) -> Any:
    import nbformat  # its validator takes more than a second to load

    try:
        return cast(Any, nbformat).read(path, as_version=4)
    except (OSError, UnicodeDecodeError, ValueError, nbformat.reader.NotJSONError) as error:
        raise RecordError(f"{path}: is no readable notebook ({error}); run the study again") from error
