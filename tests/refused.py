"""Tests check an error by its kind and by the values that it names.

The resulting messages are kept in tests/fixtures/refusals.txt: below each test its lines in order, an error with its
class and the command's exit code. ``PYTHONPATH=lib:tests .venv/bin/python -m refused`` runs the unit tests and writes
the file; whoever changes a message reviews the difference.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from meshtrial import paths

FILE = paths.CHECKOUT / "tests" / "fixtures" / "refusals.txt"
# The folder in which a run that writes the file collects its lines.
COLLECTED = "MESHTRIAL_REFUSALS"
UNIT = "tests/unit/"
# Replacements for what differs between runs and machines.
TEMPORARY = re.escape(str(Path(tempfile.gettempdir()).resolve()))
PLACES = (
    (re.compile(rf"{TEMPORARY}/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\s:;,'\"]+"), "TMP"),
    (re.compile(rf"{TEMPORARY}/tmp\w+"), "TMP"),
    (re.compile(re.escape(str(paths.CHECKOUT))), "CHECKOUT"),
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}"), "STUDY"),
    (re.compile(r"seed=\d{6,}"), "seed=SEED"),
    (re.compile(r"_ssl\.c:\d+"), "_ssl.c:LINE"),
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:PORT"),
    (re.compile(r"on host \S+, process \d+"), "on host HOST, process PID"),
    (re.compile(r"takes \d+ bytes"), "takes SIZE bytes"),
)


@contextmanager
def refused(kind: type[Exception], *, names: Iterable[object] = ()) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block ends with an error of exactly this kind, whose line the file has for this test.

    ``names`` are values that the line names, each as a whole. They are known to the program and independent of wording
    (a parameter, a number, a path), none longer than a word.
    """
    with pytest.raises(kind) as caught:
        yield caught
    line = str(caught.value)
    assert type(caught.value) is kind
    assert missing(line, names) == []
    as_reviewed(f"{kind.__name__} {getattr(kind, 'exit_code', '-')}: {line}")


def missing(line: str, names: Iterable[object]) -> list[str]:
    """Return those values that a line does not name."""
    values = [str(name) for name in names]
    parts = [value for value in values if not value or re.search(r"\s", value)]
    assert not parts, f"{parts}: parts of a sentence; these stand in {FILE.name}"
    return [value for value in values if not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", line)]


_seen: dict[str, int] = {}


def as_reviewed(*lines: str) -> None:
    """Each is the next line in the file for this unit test, or is collected for it."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    name, _, case = test.partition("[")
    for line in lines:
        assert "\n" not in line
        said = f"[{case} {everywhere(line)}" if case else everywhere(line)
        if not test.startswith(UNIT):
            continue
        if folder := os.environ.get(COLLECTED):
            with Path(folder, str(os.getpid())).open("a") as collected:
                collected.write(f"{name}\n    {said}\n")
            continue
        if test not in _seen:
            _seen.clear()
        place = _seen[test] = _seen.get(test, -1) + 1
        known = [one for one in reviewed().get(name, ()) if not case or one.startswith(f"[{case} ")]
        assert said == (known[place] if place < len(known) else ""), (
            f"not what {FILE.name} says; `python -m refused {name.partition('::')[0]}` writes it anew"
        )


def everywhere(line: str) -> str:
    """Return a line without what differs between runs and machines."""
    for place, name in PLACES:
        line = place.sub(name, line)
    return line.replace("\r", "\\r").encode(errors="backslashreplace").decode()


@cache
def reviewed() -> dict[str, list[str]]:
    """Return the lines of each test."""
    return _read(FILE.read_text()) if FILE.exists() else {}


def _read(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    here: list[str] = []
    for line in text.split("\n"):
        if line.startswith("    "):
            here.append(line[4:])
        elif line:
            here = found[line]
    return found


def main(argv: list[str]) -> int:
    """Run the tests that expect errors and write their messages; write nothing if one of them fails."""
    parser = argparse.ArgumentParser(prog="refused", description=f"write {FILE.relative_to(paths.CHECKOUT)}")
    parser.add_argument("tests", nargs="*", help="files or folders; without any all unit tests that meet errors")
    given = parser.parse_args(argv).tests
    every = sorted((paths.CHECKOUT / UNIT).rglob("test_*.py"))
    asking = [str(path.relative_to(paths.CHECKOUT)) for path in every if "refused" in path.read_text()]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *(given or asking)]
        done = subprocess.run(command, cwd=paths.CHECKOUT, env=os.environ | {COLLECTED: folder}, check=False)
        met = _read("\n".join(path.read_text() for path in sorted(Path(folder).iterdir())))
    if not done.returncode:
        others = {test: lines for test, lines in reviewed().items() if given and not test.startswith(tuple(given))}
        said = sorted((others | met).items())
        FILE.write_text("".join(f"{test}\n" + "".join(f"    {line}\n" for line in lines) for test, lines in said))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
