"""The gate options, shared by all commands that end in verdicts.

They are checked before anything is measured. The files are written whether or not the gate fires.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TextIO

from meshtrial.errors import GateError, UsageError, writing
from meshtrial.inference import gate
from meshtrial.records.store import write_text
from meshtrial.report import summary
from meshtrial.report.frames import Contrasts


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = command.add_argument_group(
        "gate", "For CI, see docs/how-to/ci-gate.md. If the gate fires, the exit code is 4."
    )
    verdicts = partial(group.add_argument, action="append", default=[], metavar="VERDICTS")
    verdicts("--fail-on", help="fire if any primary contrast has one of these verdicts, e.g. slower,more")
    verdicts("--require", help="fire unless all primary contrasts have one of these, e.g. equivalent")
    files = partial(group.add_argument, type=Path)
    files("--summary", metavar="FILE.md", help="write the verdict table as Markdown")
    files("--junit", metavar="FILE.xml", help="write one test case per primary contrast")
    files("--benchmark-json", metavar="FILE.json", help="write effects for github-action-benchmark")
    files("--bencher", metavar="FILE.json", help="write effects with intervals for Bencher")


_FILES = ("summary", "junit", "benchmark_json", "bencher")


@dataclass(frozen=True)
class Gate:
    """The rules of a gate and the files to write, by the names of their options."""

    rules: gate.Rules
    files: Mapping[str, Path] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rules or self.files)

    def judge(
        self, contrasts: Contrasts, declared: Sequence[gate.DeclaredContrast], alpha: float, title: str, out: TextIO
    ) -> None:
        """Write the files and print that the gate passes; raise GateError with a one-line reason if it fires.

        Arguments are all verdict rows, the declared primary contrasts and the error level of a family.
        """
        if not self:
            return
        outcome = gate.judge(contrasts.rows, declared, self.rules, alpha)
        texts: dict[str, Callable[[], str]] = {
            "summary": lambda: summary.markdown(title, contrasts, outcome),
            "junit": lambda: summary.junit(title, outcome),
            "benchmark_json": lambda: summary.benchmark_json(title, contrasts),
            "bencher": lambda: summary.bencher(title, contrasts),
        }
        for name, path in self.files.items():
            with writing(path, UsageError):
                write_text(path, texts[name]())
            print(f"{name.partition('_')[0]:<8} {path}", file=out)
        if outcome.fired:
            out.flush()
            raise GateError(outcome.line)
        if self.rules:
            print(outcome.line, file=out)


def read(arguments: argparse.Namespace) -> Gate:
    """Return the checked options and create the folders of the files; UsageError if a file cannot be written."""
    rules = gate.read_rules(arguments.fail_on, arguments.require)
    named = {name: path for name in _FILES if (path := getattr(arguments, name)) is not None}
    options = {name: f"--{name.replace('_', '-')}" for name in named}
    for name, path in named.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            why = f"cannot be written ({error.strerror}); choose another file"
            raise UsageError(f"{options[name]} {path}: {why}") from error
        if path.is_dir():
            raise UsageError(f"{options[name]} {path}: is a folder; name a file in it")
    for one, other in combinations(named, 2):
        if named[one] == named[other]:
            raise UsageError(f"{options[one]} and {options[other]} both name {named[one]}; choose two files")
    return Gate(rules, named)
