"""``meshtrial history``: plot one response over all recorded studies of a question, as a page."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError, UsageError


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("studies", nargs="+", metavar="STUDY|DIR", help="name of a study, for all its recordings, or their folders")
    option("--response", default="", metavar="NAME", help="response to plot (default: the study's first primary one)")
    option("--out", type=Path, metavar="FILE.html", help="page to write (default papermill_runs/history-STUDY.html)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.inference import between, read_study
    from meshtrial.records.parts import part_of
    from meshtrial.records.store import StudyStore
    from meshtrial.report.pages import write_history

    studies = []
    for path in _folders(arguments.studies):
        try:
            store = StudyStore.open(path)
            part = part_of(store.plan, store.environment)
            if part is None:
                studies.append(read_study(store))
            else:
                print(f"left out: {path.name} is part {part} of a study; run `meshtrial merge` first", file=out)
        except MeshtrialError as error:
            print(f"left out: {error}", file=out)
    same, others = between.of_one_question(studies)
    for data in others:
        print(f"left out: {data.path.name} asks another question than {same[0].path.name}", file=out)
    if not same:
        raise UsageError(f"{' '.join(arguments.studies)}: no analysed study; `meshtrial status` lists the studies")
    name = same[0].plan.study.name
    target = arguments.out or paths.reports_root() / f"history-{name}.html"
    try:
        write_history(target, same, arguments.response or same[0].plan.study.primary[0])
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written ({error.strerror})") from error
    print(f"{len(same)} studies of {name}\npage    {paths.display_path(target)}", file=out)
    return 0


def _folders(names: list[str]) -> list[Path]:
    from meshtrial.design.studies import STUDIES
    from meshtrial.records.listing import recorded_in

    folders: list[Path] = []
    for name in names:
        folders += recorded_in(paths.studies_root(), name) if name in STUDIES else [Path(name).resolve()]
    if not folders:
        raise UsageError(f"{' '.join(names)}: no recorded study; `meshtrial status` lists the studies")
    return folders
