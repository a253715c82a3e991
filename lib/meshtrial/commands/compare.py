"""``meshtrial compare``: load-test results that somebody already has, or recorded studies, against each other."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any, TextIO

from meshtrial.commands import gating
from meshtrial.errors import UsageError

EXAMPLES = """\
examples:
  meshtrial compare --baseline 'none/*.json' --treatment istio='istio/*.json' --margin p50=5%
  meshtrial compare --baseline 'none/*.json' --treatment linkerd='linkerd/*.json' --pair-by name
  meshtrial compare --merge --baseline 'none/*/gen*.json' --treatment 'istio/*/gen*.json'
  meshtrial compare --baseline 'none/*.txt' --treatment istio='istio/*.txt'      (wrk2 --latency, a file a run)
  meshtrial compare --table runs.csv --baseline none --treatment istio --metrics p50_ms
  meshtrial compare data/studies/mesh_comparison/MONDAY data/studies/mesh_comparison/FRIDAY

Inputs are files, plain or gzip, each one run: fortio results (version 1.3 on) and access logs; wrk2 and wrk with
--latency; k6 summaries and --out json; vegeta (report -type=json or hist, encode); oha, hey, ghz, Locust (--csv or
--json) and Nighthawk; docs/formats.md says what each carries and what it lacks. Or one table (CSV or Parquet) with the
columns run, block, treatment, response, value and, where wanted, unit. A block makes the runs paired; files are paired
only by --pair-by. Folders of recorded studies (or packed ones) of one question are compared study by study, with the
spread between their days."""


def add(verbs: Any) -> None:
    """Declare the command."""
    command = verbs.add_parser(
        "compare",
        description="Judge results that are already there by the same inference as a study.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    if arguments.studies:
        return _studies(arguments, out)
    # scipy takes a moment to load, which other commands need not wait for.
    from meshtrial.compare import analysis, names, record, session, text

    if not arguments.baseline:
        raise UsageError("nothing to compare: give --baseline and --treatment, or the folders of two recorded studies")
    if not 0 < arguments.alpha < 0.5:
        raise UsageError(f"--alpha {arguments.alpha:g}: allowed is more than 0 and less than 0.5")
    if not 0 <= arguments.sample_floor < math.inf:
        raise UsageError(f"--sample-floor {arguments.sample_floor:g}: allowed is 0 or more")
    gate = gating.read(arguments)
    asked = session.Asked(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(session.Asked)})
    sample, default = session.collect(asked)
    metrics = names.metrics_of(arguments.metrics) if arguments.metrics else default
    margins = names.margins_for(arguments.margin, metrics)
    outcome = analysis.analyse(sample, metrics, margins, alpha=arguments.alpha, sample_floor=arguments.sample_floor)
    print(text.render(outcome), file=out)
    options = {name: _plain(value) for name, value in vars(arguments).items() if name not in ("run", "verb")}
    try:
        if arguments.json is not None:
            record.write(arguments.json, outcome, options)
            print(f"\nrecord  {arguments.json}", file=out)
        if arguments.html is not None:
            from meshtrial.compare import page

            page.write(arguments.html, outcome, _command(arguments))
            print(f"page    {arguments.html}", file=out)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written ({error.strerror})") from error
    if gate:
        from meshtrial.compare import page

        title = f"{' and '.join(sample.treatments)} against {sample.baseline}"
        gate.judge(page.contrasts(outcome), outcome.primary, outcome.alpha, title, out)
    return 0


def _studies(arguments: argparse.Namespace, out: TextIO) -> int:
    """Recorded studies, each as it was analysed, against the first of them."""
    from meshtrial.inference import between, read_study
    from meshtrial.records.store import StudyStore
    from meshtrial.report.tables.between import between as table

    if arguments.baseline or arguments.treatment or arguments.html or gating.read(arguments):
        raise UsageError(
            "recorded studies are compared as they are: leave out --baseline, --treatment, --html and gates"
        )
    studies = [read_study(StudyStore.open(path.resolve())) for path in arguments.studies]
    found = between.compare(studies)
    shown = table(studies, found, between.differences(studies))
    print(shown.text, file=out)
    if arguments.json is not None:
        between.write(arguments.json, studies, found)
        print(f"\nrecord  {arguments.json}", file=out)
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
