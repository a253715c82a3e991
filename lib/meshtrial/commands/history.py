"""``meshtrial history``: one response over all recorded studies of a question, as a page."""

import argparse
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError, UsageError


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "what", nargs="+", metavar="STUDY|DIR", help="a study's name, for all that are recorded; or their folders"
    )
    command.add_argument("--response", default="", metavar="NAME", help="p50, p99, path_cpu_s_per_request, ...")
    command.add_argument("--out", type=Path, metavar="FILE.html", help="where the page goes")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    from meshtrial.inference import between, read_study
    from meshtrial.records.parts import part_of
    from meshtrial.records.store import StudyStore
    from meshtrial.report.pages import write_history

    studies = []
    for path in _folders(arguments.what):
        try:
            store = StudyStore.open(path)
            part = part_of(store.plan, store.environment)
            if part is None:
                studies.append(read_study(store))
            else:
                print(
                    f"left out: {path.name} is part {part} of a study; `meshtrial merge` puts them together", file=out
                )
        except MeshtrialError as error:
            print(f"left out: {error}", file=out)
    same, others = between.of_one_question(studies)
    for data in others:
        print(f"left out: {data.path.name} asks something else than {same[0].path.name}", file=out)
    if not same:
        raise UsageError(
            f"{' '.join(map(str, arguments.what))}: no study that was analysed; `meshtrial status` lists them"
        )
    name = same[0].plan.study.name
    target = arguments.out or paths.reports_root() / f"history-{name}.html"
    try:
        write_history(target, same, arguments.response or same[0].plan.study.primary[0])
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written ({error.strerror})") from error
    print(f"{len(same)} studies of {name}\npage    {paths.display_path(target)}", file=out)
    return 0


def _folders(what: list[str]) -> list[Path]:
    from meshtrial.design.studies import STUDIES
    from meshtrial.records.listing import recorded_in

    folders: list[Path] = []
    for item in what:
        folders += recorded_in(paths.studies_root(), item) if item in STUDIES else [Path(item).resolve()]
    if not folders:
        raise UsageError(f"{' '.join(what)}: nothing is recorded; `meshtrial status` lists what there is")
    return folders
