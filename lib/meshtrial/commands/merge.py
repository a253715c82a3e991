"""``meshtrial merge DIR DIR ...``: the parts of a divided study, one for each cluster or machine, as one study."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.commands.status import line
from meshtrial.inference import analyse
from meshtrial.records.merging import merge
from meshtrial.records.store import PART_ENDING, StudyStore


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("parts", nargs="+", type=Path, metavar="DIR", help="the folders of all parts")
    command.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="the whole study; default: beside the first part, ending in -merged",
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; the parts stay as they are."""
    stores = [StudyStore.open(path.resolve()) for path in arguments.parts]
    first = min((store.path for store in stores), key=lambda path: path.name)
    named = first.with_name(f"{first.name.partition(PART_ENDING)[0]}-merged")
    target = arguments.out.resolve() if arguments.out else named
    merged = merge(stores, target)
    analyse(merged)
    print(line(merged.path), file=out)
    print(f"report   meshtrial report {paths.word(merged.path)}", file=out)
    return 0
