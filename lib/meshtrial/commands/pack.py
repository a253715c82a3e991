"""``meshtrial pack DIR``: pack a recorded study into one file."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.design.parameters import split_list
from meshtrial.records import machine, packed
from meshtrial.records.store import StudyStore


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("study_dir", type=Path, metavar="DIR", help="folder of a recorded study")
    option("--out", type=Path, metavar="FILE.tar.xz", help="file to write (default: the study's name, in this folder)")
    parts = ", ".join(packed.PARTS)
    option("--without", default="", metavar="PARTS", help=f"leave out these, comma-separated: {parts}")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    store = StudyStore.open(arguments.study_dir.resolve())
    target = arguments.out or Path(f"{store.path.parent.name}-{store.path.name}{packed.SUFFIX}")
    without = split_list(arguments.without)
    packed.pack(store.path, target, without)
    print(f"{paths.display_path(target)}  {target.stat().st_size / 1e6:.2f} MB", file=out)
    for line in machine.machine_names(packed.files(store.path, without)):
        print(line, file=out)
    return 0
