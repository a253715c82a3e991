"""How a test asks for an error: by its kind and the values that it names.

What every error says stands in one file, tests/fixtures/refusals.txt: below the test that meets it a line with its
class, the exit code of the command and the words. `PYTHONPATH=lib:tests .venv/bin/python -m refused` runs the unit
tests and writes it; whoever changes a message reads the difference.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from meshtrial import paths

FILE = paths.CHECKOUT / "tests" / "fixtures" / "refusals.txt"
# Where a run that writes the file collects what it meets.
COLLECTED = "MESHTRIAL_REFUSALS"
ALL = "tests/unit/"
# Tests that still say the words themselves, and are not in the file.
NOT_YET = (
    *(f"{ALL}{room}/" for room in ("compare", "kubernetes", "local", "report", "run", "testbed")),
    *(f"{ALL}load/test_{module}.py" for module in ("fields", "files", "histogram", "recorded", "result")),
)
# What is another in every run and on every machine.
TEMPORARY = Path(tempfile.gettempdir()).resolve()
PLACES = (
    (re.compile(rf"{re.escape(str(TEMPORARY))}/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\s:]+"), "TMP"),
    (re.compile(re.escape(str(paths.CHECKOUT))), "CHECKOUT"),
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}"), "STUDY"),
    (re.compile(r"seed=\d{6,}"), "seed=SEED"),
)


@contextmanager
def refused(
    kind: type[Exception], words: str | None = None, *, names: Iterable[object] = ()
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block ends in an error of just this kind, in one line: the one that stands in the file for this test.

    ``names`` are values that the line names, each as a whole: what the program knows and rewording does not change (a
    parameter, a number, a path), none longer than a word. ``words`` is the whole line, in tests that say it themselves.
    """
    with pytest.raises(kind) as caught:
        yield caught
    line = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in line
    assert missing(line, names) == []
    if words is not None:
        assert line == words
    elif (test := os.environ["PYTEST_CURRENT_TEST"]).startswith(ALL) and not test.startswith(NOT_YET):
        _compare(test.rpartition(" (")[0], f"{kind.__name__} {getattr(kind, 'exit_code', '-')}: {everywhere(line)}")


def missing(line: str, names: Iterable[object]) -> list[str]:
    """Those of some values that a line does not name."""
    values = [str(name) for name in names]
    parts = [value for value in values if not value or re.search(r"\s", value)]
    assert not parts, f"{parts}: parts of a sentence; these stand in {FILE.name}"
    return [value for value in values if not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", line)]


def everywhere(line: str) -> str:
    """A line as it is in every run and on every machine."""
    for place, name in PLACES:
        line = place.sub(name, line)
    return line


@cache
def reviewed() -> dict[str, list[str]]:
    """What the file says: each test with its lines, in their order."""
    return _read(FILE.read_text().splitlines() if FILE.exists() else ())


def _read(lines: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("tests/"):
            here = found.setdefault(line, [])
        else:
            here.append(line.strip())
    return found


def _written(found: dict[str, list[str]]) -> str:
    return "".join(f"{test}\n" + "".join(f"    {line}\n" for line in lines) for test, lines in sorted(found.items()))


_met: dict[str, int] = {}


def _compare(test: str, line: str) -> None:
    """This is the next line of this test; or it is collected, for the file."""
    if folder := os.environ.get(COLLECTED):
        with Path(folder, str(os.getpid())).open("a") as collected:
            collected.write(_written({test: [line]}))
        return
    if test not in _met:
        _met.clear()
    place = _met[test] = _met.get(test, -1) + 1
    known = [*reviewed().get(test, []), *[""] * (place + 1)][place]
    assert line == known, f"not what {FILE.name} says; `python -m refused {test.partition('::')[0]}` writes it anew"


def _names() -> list[str]:
    """The tests that are in the file, or may be."""
    names = (str(path.relative_to(paths.CHECKOUT)) for path in (paths.CHECKOUT / ALL).rglob("test_*.py"))
    return [name for name in sorted(names) if not name.startswith(NOT_YET)]


def main(argv: list[str]) -> int:
    """Run the tests that meet errors, and write what they met; nothing is written where one of them fails."""
    parser = argparse.ArgumentParser(prog="refused", description="write tests/fixtures/refusals.txt")
    parser.add_argument("tests", nargs="*", help="files or folders; without any all unit tests that meet errors")
    given = parser.parse_args(argv).tests
    found = given or [name for name in _names() if "refused(" in (paths.CHECKOUT / name).read_text()]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *found]
        done = subprocess.run(command, cwd=paths.CHECKOUT, env=os.environ | {COLLECTED: folder}, check=False)
        met = _read(line for path in sorted(Path(folder).iterdir()) for line in path.read_text().splitlines())
    if not done.returncode:
        others = {test: lines for test, lines in reviewed().items() if given and not test.startswith(tuple(given))}
        FILE.write_text(_written(others | met))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
