"""``meshtrial open``: the newest report in a browser; without a display, where it lies."""

from __future__ import annotations

import argparse
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from meshtrial import paths
from meshtrial.errors import UsageError

if TYPE_CHECKING:
    from meshtrial.report.entry import Entry

# One of them leads to a browser; without, webbrowser would start one in the terminal, and wait for its end.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser("open")
    command.add_argument(
        "study", nargs="?", default="", metavar="STUDY", help="its name, or its folder; without it the newest of all"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; where no browser can be started, the address is the answer."""
    page = newest(paths.reports_root(), arguments.study)
    print(paths.shown(page), file=out, flush=True)
    address = page.resolve().as_uri()
    if not any(os.environ.get(name) for name in _DISPLAYS):
        print(f"there is no display here; in a browser: {address}", file=out)
    elif not webbrowser.open(address):
        print(f"no browser could be started; in one of yours: {address}", file=out)
    return 0


def newest(folder: Path, study: str = "") -> Path:
    """The report that was written last, of all or of one study.

    Parameters
    ----------
    folder : Path
        Where the reports lie.
    study : str
        Name of the study, or the folder of its records.

    Raises
    ------
    UsageError
        Where there is none.
    """
    pages = [path for path in folder.glob("*.html") if path.name != "index.html"]
    if study:
        known = {path: entry for path in pages if (entry := _entry(path)) is not None}
        pages = [path for path, entry in known.items() if _is_of(entry, study, folder)]
        if known and not pages:
            there = ", ".join(sorted({entry.study for entry in known.values()}))
            raise UsageError(f"{study}: no report under {paths.shown(folder)} is of it; there are some of {there}")
    if not pages:
        raise UsageError(f"{paths.shown(folder)}: holds no report yet; `make study` makes one")
    return max(pages, key=lambda path: path.stat().st_mtime)


def _entry(page: Path) -> Entry | None:
    # Loads all of the report, which the newest of all can do without.
    from meshtrial.report.entry import read_entry

    try:
        return read_entry(page.with_suffix(".json"))
    except UsageError:
        return None  # a page that is no study's, or whose entry is broken: the index says so


def _is_of(entry: Entry, study: str, folder: Path) -> bool:
    records = (folder / entry.data).resolve() if entry.data else None
    return entry.study == study or records == Path(study).resolve()
