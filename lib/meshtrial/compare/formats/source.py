"""A file of some load generator, looked at without knowing yet whose it is.

Opinion: a form is told by what a file holds, never by its name.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from meshtrial.load.fields import Fields
from meshtrial.load.files import InputFileError, read_bytes, text_in
from meshtrial.load.recorded import Recorded
from meshtrial.typed import shortened

_HEAD_BYTES = 4096


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

    @cached_property
    def document(self) -> Any:
        """The one JSON value that it holds; None where it holds none, or several."""
        return _value(self.data) if self.head[:1] in ("{", "[") else None

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


def holding(*keys: str) -> Callable[[Source], bool]:
    """Told by being one JSON object with these keys."""
    return lambda source: source.holds(*keys)


def beginning(pattern: str) -> Callable[[Source], bool]:
    """Told by how it begins, as a regular expression of whole lines."""
    return lambda source: re.match(pattern, source.head, re.MULTILINE) is not None


def shown(line: bytes) -> str:
    """A line as a message shows it."""
    return shortened(line.decode("utf-8", errors="replace"), 80)


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
