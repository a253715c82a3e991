"""``meshtrial report DIR``: verdicts and report again, from the records alone."""

import argparse
from pathlib import Path
from typing import Any, TextIO

from meshtrial.commands import gating
from meshtrial.commands.run import run_notebook
from meshtrial.errors import RecordError
from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("study_dir", type=Path, metavar="DIR", help="a folder under data/studies")
    gating.add(command)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    gate = gating.read(arguments)
    store = StudyStore.open(arguments.study_dir.resolve())
    if not store.records():
        raise RecordError(f"{arguments.study_dir}: holds no run yet; start it with -p study_dir={arguments.study_dir}")
    # First the records, so that a study that was broken off gets its tables too.
    analyse(store)
    name = store.plan.study.name
    # The page shows its parameters, and is published: where it can be, the folder is named from where the user is.
    here = Path.cwd()
    place = store.path.relative_to(here) if store.path.is_relative_to(here) else store.path
    # A report measures nothing, also where runs, or what is counted after them, are missing.
    given: dict[str, Any] = {"study_dir": str(place), "measure": False}
    return run_notebook(name, given, out, gate)
