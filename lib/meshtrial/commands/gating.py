"""The gate options, shared by all commands that end in verdicts.

They are checked before anything is measured. The files are written whether or not the gate fires.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from meshtrial.errors import GateError, UsageError, writing

if TYPE_CHECKING:
    from meshtrial.inference.gate import DeclaredContrast, GateOutcome, Rules
    from meshtrial.report.frames import Contrasts


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = command.add_argument_group(
        "gate", "For CI, see docs/how-to/ci-gate.md. If the gate fires, the exit code is 4."
    )
    verdicts = partial(group.add_argument, action="append", default=[], metavar="VERDICTS")
    verdicts("--fail-on", help="fire if any primary contrast has one of these verdicts, e.g. slower,more")
    verdicts("--require", help="fire unless all primary contrasts have one of these, e.g. equivalent")
    group.add_argument("--summary", type=Path, metavar="FILE.md", help="write the verdict table as Markdown")
    group.add_argument("--junit", type=Path, metavar="FILE.xml", help="write one test case per primary contrast")


@dataclass(frozen=True)
class Gate:
    """The rules of a gate and the files to write."""

    rules: Rules
    summary: Path | None = None
    junit: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.rules or self.summary or self.junit)

    def judge(
        self, contrasts: Contrasts, declared: Sequence[DeclaredContrast], alpha: float, title: str, out: TextIO
    ) -> None:
        """Write the files and print that the gate passes; raise GateError with a one-line reason if it fires.

        Arguments are all verdict rows, the declared primary contrasts and the error level of a family.
        """
        if not self:
            return
        from meshtrial.inference.gate import judge

        outcome = judge(contrasts.rows, declared, self.rules, alpha)
        self._write(contrasts, outcome, title, out)
        if outcome.fired:
            out.flush()
            raise GateError(outcome.line)
        if self.rules:
            print(outcome.line, file=out)

    def _write(self, contrasts: Contrasts, outcome: GateOutcome, title: str, out: TextIO) -> None:
        from meshtrial.report import summary

        if self.summary is not None:
            _file("summary", self.summary, summary.markdown(title, contrasts, outcome), out)
        if self.junit is not None:
            _file("junit", self.junit, summary.junit(title, outcome), out)


def _file(kind: str, path: Path, text: str, out: TextIO) -> None:
    from meshtrial.records.store import write_text

    with writing(path, UsageError):
        write_text(path, text)
    print(f"{kind:<8} {path}", file=out)


def read(arguments: argparse.Namespace) -> Gate:
    """Return the checked options and create the folders of the files; UsageError if a file cannot be written."""
    from meshtrial.inference.gate import read_rules

    rules = read_rules(arguments.fail_on, arguments.require)
    for option in ("summary", "junit"):
        path = getattr(arguments, option)
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise UsageError(f"--{option} {path}: cannot be written ({error.strerror}); choose another file") from error
        if path.is_dir():
            raise UsageError(f"--{option} {path}: is a folder; name a file in it")
    if arguments.summary is not None and arguments.summary == arguments.junit:
        raise UsageError(f"--summary and --junit both name {arguments.junit}; choose two files")
    return Gate(rules, arguments.summary, arguments.junit)
