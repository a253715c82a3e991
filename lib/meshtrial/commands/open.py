"""``meshtrial open``: open the newest report in a browser; without a display, print its address."""

import argparse
import os
import webbrowser
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import UsageError

# Without any of these webbrowser would start a text browser in the terminal and wait for its end.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "study", nargs="?", default="", metavar="STUDY", help="name or folder of a study (default: all studies)"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; if no browser can be started, print the address."""
    page = newest(paths.reports_root(), arguments.study)
    print(paths.display_path(page), file=out, flush=True)
    address = page.resolve().as_uri()
    if not any(os.environ.get(name) for name in _DISPLAYS):
        print(f"there is no display; open this address in a browser: {address}", file=out)
    elif not webbrowser.open(address):
        print(f"no browser could be started; open this address yourself: {address}", file=out)
    return 0


def newest(folder: Path, study: str = "") -> Path:
    """Return the newest report of all studies, or of one by its name or the folder of its records."""
    pages = [path for path in folder.glob("*.html") if path.name != "index.html"]
    if study:
        # Imports the whole report room, which is not needed for the newest of all.
        from meshtrial.report import reports

        known = [(report, report.entry) for report in reports(folder) if report.entry and report.file(".html") in pages]
        records = Path(study).resolve()
        pages = [report.file(".html") for report, entry in known if entry.study == study or report.records == records]
        if known and not pages:
            studies = ", ".join(sorted({entry.study for _, entry in known}))
            raise UsageError(f"{study}: has no report in {paths.display_path(folder)}; there are reports of {studies}")
    if not pages:
        raise UsageError(f"{paths.display_path(folder)}: contains no report yet; run `make study` first")
    return max(pages, key=lambda path: path.stat().st_mtime)
