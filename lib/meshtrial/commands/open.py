"""``meshtrial open``: the newest report in a browser; without a display, where it lies."""

import argparse
import os
import webbrowser
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import UsageError

# One of them leads to a browser; without, webbrowser would start one in the terminal, and wait for its end.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "study", nargs="?", default="", metavar="STUDY", help="its name, or its folder; without it the newest of all"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; where no browser can be started, the address is the answer."""
    page = newest(paths.reports_root(), arguments.study)
    print(paths.display_path(page), file=out, flush=True)
    address = page.resolve().as_uri()
    if not any(os.environ.get(name) for name in _DISPLAYS):
        print(f"there is no display here; in a browser: {address}", file=out)
    elif not webbrowser.open(address):
        print(f"no browser could be started; in one of yours: {address}", file=out)
    return 0


def newest(folder: Path, study: str = "") -> Path:
    """The report that was written last, of all or of one study, by its name or the folder of its records."""
    pages = [path for path in folder.glob("*.html") if path.name != "index.html"]
    if study:
        # Loads all of the report, which the newest of all can do without.
        from meshtrial.report import reports

        known = [(one, one.entry) for one in reports(folder) if one.entry and one.file(".html") in pages]
        wanted = Path(study).resolve()
        pages = [one.file(".html") for one, entry in known if entry.study == study or one.records == wanted]
        if known and not pages:
            there = ", ".join(sorted({entry.study for _, entry in known}))
            raise UsageError(
                f"{study}: no report under {paths.display_path(folder)} is of it; there are some of {there}"
            )
    if not pages:
        raise UsageError(f"{paths.display_path(folder)}: holds no report yet; `make study` makes one")
    return max(pages, key=lambda path: path.stat().st_mtime)
