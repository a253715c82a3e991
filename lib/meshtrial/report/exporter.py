"""An executed notebook as one offline page: which cells and outputs it has, in which order, and what it folds.

A page shows what the notebook holds: errors first, code at the end, without the messages of libraries on stderr.
nbconvert's own template loads four scripts from a network; ``templates/meshtrial`` replaces it. From our own outputs
the exporter takes the MIME type made for pages, from others the best one that a page can hold. This module imports
nbconvert, which takes long to load, so it is imported in functions only.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import nbformat
from bs4 import BeautifulSoup
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters import markdown2html
from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import Preprocessor
from nbformat import v4
from traitlets.config import Config

from meshtrial import __version__, paths
from meshtrial.errors import RecordError, plain
from meshtrial.records.store import write_text
from meshtrial.report.markup import ON_PAGE, TEMPLATES, part, style_sheet
from meshtrial.report.pages import script

CELLS: Any = v4  # nbformat declares no types
# Tags of cells that become the page's banner: our notice that a study is unfinished, and papermill's of an error.
UNFINISHED, PAPERMILL_TAG = "not-whole", "papermill-error-cell-tag"
LOG_LINES = 8  # longer printed output is folded
# Tags of the section that a page shows first, and of those it shows last: parameters and progress.
_FIRST_TAGS, _LAST_TAGS = {"verdict"}, {"parameters", "injected-parameters", "progress"}
# The title of a cell's folded code, by the cell's tag.
_SUMMARIES = {"parameters": "parameters and their defaults", "injected-parameters": "parameters of this run"}
_ALL_CODE = "all cells of the notebook, in order: the code that made every table and figure of this page"
# Folders of a path in a parameter. They differ from machine to machine and do not concern readers.
_FOLDERS = re.compile(r"""(?<=[=,"'])/(?:[^"',/]+/)+(?=[^"',/])""")
_STUDY_DIR = re.compile(r"""(?m)^study_dir = ["'](/[^"']*)["']""")
_CONFIG = Config(
    {
        # A page has no widgets, so an output's other MIME types are used.
        "NbConvertBase": {
            "display_data_priority": [
                ON_PAGE,
                *("text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"),
            ]
        },
        # Join text printed in pieces, so that it is folded as one output.
        "CoalesceStreamsPreprocessor": {"enabled": True},
        "TagRemovePreprocessor": {
            "enabled": True,
            # The page's banner replaces these cells.
            "remove_cell_tags": {PAPERMILL_TAG, UNFINISHED, "remove_cell", "remove-cell"},
            "remove_input_tags": {"remove_input", "remove-input"},
        },
    }
)


def notebook_to_html(ipynb_path: Path, html_path: Path, *, index: str = "") -> Path:
    """Write an executed notebook as one self-contained HTML file; ``index`` is the address of the reports' index."""
    notebook = _read(ipynb_path)
    notices = [cell.source for cell in notebook.cells if UNFINISHED in _tags(cell)]
    notice = Markup(markdown2html("\n\n".join(notices))) if notices else ""
    exporter = PageExporter()
    numbers = itertools.count(1)
    resources = {
        "meshtrial": {
            "title": _title(notebook, ipynb_path.stem),
            "language": str(notebook.metadata.get("language", "en")),
            "version": __version__,
            "on_page": ON_PAGE,
            "log_lines": LOG_LINES,
            "index": index,
            "objects_css": style_sheet("objects.css"),
            "page_css": style_sheet("page.css"),
            "script": script(),
            # Called late: only after ordering and rendering the cells are errors and headings known.
            "banner": lambda nb: part("banner", _errors(nb), notice),
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
    notebook = _read(path)
    cells = [cell for cell in notebook.cells if UNFINISHED not in _tags(cell)]
    if cells and PAPERMILL_TAG in _tags(cells[0]):
        del cells[0]
    # Indented, so that nothing in a message is read as markup.
    reason, command = (textwrap.indent(text, "    ", lambda _: True) for text in (reason, command))
    text = f"**This study is unfinished.**\n\n{reason}\n\n{kept}. Resume it with:\n\n{command}"
    notebook.cells = [CELLS.new_markdown_cell(text, metadata={"tags": [UNFINISHED]}), *cells]
    write_text(path, CELLS.writes(notebook) + "\n")


def _read(path: Path) -> Any:
    try:
        return cast(Any, nbformat).read(path, as_version=4)
    except (OSError, UnicodeDecodeError, ValueError, nbformat.reader.NotJSONError) as error:
        raise RecordError(f"{path}: is not a readable notebook ({error}); run the study again") from error


def _title(notebook: Any, fallback: str) -> str:
    if named := notebook.metadata.get("title"):
        return str(named)
    sources = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = (re.search(r"^#\s+(.+)$", source, flags=re.MULTILINE) for source in sources)
    found = next(filter(None, headings), None)
    return re.sub(r"[*_`]", "", found[1]).strip() if found else fallback


def _tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _errors(notebook: Any) -> list[str]:
    """Return the errors of a notebook's cells in order, each as ``name: message``."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [f"{one.ename}: {plain(str(one.evalue))}" for one in outputs if one.output_type == "error"]


class WithoutFolders(Preprocessor):
    """Removes this machine's folders from paths in parameters and outputs."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Shorten paths in the cells of injected parameters and in every output."""
        parameters = [cell for cell in nb.cells if "injected-parameters" in _tags(cell)]
        sources = "\n".join(cell.source for cell in parameters)
        roots = {paths.studies_root(), paths.reports_root(), paths.CHECKOUT, Path.home()}
        # Paths of studies are cut to their last two folders, which name the kind of study and the study itself.
        roots |= {Path(folder).parent.parent for folder in _STUDY_DIR.findall(sources)}
        folders = {f"{root}/" for root in roots if root != root.parent}
        prefixes = sorted(folders | {*_FOLDERS.findall(_STUDY_DIR.sub("", sources))}, key=len, reverse=True)
        for holder in (*parameters, *(output for cell in nb.cells for output in cell.get("outputs", ()))):
            for key in ("source", "text", "evalue"):
                if isinstance(text := holder.get(key), str):
                    for prefix in prefixes:
                        text = text.replace(prefix, "")
                    holder[key] = text
        return nb, resources


class ForReaders(Preprocessor):
    """Moves the verdict to the top and the code to the end, and folds what most readers skip.

    If a cell failed, the order stays, so that the page shows what happened.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Order the cells, and store in each cell's metadata what the template needs to know about it."""
        whole = not _errors(nb)

        def is_visible(output: Any) -> bool:
            lines = output.text.strip().splitlines() if output.output_type == "stream" else []
            return output.output_type != "stream" or (output.name == "stdout" and 0 < len(lines) <= LOG_LINES)

        def rank(section: list[Any]) -> int:
            tags = set[str]().union(*map(_tags, section))
            return bool(tags & _LAST_TAGS) - bool(tags & _FIRST_TAGS)

        for cell in nb.cells:
            summary = next((text for tag, text in _SUMMARIES.items() if tag in _tags(cell)), "")
            cell.metadata["mt_summary"] = summary or "code"
            cell.metadata["mt_code_below"] = whole and not summary
            cell.metadata["mt_visible"] = any(map(is_visible, cell.get("outputs", ())))
        nb.cells = [*_parameters_folded(nb.cells)]
        if whole:
            opening, *sections = _sections(nb.cells)
            first, *others = sorted(sections, key=rank) or [[]]
            nb.cells = [*_about_folded(opening, first), *itertools.chain(*others), *_code(nb.cells)]
        return nb, resources


def _parameters_folded(cells: list[Any]) -> Iterator[Any]:
    """Fold the text above a notebook's parameters, which is for those who set them, below its heading."""
    for cell, following in itertools.pairwise([*cells, None]):
        yield cell
        heading, _, rest = cell.source.partition("\n\n")
        if following and "parameters" in _tags(following) and heading.startswith("## ") and rest:
            cell.source = heading
            yield _fold(rest, "How the parameters are set")


def _sections(cells: list[Any]) -> list[list[Any]]:
    sections: list[list[Any]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    return sections


def _about_folded(opening: list[Any], first: list[Any]) -> list[Any]:
    """Return the opening and the first section; everything in the introduction but its question is folded below."""
    if opening and opening[0].cell_type == "markdown":
        title, question, more = (*opening[0].source.split("\n\n", 2), "", "")[:3]
        if title.startswith("# ") and more.strip():
            opening[0].source = f"{title}\n\n{question}"
            return [*opening, *first, _fold(more, "About this study")]
    return [*opening, *first]


def _fold(text: str, title: str) -> Any:
    """Make a cell folded under a title, with a line that lists the bold openings of its paragraphs."""
    # Third-level headings become bold text, so that they do not appear in the page's contents.
    text = re.sub(r"^### (.+)$", r"**\1**", text, flags=re.MULTILINE)
    openings = re.findall(r"^\*\*([^*]+?)\.?\*\*", text, flags=re.MULTILINE)
    listed = ", ".join(opening[0].lower() + opening[1:] for opening in openings)
    return CELLS.new_markdown_cell(text, metadata={"mt_fold": title, "mt_holds": listed})


def _code(cells: list[Any]) -> list[Any]:
    """Collect all code of the page in one cell, each part below a comment with its heading in the notebook."""
    parts, heading = [], ""
    for cell in cells:
        if cell.cell_type == "markdown":
            heading = "".join(re.findall(r"^#{2,}\s+(.+)$", cell.source, flags=re.MULTILINE)[-1:]) or heading
        elif cell.metadata.mt_code_below and cell.source.strip() and "transient" not in cell.metadata:
            parts.append((f"# {heading}\n" if heading else "") + cell.source.strip())
            heading = ""
    if not parts:
        return []
    code = CELLS.new_code_cell("\n\n".join(parts), metadata={"mt_summary": _ALL_CODE, "mt_visible": False})
    return [CELLS.new_markdown_cell("## Code"), code]


class PageExporter(HTMLExporter):
    """The exporter. ``headings`` holds the headings of the page's prose once the page is rendered."""

    def __init__(self) -> None:
        self.headings: list[tuple[int, str, str]] = []
        super().__init__(  # type: ignore[no-untyped-call]
            config=_CONFIG,
            preprocessors=[WithoutFolders, ForReaders],
            template_name="meshtrial",
            extra_template_basedirs=[str(TEMPLATES)],
            extra_template_paths=[str(TEMPLATES)],
            exclude_input_prompt=True,
            exclude_output_prompt=True,
        )

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[str, Any]:  # type: ignore[override]
        """Render the page without `HTMLExporter`'s last step.

        That step parses the whole page to add descriptions to pictures. For a study of thousands of runs, the tables
        make that tree half a gigabyte large.
        """
        return TemplateExporter.from_notebook_node(self, nb, resources, **kw)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Render Markdown, and collect its headings for the page's contents."""
        attachments = context.get("cell", {}).get("attachments", {})
        renderer = _Prose(self.headings, escape=False, attachments=attachments)
        return str(MarkdownWithMath(renderer=renderer).render(source))

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """Yield nbconvert's filters and our own."""
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "highlight_code", Highlight2HTML
        yield "described", _described


class _Prose(IPythonRenderer):
    """nbconvert's Markdown renderer, which also gives headings an id and appends them to a list."""

    def __init__(self, headings: list[tuple[int, str, str]], **how: Any) -> None:
        super().__init__(**how)
        self._headings = headings

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        """Render a heading; ``text`` is already escaped."""
        content = Markup(text)
        anchor = content.striptags().replace(" ", "-")
        if level in (2, 3):
            self._headings.append((level, anchor, content.striptags()))
        return str(part("page_heading", level, anchor, content))


def _described(html: str) -> str:
    """Close the tags of foreign HTML, and mark pictures without a description as such."""
    tree = BeautifulSoup(html, "html.parser")
    for picture in tree.select("img:not([alt])"):
        picture["alt"] = "No description has been provided for this image"
    return str(tree)
