"""A file of some load generator, looked at without knowing yet whose it is.

Opinion: a form is told by what a file holds, never by its name. A file is one run: one that holds several is refused
with their number and the lines in which they begin.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from meshtrial.load.files import Fields, InputFileError, read_bytes, shown, text_in
from meshtrial.load.recorded import Recorded
from meshtrial.typed import shortened

# The log of a container may stand before a tool's text.
_HEAD_BYTES = 2**20
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Source:
    """A file's bytes, unpacked and text in UTF-8, and what they look like."""

    path: Path
    data: bytes

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read it, gzip or plain."""
        return cls(path, read_bytes(path))

    @cached_property
    def head(self) -> str:
        """How it begins, as text whatever it is; lines end as in :attr:`text`."""
        return self.data[:_HEAD_BYTES].decode("utf-8", errors="replace").replace("\r\n", "\n").lstrip()

    @cached_property
    def text(self) -> str:
        """The whole as text, whose lines end as on Unix; what is no text is refused."""
        return text_in(self.data, self.path).replace("\r\n", "\n")

    @property
    def document(self) -> Any:
        """The JSON document that it begins with; None where it begins with none."""
        return self._first_document[0]

    @cached_property
    def _first_document(self) -> tuple[Any, int]:
        if self.head[:1] not in ("{", "["):
            return None, 0
        try:
            return _value_at(self.text, len(self.text) - len(self.text.lstrip()))
        except InputFileError:
            return None, 0

    @cached_property
    def documents(self) -> list[int]:
        """The lines in which its JSON documents begin, those that were cut off included."""
        text, opening = self.text, re.escape(self.head[:1])
        next_one, first_of_line = re.compile(rf"\s*({opening})"), re.compile(rf"^({opening})", re.MULTILINE)
        starts, end = [], 0
        while found := next_one.match(text, end) or first_of_line.search(text, end):
            starts.append(found.start(1))
            end = _value_at(text, found.start(1))[1] or found.end()
        return [text.count("\n", 0, start) + 1 for start in starts]

    def require_one_document(self) -> None:
        """Refuse a file in which anything follows its first JSON document."""
        if len(self.documents) > 1:
            raise several_runs(self.path, len(self.documents), f"JSON documents begin in lines {few(self.documents)}")
        rest = self.text[self._first_document[1] :].strip()
        if rest and self.document is not None:
            line = self.text.rstrip().count("\n") - rest.count("\n") + 1
            reason = f"line {line} is not part of its JSON document: {shown(rest.partition(chr(10))[0])}"
            raise InputFileError(self.path, f"{reason}; keep the document alone")

    def lines_like(self, patterns: Sequence[str]) -> dict[int, str]:
        """The lines that begin like that pattern which most lines begin like, by number: what stands there."""
        found: dict[int, str] = {}
        for pattern in patterns:
            matches = [*re.finditer(pattern, self.text, re.MULTILINE)]
            if len(matches) > len(found):
                numbers = (self.text.count("\n", 0, match.start()) + 1 for match in matches)
                found = {n: match[0].split("\n")[0].strip() for n, match in zip(numbers, matches, strict=True)}
        return found

    @cached_property
    def first_line(self) -> dict[str, Any]:
        """The object of its first line, of files that hold one a line; empty for others."""
        line = self.data.lstrip().partition(b"\n")[0]
        first = _value(line) if self.head[:1] == "{" else None
        return first if isinstance(first, dict) else {}

    def holds(self, *keys: str) -> bool:
        """Whether it is one JSON object with these keys."""
        return isinstance(self.document, dict) and all(key in self.document for key in keys)

    def fields(self, what: str) -> Fields:
        """Its JSON object."""
        return Fields(self.document, self.path, what)

    def lines(self, what: str, holding: bytes = b"") -> Iterator[Fields]:
        """The objects of its lines, of those that hold some bytes; a line that is no object is refused by number."""
        for number, line in enumerate(self.data.splitlines(), start=1):
            if holding in line and line.strip():
                item = _value(line)
                if not isinstance(item, dict):
                    raise InputFileError(self.path, f"line {number} is no line of a {what}: {shown(line)}")
                yield Fields(item, self.path, what)
        if not self.data.endswith((b"\n", b"}")):
            raise InputFileError(self.path, f"line {number} is truncated: the {what} was cut off, measure again")

    def rows(self, what: str, names: tuple[str, ...] = ()) -> Iterator[Fields]:
        """The rows of its table; one that has too few or too many values is refused by its number.

        ``names`` are the columns where the file has no line of its own for them; more columns may follow.
        """
        if names and not self.data.endswith(b"\n"):
            raise InputFileError(self.path, f"its last row is truncated: the {what} was cut off, measure again")
        reader = csv.reader(io.StringIO(self.text, newline=""))
        try:
            header = list(names) or [name.strip() for name in next(reader)]
            for number, row in enumerate(reader, start=1 if names else 2):
                if not row:
                    continue
                if len(row) < len(header) or (not names and len(row) > len(header)):
                    reason = f"row {number} has {len(row)} values for {len(header)} columns"
                    raise InputFileError(self.path, f"is not a whole {what}: {reason}")
                yield Fields(dict(zip(header, row, strict=False)), self.path, what)
        except csv.Error as error:
            raise InputFileError(self.path, f"is not a whole {what} ({error})") from None


@dataclass(frozen=True)
class Format:
    """One form of one load generator."""

    name: str  # what a reader calls it: k6 summary
    recognises: Callable[[Source], bool]  # never raises
    # The run, with the sample floor; refuses with what is missing, and how to get it.
    read: Callable[[Source, float], Recorded]
    once: tuple[str, ...] = ()  # of a text or a table: regular expressions of lines that each run has once
    stream: bool = False  # a request in each line: `read` itself refuses several runs


def few(items: Sequence[object]) -> str:
    """The first three of some items as a message shows them, and how many more there are."""
    more = [f"{len(items) - 3} more"] if len(items) > 3 else []
    return ", ".join([*map(shortened, items[:3]), *more])


def several_runs(path: Path, number: int, evidence: str) -> InputFileError:
    """The error that says how many runs a file holds, and what shows it; to be raised."""
    return InputFileError(
        path,
        f"holds {number} runs ({evidence}): one file is one run, so give each run a file of its own "
        "(generators of one run: a file each, and --merge)",
    )


def holding(*keys: str) -> Callable[[Source], bool]:
    """Told by being one JSON object with these keys."""
    return lambda source: source.holds(*keys)


def beginning(pattern: str) -> Callable[[Source], bool]:
    """Told by how it begins, as a regular expression of whole lines."""
    return lambda source: re.match(pattern, source.head, re.MULTILINE) is not None


def with_line(pattern: str) -> Callable[[Source], bool]:
    """Recognised by how one of its lines begins, wherever that line is."""
    return lambda source: re.search(pattern, source.head, re.MULTILINE) is not None


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins there and where it ends; None and 0 where none does."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, 0


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
