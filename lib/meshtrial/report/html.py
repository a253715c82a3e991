"""An executed notebook as one offline page, and the digests by which such a page names its records.

A page has one small script, which sorts tables, and a content security policy that forbids fetching and every other
script. It shows what the notebook holds: errors first, code at the end, without the messages of libraries on stderr.
`report/exporter.py` selects and orders the cells.
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
    """Write an executed notebook as one self-contained HTML file; ``index`` is the address of the reports' index."""
    from nbconvert.filters import markdown2html  # nbconvert takes long to load

    from meshtrial.report.exporter import LOG_LINES, UNFINISHED, PageExporter, errors_of, tags_of

    notebook = _read(ipynb_path)
    notices = [cell.source for cell in notebook.cells if UNFINISHED in tags_of(cell)]
    notice = Markup(markdown2html("\n\n".join(notices))) if notices else ""
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
            # Called late: only after ordering and rendering the cells are errors and headings known.
            "banner": lambda nb: part("banner", errors_of(nb), notice),
            "contents": lambda: part("contents", exporter.headings),
            "next_error": lambda: next(numbers),
        }
    }
    page, _ = exporter.from_notebook_node(notebook, resources=resources)
    html_path.parent.mkdir(parents=True, exist_ok=True)
    write_text(html_path, page)
    return html_path


def add_unfinished_banner(path: Path, reason: str, kept: str, command: str) -> None:
    """Mark an executed notebook as that of an unfinished study, with a first cell that becomes the page's banner.

    The cell gives the reason, how much is kept and where, and the command that resumes the study. It replaces
    papermill's error cell and any cell of an earlier call.
    """
    from meshtrial.report.exporter import CELLS, PAPERMILL_TAG, UNFINISHED, tags_of

    notebook = _read(path)
    cells = [cell for cell in notebook.cells if UNFINISHED not in tags_of(cell)]
    if cells and PAPERMILL_TAG in tags_of(cells[0]):
        del cells[0]
    # Indented, so that nothing in a message is read as markup.
    reason, command = (textwrap.indent(text, "    ", lambda _: True) for text in (reason, command))
    text = f"**This study is unfinished.**\n\n{reason}\n\n{kept}. Resume it with:\n\n{command}"
    notebook.cells = [CELLS.new_markdown_cell(text, metadata={"tags": [UNFINISHED]}), *cells]
    write_text(path, CELLS.writes(notebook) + "\n")


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


def title_of(notebook: Any, fallback: str) -> str:
    """Return the notebook's title from its metadata, else its first heading, else the fallback."""
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
        raise RecordError(f"{path}: is not a readable notebook ({error}); run the study again") from error
