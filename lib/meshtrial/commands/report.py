"""``meshtrial report DIR``: compute verdicts and write the report, from the records alone."""

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
    command.add_argument("study_dir", type=Path, metavar="DIR", help="folder of a recorded study")
    gating.add(command)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    gate = gating.read(arguments)
    store = StudyStore.open(arguments.study_dir.resolve())
    if not store.records():
        raise RecordError(
            f"{arguments.study_dir}: contains no run yet; measure with -p study_dir={arguments.study_dir}"
        )
    # Analysing first gives an interrupted study its tables, too.
    analyse(store)
    # The page shows its parameters and may be published, so its folder is relative where possible.
    here = Path.cwd()
    folder = store.path.relative_to(here) if store.path.is_relative_to(here) else store.path
    parameters: dict[str, Any] = {"study_dir": str(folder), "measure": False}
    return run_notebook(store.plan.study.name, parameters, out, gate)
