"""nbconvert's exporter of a report's page: what it drops, in which order it shows the rest, and what it folds.

nbconvert's own template loads four scripts from a network; the one of this page is ``templates/meshtrial``. Of our own
outputs the exporter takes the form that is made for a page; of others what a page can hold. Only this module imports
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

CELLS: Any = v4  # it declares no types
# On a cell that says that the study did not come to its end, which becomes the page's banner; the other is papermill's.
NOT_WHOLE, PAPERMILL_TAG = "not-whole", "papermill-error-cell-tag"
LOG_LINES = 8  # printed output beyond this is folded
# The section that a reader of the page wants first; and those wanted last: what was given, and how the run went.
_FIRST_TAGS, _LAST_TAGS = {"verdict"}, {"parameters", "injected-parameters", "progress"}
# What the fold of a cell's code is called, by the cell's tag.
_SUMMARIES = {"parameters": "parameters and their defaults", "injected-parameters": "parameters of this run"}
_ALL_CODE = "the notebook's cells, in their order: what made every table and figure of this page"
# Folders of a path in a parameter. Where it lies on somebody's disk is not for readers, and not the same twice.
_FOLDERS = re.compile(r"""(?<=[=,"'])/(?:[^"',/]+/)+(?=[^"',/])""")
_STUDY_DIR = re.compile(r"""(?m)^study_dir = ["'](/[^"']*)["']""")
_CONFIG = Config(
    {
        # A page has no widgets: what says something without them stands in their place.
        "NbConvertBase": {
            "display_data_priority": [
                ON_PAGE,
                *("text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"),
            ]
        },
        # What was printed piece by piece is one output, so that it is folded as one.
        "CoalesceStreamsPreprocessor": {"enabled": True},
        "TagRemovePreprocessor": {
            "enabled": True,
            # What papermill puts into a failed notebook, and what we do, is the page's banner.
            "remove_cell_tags": {PAPERMILL_TAG, NOT_WHOLE, "remove_cell", "remove-cell"},
            "remove_input_tags": {"remove_input", "remove-input"},
        },
    }
)


def tags_of(cell: Any) -> set[str]:
    """A cell's tags."""
    return set(cell.metadata.get("tags", ()))


def errors_of(notebook: Any) -> list[str]:
    """What failed in its cells, in their order."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [f"{one.ename}: {plain(str(one.evalue))}" for one in outputs if one.output_type == "error"]


class WithoutFolders(Preprocessor):
    """Leaves of the paths of this machine, in parameters and in what was printed, what is the same on every one."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Shorten paths in the cells of given parameters, and in every output."""
        given = [cell for cell in nb.cells if "injected-parameters" in tags_of(cell)]
        sources = "\n".join(cell.source for cell in given)
        roots = {paths.studies_root(), paths.reports_root(), paths.CHECKOUT, Path.home()}
        # A study is called by its folder and that of all of its kind.
        roots |= {Path(folder).parent.parent for folder in _STUDY_DIR.findall(sources)}
        found = {f"{root}/" for root in roots if root != root.parent}
        prefixes = sorted(found | {*_FOLDERS.findall(_STUDY_DIR.sub("", sources))}, key=len, reverse=True)
        for holder in (*given, *(output for cell in nb.cells for output in cell.get("outputs", ()))):
            for key in ("source", "text", "evalue"):
                if isinstance(text := holder.get(key), str):
                    for prefix in prefixes:
                        text = text.replace(prefix, "")
                    holder[key] = text
        return nb, resources


class ForReaders(Preprocessor):
    """Puts the verdict first and the code last, and folds what most readers skip.

    Where a cell failed, everything stays where it is, so that the page shows what happened in its order.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Order the cells; what the template must know of each stands in its metadata."""
        whole = not errors_of(nb)
        for cell in nb.cells:
            summary = next((text for tag, text in _SUMMARIES.items() if tag in tags_of(cell)), "")
            cell.metadata["mt_summary"] = summary or "code"
            cell.metadata["mt_code_below"] = whole and not summary
            cell.metadata["mt_visible"] = any(_is_visible(output) for output in cell.get("outputs", ()))
        nb.cells = [*_parameters_folded(nb.cells)]
        if whole:
            opening, *sections = _sections(nb.cells)
            first, *others = sorted(sections, key=_place) or [[]]
            nb.cells = [*_about_folded(opening, first), *itertools.chain(*others), *_code(nb.cells)]
        return nb, resources


def _is_visible(output: Any) -> bool:
    """Whether an output shows more than a folded line."""
    if output.output_type != "stream":
        return True
    return output.name == "stdout" and 0 < len(output.text.strip().splitlines()) <= LOG_LINES


def _parameters_folded(cells: list[Any]) -> Iterator[Any]:
    """What is written before a notebook's parameters is for whoever sets them: below its heading it is folded."""
    for cell, following in itertools.pairwise([*cells, None]):
        yield cell
        heading, _, rest = cell.source.partition("\n\n")
        if following and "parameters" in tags_of(following) and heading.startswith("## ") and rest:
            cell.source = heading
            yield _fold(rest, "How the parameters are set")


def _sections(cells: list[Any]) -> list[list[Any]]:
    """What stands before the first heading of the second level, and each of these with what follows it."""
    sections: list[list[Any]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    return sections


def _place(section: list[Any]) -> int:
    """The verdict comes first; parameters and progress, which ran first, come last."""
    tags = {tag for cell in section for tag in tags_of(cell)}
    return bool(tags & _LAST_TAGS) - bool(tags & _FIRST_TAGS)


def _about_folded(opening: list[Any], first: list[Any]) -> list[Any]:
    """The opening and the first section; of a study's introduction all but its question is folded behind them."""
    if opening and opening[0].cell_type == "markdown":
        title, question, more = (*opening[0].source.split("\n\n", 2), "", "")[:3]
        if title.startswith("# ") and more.strip():
            opening[0].source = f"{title}\n\n{question}"
            return [*opening, *first, _fold(more, "About this study")]
    return [*opening, *first]


def _fold(text: str, title: str) -> Any:
    """A cell that is folded under a title and a line of what its paragraphs begin with."""
    # No headings of the page's own contents: nobody looks for them there.
    text = re.sub(r"^### (.+)$", r"**\1**", text, flags=re.MULTILINE)
    held = re.findall(r"^\*\*([^*]+?)\.?\*\*", text, flags=re.MULTILINE)
    listed = ", ".join(lead[0].lower() + lead[1:] for lead in held)
    return CELLS.new_markdown_cell(text, metadata={"mt_fold": title, "mt_holds": listed})


def _code(cells: list[Any]) -> list[Any]:
    """All code of the page in one place, each part below the heading that it stands under in the notebook."""
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
    """The exporter; ``headings`` are those of the page's prose, known when it was rendered."""

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

        That step parses the whole page into a tree to describe pictures that lack words; a study of thousands of runs
        has tables that take such a tree half a gigabyte.
        """
        return TemplateExporter.from_notebook_node(self, nb, resources, **kw)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Prose as HTML, whose headings the page's contents list."""
        attachments = context.get("cell", {}).get("attachments", {})
        renderer = _Prose(escape=False, attachments=attachments)
        rendered: str = MarkdownWithMath(renderer=renderer).render(source)
        self.headings += renderer.headings
        return rendered

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """nbconvert's, and one for HTML that is not ours."""
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "highlight_code", Highlight2HTML
        yield "described", described


class _Prose(IPythonRenderer):
    """nbconvert's renderer of Markdown; it gives headings an id, and keeps them."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.headings: list[tuple[int, str, str]] = []

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        """A heading; ``text`` is escaped already."""
        shown = Markup(text)
        anchor = shown.striptags().replace(" ", "-")
        if level in (2, 3):
            self.headings.append((level, anchor, shown.striptags()))
        return str(part("page_heading", level, anchor, shown))


def described(html: str) -> str:
    """HTML that is not ours, closed in order; its pictures without words say at least that they have none."""
    tree = BeautifulSoup(html, "html.parser")
    for picture in tree.select("img:not([alt])"):
        picture["alt"] = "No description has been provided for this image"
    return str(tree)
