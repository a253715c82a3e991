"""``meshtrial compare``: load-test results that somebody already has, or recorded studies, against each other."""

from __future__ import annotations

import argparse
import io
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from meshtrial.commands import gating
from meshtrial.design.parameters import split_list
from meshtrial.errors import MeshtrialError, UsageError

if TYPE_CHECKING:
    from meshtrial.compare.analysis import Outcome
    from meshtrial.compare.request import Request

EXAMPLES = """\
examples:
  meshtrial compare --baseline 'none/*.json' --treatment istio='istio/*.json' --margin p50=5%
  meshtrial compare --baseline 'none/*.json' --treatment linkerd='linkerd/*.json' --pair-by name
  meshtrial compare --merge --baseline 'none/*/gen*.json' --treatment 'istio/*/gen*.json'
  meshtrial compare --baseline 'none/*.txt' --treatment istio='istio/*.txt'      (wrk2 --latency, one file per run)
  meshtrial compare --table runs.csv --baseline none --treatment istio --metrics p50_ms
  meshtrial compare data/studies/mesh_comparison/MONDAY data/studies/mesh_comparison/FRIDAY

Inputs are files, plain or gzip, each one run: fortio results (version 1.3 on) and access logs; wrk2 and wrk with
--latency; k6 summaries and --out json; vegeta (report -type=json or hist, encode); oha, hey, ghz, Locust (--csv or
--json) and Nighthawk; docs/reference/formats.md says what each carries and what it lacks. Or one table (CSV or
Parquet) with the columns run, block, treatment, response, value and, where wanted, unit. A block makes the runs
paired; files are paired only by --pair-by. Folders of recorded studies (or packed ones) of one question are compared
study by study, with the spread between their days."""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Judge results that are already there by the same inference as a study."
    command.epilog, command.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    treatment = "NAME=PATTERN"
    command.add_argument("studies", nargs="*", type=Path, metavar="STUDY_DIR", help="two or more recorded studies")
    command.add_argument(
        "--baseline", nargs="+", default=[], metavar=treatment, help="files, a folder, or a table's name"
    )
    command.add_argument(
        "--treatment", nargs="+", action="append", default=[], metavar=treatment, help="may be repeated"
    )
    command.add_argument("--table", type=Path, metavar="FILE", help="a tidy CSV or Parquet instead of files")
    command.add_argument(
        "--where", action="append", default=[], metavar="COLUMN=VALUE", help="only these rows of the table"
    )
    command.add_argument(
        "--pair-by",
        choices=("order", "label", "name"),
        help="runs of the treatments that belong together; else unpaired",
    )
    command.add_argument("--merge", action="store_true", help="the files of one folder are generators of one run")
    command.add_argument("--metrics", default="", metavar="LIST", help="p50,p99 (default); the first three are primary")
    command.add_argument(
        "--margin", action="append", default=[], metavar="p50=5%", help="what is too small to matter; also 0.2ms, 5%%"
    )
    command.add_argument("--alpha", type=float, default=0.05, help="error level of a family (0.05)")
    command.add_argument(
        "--sample-floor", type=float, default=100.0, metavar="N", help="requests that must lie beyond a quantile (100)"
    )
    command.add_argument("--force", action="store_true", help="compare what differs all the same, and name it")
    command.add_argument("--json", type=Path, metavar="OUT", help="write the record")
    command.add_argument("--html", type=Path, metavar="OUT", help="write one offline page")
    gating.add(command)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    if arguments.studies:
        return _studies(arguments, out)
    # scipy takes a moment to load, which other commands need not wait for.
    from meshtrial.compare import text
    from meshtrial.compare.request import judge

    gate = gating.read(arguments)
    outcome = judge(_asked(arguments))
    # The files and the gate do not depend on a reader of the text, who may leave (`| head`).
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
    """Write the record and the page where they are asked for."""
    options = {name: _plain(value) for name, value in vars(arguments).items() if name not in ("run", "verb")}
    path = arguments.json
    try:
        if path is not None:
            from meshtrial.compare import record

            record.write(path, outcome, options)
            print(f"\nrecord  {path}", file=out)
        path = arguments.html
        if path is not None:
            from meshtrial.compare import page

            page.write(path, outcome, _command(arguments))
            print(f"page    {path}", file=out)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from error


def _asked(arguments: argparse.Namespace) -> Request:
    from meshtrial.compare.request import Named, Request

    if not arguments.baseline:
        raise UsageError("nothing to compare: give --baseline and --treatment, or the folders of two recorded studies")
    if arguments.table is None:
        if arguments.where:
            raise UsageError("--where: chooses rows of a table; give --table FILE")
        if not arguments.treatment:
            raise UsageError("--treatment: is needed, e.g. --treatment istio='istio/*.json'")
        baseline, *treatments = (Named(*_files(words)) for words in (arguments.baseline, *arguments.treatment))
    else:
        if arguments.merge:
            raise UsageError("--merge: is for files; a table has one number a run already")
        if len(arguments.baseline) != 1:
            names = " ".join(arguments.baseline)
            raise UsageError(f"--baseline: with --table it is one name of the table, not {names}")
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
    """Name and patterns of ``NAME=PATTERN [PATTERN ...]``; a shell may have expanded the pattern."""
    from meshtrial.compare.files import matching

    first = words[0]
    name, equals, pattern = first.partition("=")
    # What matches files as it is written is a pattern: folders may be called mode=A/run=1.
    if not equals or re.search(r"[/*?\[]", name) or matching(first):
        return "", tuple(words)
    if not name or not pattern:
        raise UsageError(f"{first!r}: is not NAME=PATTERN, e.g. istio='istio/*.json'")
    return name, (pattern, *words[1:])


def _studies(arguments: argparse.Namespace, out: TextIO) -> int:
    """Recorded studies, each as it was analysed, against the first of them."""
    from meshtrial.inference import between, read_study
    from meshtrial.records.store import StudyStore
    from meshtrial.report.tables.between import between as table

    if arguments.baseline or arguments.treatment or arguments.html or gating.read(arguments):
        raise UsageError(
            "recorded studies are compared as they are: leave out --baseline, --treatment, --html and gates"
        )
    for path in arguments.studies:
        if "=" in path.name and not path.exists():
            raise UsageError(f"{path}: no such study folder; files go behind --baseline and --treatment")
    studies = [read_study(StudyStore.open(path.resolve())) for path in arguments.studies]
    compared = between.compare(studies)
    shown = table(studies, compared, between.differences(studies))
    if arguments.json is not None:
        between.write(arguments.json, studies, compared)
    print(shown.text, file=out)
    if arguments.json is not None:
        print(f"\nrecord  {arguments.json}", file=out)
    out.flush()
    return 0


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _command(arguments: argparse.Namespace) -> str:
    """The command line that makes the same page again."""
    words = ["meshtrial", "compare", "--baseline", *arguments.baseline]
    for treatment in arguments.treatment:
        words += ["--treatment", *treatment]
    for name in ("where", "margin"):
        for item in getattr(arguments, name):
            words += [f"--{name}", item]
    for name in ("table", "pair_by", "metrics"):
        if getattr(arguments, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    words += [f"--{name}" for name in ("merge", "force") if getattr(arguments, name)]
    words += ["--alpha", f"{arguments.alpha:g}", "--sample-floor", f"{arguments.sample_floor:g}"]
    return shlex.join(words)
