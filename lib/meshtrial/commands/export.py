"""``meshtrial export DIR``: write verdicts and runs of a study for other programs."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.design.parameters import split_list
from meshtrial.inference import read_study
from meshtrial.inference.export import export
from meshtrial.records.store import StudyStore

_FORMATS = "csv,parquet,json"


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("study_dir", type=Path, metavar="DIR", help="folder of a recorded study, or a packed study")
    option("--out", type=Path, required=True, metavar="FOLDER", help="folder to write the files to")
    option("--format", default="", metavar="LIST", help=f"formats to write, comma-separated (default {_FORMATS})")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    data = read_study(StudyStore.open(arguments.study_dir.resolve()))
    for path in export(data, arguments.out, split_list(arguments.format)):
        print(f"{paths.display_path(path)}  {path.stat().st_size / 1e3:.1f} kB", file=out)
    return 0
