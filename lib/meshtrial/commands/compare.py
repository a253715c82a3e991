"""``meshtrial compare``: compare existing load-test results, or recorded studies, with each other."""

import argparse
import io
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from meshtrial import packages
from meshtrial.commands import gating
from meshtrial.compare import text
from meshtrial.compare.analysis import Outcome
from meshtrial.compare.files import matching
from meshtrial.compare.request import Named, Request, judge
from meshtrial.design.parameters import split_list
from meshtrial.errors import MeshtrialError, UsageError, writing
from meshtrial.records.store import write_json

EXAMPLES = """\
examples:
  meshtrial compare --baseline 'none/*.json' --treatment istio='istio/*.json'
  meshtrial compare --baseline 'none/*.txt' --treatment istio='istio/*.txt' \\
      --pair-by name --margin p50=5%
  meshtrial compare --merge --baseline 'none/*/gen*' --treatment 'istio/*/gen*'
  meshtrial compare --table runs.csv --baseline none --treatment istio
  meshtrial compare data/studies/mesh_comparison/MONDAY \\
      data/studies/mesh_comparison/FRIDAY

inputs:
  files    Each file is one run, plain or gzip. Supported are results of fortio
           (from 1.3), wrk2, wrk, k6, vegeta, oha, hey, ghz, Locust and
           Nighthawk; docs/reference/formats.md lists what each contains.
           Files are paired only with --pair-by.
  table    One CSV or Parquet file with the columns run, block, treatment,
           response, value and optionally unit. A block pairs its runs.
  studies  Folders of recorded studies, or packed studies, of one question.
           They are compared study by study, with the spread between days."""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Compare existing results with the same statistics as a study."
    option, files = command.add_argument, partial(command.add_argument, nargs="+", default=[], metavar="NAME=PATTERN")
    repeated = partial(command.add_argument, action="append", default=[])
    option("studies", nargs="*", type=Path, metavar="STUDY_DIR", help="two or more recorded studies")
    files("--baseline", help="files or a folder of the baseline; with --table, its name there")
    files("--treatment", action="append", help="files or a folder of a treatment; may be repeated")
    option("--table", type=Path, metavar="FILE", help="read one tidy CSV or Parquet table instead of files")
    repeated("--where", metavar="COLUMN=VALUE", help="use only rows of the table with this value; may be repeated")
    option("--pair-by", choices=("order", "label", "name"), help="pair the runs of the treatments (default: unpaired)")
    option("--merge", action="store_true", help="treat the files of a folder as load generators of one run")
    option("--metrics", default="", metavar="LIST", help="responses (default p50,p99); the first three are primary")
    repeated("--margin", metavar="p50=5%", help="largest change that does not matter; also 5%%, 0.2ms, 5%% of 0.8ms")
    option("--alpha", type=float, default=0.05, help="error level of a family of contrasts (default 0.05)")
    floor = "requests that must lie beyond a percentile (default 100)"
    option("--sample-floor", type=float, default=100.0, metavar="N", help=floor)
    option("--force", action="store_true", help="compare even if settings differ, and list the differences")
    option("--json", type=Path, metavar="FILE", help="write all results as JSON")
    option("--html", type=Path, metavar="FILE", help="write the results as one offline page")
    gating.add(command)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    if arguments.studies:
        return _studies(arguments, out)
    gate = gating.read(arguments)
    outcome = judge(_read_request(arguments))
    # The reader of standard output may go away (`| head`); files and gate do not depend on it.
    below, failure = io.StringIO(), None
    try:
        _write(arguments, outcome, below)
        gate.judge(text.contrasts(outcome), outcome.primary, outcome.alpha, text.title(outcome), below)
    except MeshtrialError as error:
        failure = error
    try:
        print(text.render(outcome), below.getvalue(), sep="\n", end="", file=out, flush=True)
    except BrokenPipeError:
        if failure is None:
            raise
    if failure is not None:
        raise failure
    return 0


def _write(arguments: argparse.Namespace, outcome: Outcome, out: TextIO) -> None:
    options = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(arguments).items()
        if name not in ("run", "verb", "command_line")
    }
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            write_json(arguments.json, outcome.to_dict(options))
        print(f"\nrecord  {arguments.json}", file=out)
    if arguments.html is not None:
        from meshtrial.compare import page  # needs polars

        with writing(arguments.html, UsageError):
            page.write(arguments.html, outcome, arguments.command_line)
        print(f"page    {arguments.html}", file=out)


def _read_request(arguments: argparse.Namespace) -> Request:
    if not arguments.baseline:
        raise UsageError("there is nothing to compare; give --baseline and --treatment, or two recorded studies")
    if arguments.table is None:
        if arguments.where:
            raise UsageError("--where: selects rows of a table; give --table FILE")
        if not arguments.treatment:
            raise UsageError("--treatment: is missing; give e.g. --treatment istio='istio/*.json'")
        baseline, *treatments = (Named(*_files(words)) for words in (arguments.baseline, *arguments.treatment))
    else:
        if arguments.merge:
            raise UsageError("--merge: applies to files only; a table already has one number per run")
        if len(arguments.baseline) != 1:
            names = " ".join(arguments.baseline)
            raise UsageError(f"--baseline: with --table give one treatment of the table, not {names}")
        baseline = Named(arguments.baseline[0])
        treatments = [Named(name) for words in arguments.treatment for word in words for name in split_list(word)]
    for item in arguments.where:
        if "=" not in item:
            raise UsageError(f"--where {item}: is not COLUMN=VALUE")
    return Request(
        baseline,
        tuple(treatments),
        arguments.table,
        tuple((column, value) for column, _, value in (item.partition("=") for item in arguments.where)),
        arguments.pair_by or "",
        arguments.merge,
        arguments.metrics,
        tuple(arguments.margin),
        arguments.alpha,
        arguments.sample_floor,
        arguments.force,
    )


def _files(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return name and patterns of ``NAME=PATTERN [PATTERN ...]``; a shell may have expanded the pattern."""
    first = words[0]
    name, equals, pattern = first.partition("=")
    # Folders may be called mode=A/run=1, so a word that matches files is a pattern even if it holds "=".
    if not equals or re.search(r"[/*?\[]", name) or matching(first):
        return "", tuple(words)
    if not name or not pattern:
        raise UsageError(f"{first!r}: must be NAME=PATTERN, e.g. istio='istio/*.json'")
    return name, (pattern, *words[1:])


def _studies(arguments: argparse.Namespace, out: TextIO) -> int:
    """Compare recorded studies, as they were analysed, with the first of them."""
    from meshtrial.inference import between, read_study
    from meshtrial.records.store import StudyStore
    from meshtrial.report.tables.between import between as table

    packages.require("statsmodels")
    if arguments.baseline or arguments.treatment or arguments.html or gating.read(arguments):
        raise UsageError(
            "--baseline, --treatment, --html and gates cannot be used with recorded studies; leave them out"
        )
    for path in arguments.studies:
        if "=" in path.name and not path.exists():
            raise UsageError(f"{path}: no such study folder; give files with --baseline and --treatment")
    folders = [path.resolve() for path in arguments.studies]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise UsageError(f"{arguments.studies[number]}: is named twice; name two studies of one question")
    studies = [read_study(StudyStore.open(folder)) for folder in folders]
    compared = between.compare(studies)
    print(table(studies, compared, between.differences(studies)).text, file=out)
    if arguments.json is not None:
        with writing(arguments.json, UsageError):
            between.write(arguments.json, studies, compared)
        print(f"\nrecord  {arguments.json}", file=out)
    return 0
