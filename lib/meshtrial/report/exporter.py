"""nbconvert's exporter for report pages: which cells and outputs a page has, in which order, and what it folds.

nbconvert's own template loads four scripts from a network; ``templates/meshtrial`` replaces it. From our own outputs
the exporter takes the MIME type made for pages, from others the best one that a page can hold. Only this module imports
nbconvert, which takes long to load.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import Preprocessor
from nbformat import v4
from traitlets.config import Config

from meshtrial import paths
from meshtrial.errors import plain
from meshtrial.report.markup import ON_PAGE, TEMPLATES, part

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


def tags_of(cell: Any) -> set[str]:
    """Return the tags of a notebook's cell."""
    return set(cell.metadata.get("tags", ()))


def errors_of(notebook: Any) -> list[str]:
    """Return the errors of a notebook's cells in order, each as ``name: message``."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [f"{one.ename}: {plain(str(one.evalue))}" for one in outputs if one.output_type == "error"]


class WithoutFolders(Preprocessor):
    """Removes this machine's folders from paths in parameters and outputs."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Shorten paths in the cells of injected parameters and in every output."""
        parameters = [cell for cell in nb.cells if "injected-parameters" in tags_of(cell)]
        sources = "\n".join(cell.source for cell in parameters)
        roots = {paths.studies_root(), paths.reports_root(), paths.CHECKOUT, Path.home()}
        # A study keeps the last two folders of its path: the name of its kind, and its own.
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
        whole = not errors_of(nb)
        for cell in nb.cells:
            summary = next((text for tag, text in _SUMMARIES.items() if tag in tags_of(cell)), "")
            cell.metadata["mt_summary"] = summary or "code"
            cell.metadata["mt_code_below"] = whole and not summary
            cell.metadata["mt_visible"] = any(_is_visible(output) for output in cell.get("outputs", ()))
        nb.cells = [*_parameters_folded(nb.cells)]
        if whole:
            opening, *sections = _sections(nb.cells)
            first, *others = sorted(sections, key=_rank) or [[]]
            nb.cells = [*_about_folded(opening, first), *itertools.chain(*others), *_code(nb.cells)]
        return nb, resources


def _is_visible(output: Any) -> bool:
    """Whether an output shows more than a folded line."""
    if output.output_type != "stream":
        return True
    return output.name == "stdout" and 0 < len(output.text.strip().splitlines()) <= LOG_LINES


def _parameters_folded(cells: list[Any]) -> Iterator[Any]:
    """Fold the text above a notebook's parameters, which is for those who set them, below its heading."""
    for cell, following in itertools.pairwise([*cells, None]):
        yield cell
        heading, _, rest = cell.source.partition("\n\n")
        if following and "parameters" in tags_of(following) and heading.startswith("## ") and rest:
            cell.source = heading
            yield _fold(rest, "How the parameters are set")


def _sections(cells: list[Any]) -> list[list[Any]]:
    """Split cells into those before the first second-level heading, and one section per such heading."""
    sections: list[list[Any]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    return sections


def _rank(section: list[Any]) -> int:
    """Sort key: the verdict first, parameters and progress last."""
    tags = {tag for cell in section for tag in tags_of(cell)}
    return bool(tags & _LAST_TAGS) - bool(tags & _FIRST_TAGS)


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
        renderer = _Prose(escape=False, attachments=attachments)
        rendered: str = MarkdownWithMath(renderer=renderer).render(source)
        self.headings += renderer.headings
        return rendered

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """Yield nbconvert's filters and our own."""
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "highlight_code", Highlight2HTML
        yield "described", described


class _Prose(IPythonRenderer):
    """nbconvert's Markdown renderer, which also gives headings an id and collects them."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.headings: list[tuple[int, str, str]] = []

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        """Render a heading; ``text`` is already escaped."""
        content = Markup(text)
        anchor = content.striptags().replace(" ", "-")
        if level in (2, 3):
            self.headings.append((level, anchor, content.striptags()))
        return str(part("page_heading", level, anchor, content))


def described(html: str) -> str:
    """Close the tags of foreign HTML, and mark pictures without a description as such."""
    tree = BeautifulSoup(html, "html.parser")
    for picture in tree.select("img:not([alt])"):
        picture["alt"] = "No description has been provided for this image"
    return str(tree)
