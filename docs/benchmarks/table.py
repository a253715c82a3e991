"""What benchmarks share: a row of their table, and how each is run on its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

HEADING = ("what", "measured", "beside", "ratio")


@dataclass(frozen=True)
class Row:
    """A measurement and what it is compared with, both made in one run on one machine."""

    what: str
    measured: str
    beside: str  # the other one, or the limit
    ratio: float | None = None  # of the first to the second; None where there is no second here

    def cells(self) -> tuple[str, ...]:
        """Return its cells of the table."""
        return self.what, self.measured, self.beside, "" if self.ratio is None else f"{self.ratio:.2f}"


def main(rows: Callable[..., Iterable[Row]]) -> None:
    """Print a benchmark's rows when they are measured, as lines of a table or, with ``--json``, as JSON."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    for row in rows(*arguments):
        print(json.dumps(asdict(row)) if "--json" in sys.argv else markdown(row.cells()), flush=True)


def markdown(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def used(command: list[str]) -> tuple[float, float]:
    """Return the CPU seconds and peak MB of a program and of all processes that it starts and waits for.

    SystemExit if it fails. Callers should use little memory, because a child's peak begins with that of its parent.
    """
    child = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"ended with code {child.returncode}: {' '.join(command)[:200]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000
