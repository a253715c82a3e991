"""``meshtrial history``: one response over all recorded studies of a question, and where its level changed."""

import argparse
from pathlib import Path
from typing import TextIO

import polars as pl
import yaml

from meshtrial import paths
from meshtrial.design.studies import STUDIES
from meshtrial.errors import MeshtrialError, UsageError, writing
from meshtrial.inference import between, read_study
from meshtrial.records.listing import recorded_in
from meshtrial.records.parts import part_of
from meshtrial.records.store import StudyStore, write_text
from meshtrial.report.pages import write_history


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("studies", nargs="+", metavar="STUDY|DIR", help="name of a study, for all its recordings, or their folders")
    option("--response", default="", metavar="NAME", help="response to plot (default: the study's first primary one)")
    option("--out", type=Path, metavar="FILE.html", help="page to write (default papermill_runs/history-STUDY.html)")
    option("--csv", type=Path, metavar="FILE.csv", help="also write all series, and FILE.otava.yaml for Apache Otava")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
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
    compared = between.compare(same) if len(same) > 1 else ()
    target = arguments.out or paths.reports_root() / f"history-{name}.html"
    with writing(target, UsageError):
        write_history(target, same, compared, arguments.response or same[0].plan.study.primary[0])
    print(
        f"{len(same)} {'study' if len(same) == 1 else 'studies'} of {name}\npage    {paths.display_path(target)}",
        file=out,
    )
    if arguments.csv is not None:
        for file in _write_series(arguments.csv, name, between.frame(same, compared)):
            print(f"series  {paths.display_path(file)}", file=out)
    return 0


def _write_series(path: Path, name: str, series: pl.DataFrame) -> tuple[Path, Path]:
    """Write the series as CSV, and the configuration with which Otava reads them."""
    beside = path.with_suffix(".otava.yaml")
    with writing(path, UsageError):
        write_text(path, series.write_csv())
        write_text(
            beside, yaml.safe_dump(between.otava_tests(name, path.resolve(), series), sort_keys=False, width=1000)
        )
    return path, beside


def _folders(names: list[str]) -> list[Path]:
    folders: list[Path] = []
    for name in names:
        folders += recorded_in(paths.studies_root(), name) if name in STUDIES else [Path(name).resolve()]
    if not folders:
        raise UsageError(f"{' '.join(names)}: no recorded study; `meshtrial status` lists the studies")
    return folders
