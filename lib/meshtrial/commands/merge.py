"""``meshtrial merge DIR DIR ...``: merge the parts of a divided study, run on several clusters or machines."""

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
    command.add_argument("parts", nargs="+", type=Path, metavar="DIR", help="folders of all parts")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of the merged study (default: beside the parts, -merged)"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; the parts stay unchanged."""
    stores = [StudyStore.open(path.resolve()) for path in arguments.parts]
    first = min((store.path for store in stores), key=lambda path: path.name)
    default = first.with_name(f"{first.name.partition(PART_ENDING)[0]}-merged")
    merged = merge(stores, arguments.out.resolve() if arguments.out else default)
    analyse(merged)
    print(line(merged.path), file=out)
    print(f"report   meshtrial report {paths.word(merged.path)}", file=out)
    return 0
