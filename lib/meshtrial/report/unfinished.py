"""What the notebook of a study that did not come to its end says at its top: what failed, what was kept, how to go on.

It is a cell of its own, so that it is read wherever the notebook is; on the page it becomes the banner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from meshtrial.records.store import write_text

TAG = "not-whole"
# papermill's own words: at the top a link to the cell that failed, and a mark before that cell.
PAPERMILL_TAG = "papermill-error-cell-tag"


def say_so(notebook: Path, what: str, kept: str, command: str) -> None:
    """Put the cell before all others, in the place of papermill's; what an earlier call put there goes.

    Parameters
    ----------
    notebook : Path
        An executed one, written again.
    what : str
        What ended the study.
    kept : str
        How much is recorded, and where.
    command : str
        Makes what is missing.
    """
    import nbformat  # its validator takes more than a second to load

    read = cast(Any, nbformat).read(notebook, as_version=4)
    cells = [cell for cell in read.cells if TAG not in _tags(cell)]
    if cells and PAPERMILL_TAG in _tags(cells[0]):
        del cells[0]
    # Indented, so that nothing in a message is taken for markup.
    lines = [
        "**This study did not come to its end.**",
        _verbatim(what),
        f"{kept}. To go on:",
        _verbatim(command),
    ]
    cell = cast(Any, nbformat).v4.new_markdown_cell("\n\n".join(lines), metadata={"tags": [TAG]})
    read.cells = [cell, *cells]
    write_text(notebook, cast(Any, nbformat).writes(read) + "\n")


def _verbatim(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))
