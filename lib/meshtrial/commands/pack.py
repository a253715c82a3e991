"""``meshtrial pack DIR``: a recorded study as one file, to publish or to send."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.design.parameters import split_list
from meshtrial.records import machine, packed
from meshtrial.records.store import StudyStore


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("study_dir", type=Path, metavar="DIR", help="a folder under data/studies")
    command.add_argument("--out", type=Path, metavar="FILE.zip", help="default: the study's name, here")
    parts = ", ".join(packed.PARTS)
    command.add_argument("--without", default="", metavar="PARTS", help=f"comma-separated, what is left out: {parts}")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    store = StudyStore.open(arguments.study_dir.resolve())
    target = arguments.out or Path(f"{store.path.parent.name}-{store.path.name}{packed.SUFFIX}")
    without = split_list(arguments.without)
    packed.pack(store.path, target, without)
    print(f"{paths.display_path(target)}  {target.stat().st_size / 1e6:.2f} MB", file=out)
    for line in machine.told(packed.files(store.path, without)):
        print(line, file=out)
    return 0
