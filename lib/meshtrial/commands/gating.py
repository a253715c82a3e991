"""The options of a gate, one group for every command that ends in verdicts, and what they do at its end.

What can be wrong with them is found before anything is measured. The files are written whether the gate fires or not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from meshtrial.errors import GateError, UsageError, writing

if TYPE_CHECKING:
    from meshtrial.inference.gate import DeclaredContrast, GateOutcome, Rules
    from meshtrial.report.frames import Contrasts


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = command.add_argument_group(
        "gate", "for CI; docs/how-to/ci-gate.md says how to choose (exit code 4: the gate fired)"
    )
    words = {"action": "append", "default": [], "metavar": "VERDICTS"}
    group.add_argument("--fail-on", **words, help="fires on any of these, e.g. slower,more or slower:material")  # type: ignore[arg-type]
    group.add_argument("--require", **words, help="fires unless every primary contrast is one of these: equivalent")  # type: ignore[arg-type]
    group.add_argument("--summary", type=Path, metavar="FILE.md", help="write the verdict table as Markdown")
    group.add_argument("--junit", type=Path, metavar="FILE.xml", help="write one test case per primary contrast")


@dataclass(frozen=True)
class Gate:
    """What was asked for."""

    rules: Rules
    summary: Path | None = None  # files to write
    junit: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.rules or self.summary or self.junit)

    def judge(
        self, contrasts: Contrasts, declared: Sequence[DeclaredContrast], alpha: float, title: str, out: TextIO
    ) -> None:
        """Write the files, say that the gate passes, or raise why it does not, in one line.

        It goes by every verdict row, the primary contrasts that were declared, and the error level of a family.
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
            _file("junit", self.junit, summary.junit(title, outcome, contrasts.counted), out)


def _file(what: str, path: Path, text: str, out: TextIO) -> None:
    from meshtrial.records.store import write_text

    with writing(path, UsageError):
        write_text(path, text)
    print(f"{what:<8} {path}", file=out)


def read(arguments: argparse.Namespace) -> Gate:
    """The checked options, before anything is measured; the folders of the files are made."""
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
            raise UsageError(f"--{option} {path}: cannot be written ({error.strerror}); give another file") from error
        if path.is_dir():
            raise UsageError(f"--{option} {path}: is a folder; give a file in it")
    if arguments.summary is not None and arguments.summary == arguments.junit:
        raise UsageError(f"--summary and --junit both name {arguments.junit}; give each a file of its own")
    return Gate(rules, arguments.summary, arguments.junit)
