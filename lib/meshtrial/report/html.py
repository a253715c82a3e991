"""An executed notebook as one offline page.

nbconvert's own template loads four scripts from a network; this one has a single small one of its own, which sorts
tables, and a content security policy that forbids fetching and every other script. What is shown is what the notebook
holds: errors first and loudest, code at the end, library chatter on stderr dropped.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup

from meshtrial import __version__, paths
from meshtrial.errors import RecordError, plain
from meshtrial.records.store import write_text
from meshtrial.report.markup import STYLED, TEMPLATES, part, style_sheet
from meshtrial.report.pages import script

NOT_WHOLE = "not-whole"
# papermill's own words: at the top a link to the cell that failed, and a mark before that cell.
PAPERMILL_TAG = "papermill-error-cell-tag"
# What papermill puts into a failed notebook, and what we do, is the page's banner.
_BANNER_TAGS = {PAPERMILL_TAG, NOT_WHOLE}
LOG_LINES = 8  # printed output beyond this is folded
# The section that a reader of the page wants first; and those wanted last: what was given, and how the run went.
_FIRST_TAGS, _LAST_TAGS = {"verdict"}, {"parameters", "injected-parameters", "progress"}
_WIDGET = "application/vnd.jupyter.widget-view+json"
# Folders of a path in a parameter. Where it lies on somebody's disk is not for readers, and not the same twice.
_FOLDERS = re.compile(r"""(?<=[=,"'])/(?:[^"',/]+/)+(?=[^"',/])""")
_STUDY_DIR = re.compile(r"""(?m)^study_dir = ["'](/[^"']*)["']""")
# What stands for our own output while nbconvert has the page.
_OWN = re.compile(r"<!--mt-output-[0-9a-f]{64}-->")
_HIDE_TAGS = {"remove_cell", "remove-cell"}
_HIDE_INPUT_TAGS = {"remove_input", "remove-input"}


def notebook_to_html(ipynb_path: Path, html_path: Path, *, index: str = "") -> Path:
    """Write an executed notebook as one HTML file that needs nothing else; ``index`` is the page over all reports."""
    notebook = _read(ipynb_path)
    stopped = [cell.source for cell in notebook.cells if NOT_WHOLE in _tags(cell)]
    _prepare(notebook)
    own = _set_aside(notebook)
    page = _export(notebook, index, ipynb_path.stem)
    page = _OWN.sub(lambda mark: own.get(mark.group(), mark.group()), page)
    page = _finish(page, _errors(notebook), "\n\n".join(stopped))
    html_path.parent.mkdir(parents=True, exist_ok=True)
    write_text(html_path, page)
    return html_path


def say_not_whole(path: Path, what: str, kept: str, command: str) -> None:
    """Put a cell before all others of an executed notebook: its study did not come to its end.

    It says what ended the study, how much is kept and where, and the command that makes what is missing. On the page it
    becomes the banner. papermill's cell gives way to it, and what an earlier call put there.
    """
    notebook = _read(path)
    cells = [cell for cell in notebook.cells if NOT_WHOLE not in _tags(cell)]
    if cells and PAPERMILL_TAG in _tags(cells[0]):
        del cells[0]
    # Indented, so that nothing in a message is taken for markup.
    what, command = (textwrap.indent(text, "    ", lambda _: True) for text in (what, command))
    text = f"**This study did not come to its end.**\n\n{what}\n\n{kept}. To go on:\n\n{command}"
    notebook.cells = [_cells().new_markdown_cell(text, metadata={"tags": [NOT_WHOLE]}), *cells]
    write_text(path, _cells().writes(notebook) + "\n")


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


def _cells() -> Any:
    from nbformat import v4

    return v4


def _tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _prepare(notebook: Any) -> None:
    """Drop what the page does not show, name what it folds, and put what a reader need not read first at the end."""
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor

    # What was printed piece by piece is one output, so that it is folded as one.
    cast(Any, CoalesceStreamsPreprocessor)().preprocess(notebook, {})
    _take_folders_out(notebook)
    kept = []
    whole = not _errors(notebook)
    for cell in notebook.cells:
        tags = _tags(cell)
        if tags & (_BANNER_TAGS | _HIDE_TAGS):
            continue
        if tags & _HIDE_INPUT_TAGS:
            cell.source = ""
        if "injected-parameters" in tags:
            cell.metadata["mt_summary"] = "parameters of this run"
        elif "parameters" in tags:
            cell.metadata["mt_summary"] = "parameters and their defaults"
        if cell.cell_type == "code":
            # A page has no widgets: what says something without them stands in their place.
            for output in cell.outputs:
                output.get("data", {}).pop(_WIDGET, None)
            cell["mt_visible"] = any(_is_visible(output) for output in cell.outputs)
            cell["mt_code_below"] = whole and "mt_summary" not in cell.metadata
        kept.append(cell)
    kept = _parameters_folded(kept)
    notebook.cells = [*_opening(_verdict_first(kept)), *_code(kept)] if whole else kept


def _take_folders_out(notebook: Any) -> None:
    """Leave of the paths of this machine, in parameters and in what was printed, what is the same on every one."""
    given = [cell for cell in notebook.cells if "injected-parameters" in _tags(cell)]
    sources = "\n".join(cell.source for cell in given)
    roots = {paths.studies_root(), paths.reports_root(), paths.CHECKOUT, Path.home()}
    # A study is called by its folder and that of all of its kind.
    roots |= {Path(folder).parent.parent for folder in _STUDY_DIR.findall(sources)}
    prefixes = {f"{root}/" for root in roots if root != root.parent} | {*_FOLDERS.findall(_STUDY_DIR.sub("", sources))}
    for holder in (*given, *(output for cell in notebook.cells for output in cell.get("outputs", ()))):
        for key in ("source", "text", "evalue"):
            if isinstance(text := holder.get(key), str):
                for prefix in sorted(prefixes, key=len, reverse=True):
                    text = text.replace(prefix, "")
                holder[key] = text


def _set_aside(notebook: Any) -> dict[str, str]:
    """Take our own outputs out of a notebook, each behind a mark.

    nbconvert parses the whole page into a tree to describe pictures that lack words; ours have them, and a study of
    thousands of runs has tables that take such a tree half a gigabyte.
    """
    found: dict[str, str] = {}
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        shown = output.get("data", {})
        if (text := shown.get("text/html", "")).startswith(STYLED):
            mark = f"<!--mt-output-{hashlib.sha256(text.encode()).hexdigest()}-->"  # nobody writes that by chance
            found[mark], shown["text/html"] = text, mark
    return found


def _opening(cells: list[Any]) -> list[Any]:
    """Keep the title and the first paragraph; what else introduces a study is folded behind its first section."""
    if not cells or cells[0].cell_type != "markdown":
        return cells
    first, rest = cells[0], cells[1:]
    title, question, *more = first.source.split("\n\n", 2) + [""] * 2
    if not title.startswith("# ") or not more[0].strip():
        return cells
    first.source = f"{title}\n\n{question}"
    leads = [lead.rstrip(".") for lead in re.findall(r"^\*\*([^*]+)\*\*", more[0], flags=re.MULTILINE)]
    sections = [place for place, cell in enumerate(rest) if cell.source.startswith("## ")]
    second = sections[1] if len(sections) > 1 else len(rest)
    return [first, *rest[:second], _fold(more[0], "About this study", leads), *rest[second:]]


def _fold(text: str, title: str, holds: list[str]) -> Any:
    """A cell that is folded under a title and a line of what it holds."""
    folded = _cells().new_markdown_cell(text)
    folded.metadata["mt_fold"] = title
    folded.metadata["mt_holds"] = ", ".join(held[0].lower() + held[1:] for held in holds)
    return folded


def _parameters_folded(cells: list[Any]) -> list[Any]:
    """What is written before a notebook's parameters is for whoever sets them: below its heading it is folded."""
    shown = []
    for cell, following in itertools.pairwise([*cells, None]):
        shown.append(cell)
        heading, _, rest = cell.source.partition("\n\n")
        if following is None or "parameters" not in _tags(following) or not heading.startswith("## ") or not rest:
            continue
        cell.source = heading
        held = re.findall(r"^### (.+)$", rest, flags=re.MULTILINE)
        # No headings of the page's own contents: nobody looks for them there.
        rest = re.sub(r"^### (.+)$", r"**\1**", rest, flags=re.MULTILINE)
        shown.append(_fold(rest, "How the parameters are set", held))
    return shown


def _code(cells: list[Any]) -> list[Any]:
    """All code of the page in one place, each part below the heading that it stands under in the notebook."""
    parts, heading = [], ""
    for cell in cells:
        if cell.cell_type == "markdown":
            heading = "".join(re.findall(r"^#{2,}\s+(.+)$", cell.source, flags=re.MULTILINE)[-1:]) or heading
        elif cell.get("mt_code_below") and cell.source.strip():
            parts.append((f"# {heading}\n" if heading else "") + cell.source.strip())
            heading = ""
    if not parts:
        return []
    code = _cells().new_code_cell("\n\n".join(parts))
    code.metadata["mt_summary"] = "the notebook's cells, in their order: what made every table and figure of this page"
    return [_cells().new_markdown_cell("## Code"), code]


def _verdict_first(cells: list[Any]) -> list[Any]:
    """Move the section of the verdict to the front, and those of parameters and progress, which run first, to the end.

    A section is a second-level heading with what follows it. Where a cell failed nothing is moved.
    """
    sections: list[list[Any]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    opening, *rest = sections

    def place(section: list[Any]) -> int:
        tags = {tag for cell in section for tag in _tags(cell)}
        return bool(tags & _LAST_TAGS) - bool(tags & _FIRST_TAGS)

    return [cell for section in (opening, *sorted(rest, key=place)) for cell in section]


def _is_visible(output: Any) -> bool:
    """Whether an output shows more than a folded line."""
    if output.output_type != "stream":
        return True
    return output.name == "stdout" and 0 < len(output.text.strip().splitlines()) <= LOG_LINES


def _export(notebook: Any, index: str, stem: str) -> str:
    numbers = itertools.count(1)
    from nbconvert import HTMLExporter

    exporter = cast(Any, HTMLExporter)(
        template_name="meshtrial", extra_template_basedirs=[str(TEMPLATES)], extra_template_paths=[str(TEMPLATES)]
    )
    exporter.exclude_input_prompt = True
    exporter.exclude_output_prompt = True
    exporter.anchor_link_text = ""
    resources = {
        "meshtrial": {
            "title": title_of(notebook, stem),
            "language": str(notebook.metadata.get("language", "en")),
            "version": __version__,
            "log_lines": LOG_LINES,
            "index": index,
            "objects_css": style_sheet("objects.css"),
            "page_css": style_sheet("page.css"),
            "script": script(),
            "next_error": lambda: next(numbers),
        }
    }
    page, _ = exporter.from_notebook_node(notebook, resources=resources)
    return str(page)


def _errors(notebook: Any) -> list[str]:
    return [
        f"{output.ename}: {plain(str(output.evalue))}"
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    ]


def _finish(page: str, errors: list[str], stopped: str) -> str:
    """Inline the drawings, take repeated styles out, put contents and banner in."""
    from nbconvert.filters import markdown2html

    why = Markup(markdown2html(stopped)) if stopped else ""
    page = re.sub(r"<style[^>]*\bmt-style\b[^>]*>.*?</style>", "", page, flags=re.DOTALL)
    # nbconvert puts attributes in an order of its own, so only the class is relied on.
    page = re.sub(r'<img\b[^>]*\bclass="mt-svg"[^>]*>', _inline, page)
    page = re.sub(r'<a class="anchor-link"[^>]*></a>', "", page)
    page = page.replace("<!--mt-contents-->", str(_contents(page)), 1)
    return page.replace("<!--mt-banner-->", str(part("banner", errors, why)), 1)


def _inline(match: re.Match[str]) -> str:
    """A figure's image back to the SVG element it was made of."""
    (code,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', match.group())
    return _body(base64.b64decode(code).decode())


def _body(drawing: str) -> str:
    # The rule that makes the image readable by itself would reach the whole page here.
    return re.sub(r"^(<svg[^>]*>)<style>.*?</style>", r"\1", drawing, count=1, flags=re.DOTALL)


def _contents(page: str) -> Markup:
    """Table of contents from the headings of the notebook's prose."""
    found = []
    for level, attributes, inner in re.findall(r"<h([23])([^>]*)>(.*?)</h\1>", page, flags=re.DOTALL):
        anchor = re.search(r'id="([^"]+)"', attributes)
        text = re.sub(r"<[^>]+>", "", inner).strip()
        if anchor and text:
            # Both come out of a rendered page, so they are escaped already.
            found.append((level, Markup(anchor.group(1)), Markup(text)))
    return part("contents", found)
