"""A file of a load generator whose format is not known yet.

The format is recognised by the contents of a file, never by its name. A file is one run; one with several runs is
refused with their number and the lines in which they begin.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from meshtrial.load.files import Fields, InputFileError, excerpt, text_in
from meshtrial.load.recorded import Recorded
from meshtrial.typed import shortened

# The log of a container may precede a tool's text.
_HEAD_BYTES = 2**20
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Source:
    """A file's contents, decompressed and in UTF-8 if they are text, with tools to recognise them."""

    path: Path
    data: bytes

    @cached_property
    def head(self) -> str:
        """The beginning as text, with line ends as in :attr:`text`."""
        return self.data[:_HEAD_BYTES].decode("utf-8", errors="replace").replace("\r\n", "\n").lstrip()

    @cached_property
    def text(self) -> str:
        """The whole text with Unix line ends; InputFileError if it is not text."""
        return text_in(self.data, self.path).replace("\r\n", "\n")

    @property
    def document(self) -> Any:
        """The JSON document at the beginning, or None."""
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
        """The lines in which JSON documents begin, including truncated ones."""
        text, opening = self.text, re.escape(self.head[:1])
        next_one, first_of_line = re.compile(rf"\s*({opening})"), re.compile(rf"^({opening})", re.MULTILINE)
        starts, end = [], 0
        while found := next_one.match(text, end) or first_of_line.search(text, end):
            starts.append(found.start(1))
            end = _value_at(text, found.start(1))[1] or found.end()
        return [text.count("\n", 0, start) + 1 for start in starts]

    def require_one_document(self) -> None:
        """Raise InputFileError if anything follows the first JSON document."""
        if len(self.documents) > 1:
            raise several_runs(self.path, len(self.documents), f"JSON documents begin in lines {few(self.documents)}")
        rest = self.text[self._first_document[1] :].strip()
        if rest and self.document is not None:
            line = self.text.rstrip().count("\n") - rest.count("\n") + 1
            reason = f"line {line} is not part of its JSON document ({excerpt(rest.partition(chr(10))[0])})"
            raise InputFileError(self.path, f"{reason}; remove the rest")

    def lines_like(self, patterns: Sequence[str]) -> dict[int, str]:
        """Return the lines that match the most frequent of some patterns: number to text."""
        lines: dict[int, str] = {}
        for pattern in patterns:
            matches = [*re.finditer(pattern, self.text, re.MULTILINE)]
            if len(matches) > len(lines):
                numbers = (self.text.count("\n", 0, match.start()) + 1 for match in matches)
                lines = {n: match[0].split("\n")[0].strip() for n, match in zip(numbers, matches, strict=True)}
        return lines

    @cached_property
    def first_line(self) -> dict[str, Any]:
        """The JSON object in the first line; empty if there is none."""
        line = self.data.lstrip().partition(b"\n")[0]
        first = _value(line) if self.head[:1] == "{" else None
        return first if isinstance(first, dict) else {}

    def holds(self, *keys: str) -> bool:
        """Return whether the file is one JSON object with these keys."""
        return isinstance(self.document, dict) and all(key in self.document for key in keys)

    def fields(self, label: str) -> Fields:
        """Return the JSON object; ``label`` names it in messages."""
        return Fields(self.document, self.path, label)

    def lines(self, label: str, holding: bytes = b"") -> Iterator[Fields]:
        """Yield the JSON objects of the lines that contain some bytes; InputFileError names an invalid line."""
        for number, line in enumerate(self.data.splitlines(), start=1):
            if holding in line and line.strip():
                item = _value(line)
                if not isinstance(item, dict):
                    raise InputFileError(self.path, f"line {number} is not a line of a {label}: {excerpt(line)}")
                yield Fields(item, self.path, label)
        if not self.data.endswith((b"\n", b"}")):
            raise InputFileError(self.path, f"line {number} of the {label} is truncated; measure again")

    def rows(self, label: str, names: tuple[str, ...] = ()) -> Iterator[Fields]:
        """Yield the rows of a table; InputFileError names a row with too few or too many values.

        ``names`` are the first columns of a file without a header.
        """
        if names and not self.data.endswith(b"\n"):
            raise InputFileError(self.path, f"the last row of the {label} is truncated; measure again")
        reader = csv.reader(io.StringIO(self.text, newline=""))
        try:
            header = list(names) or [name.strip() for name in next(reader)]
            for number, row in enumerate(reader, start=1 if names else 2):
                if not row:
                    continue
                if len(row) < len(header) or (not names and len(row) > len(header)):
                    reason = f"row {number} has {len(row)} values for {len(header)} columns"
                    raise InputFileError(self.path, f"is an invalid {label}: {reason}")
                yield Fields(dict(zip(header, row, strict=False)), self.path, label)
        except csv.Error as error:
            raise InputFileError(self.path, f"is an invalid {label} ({error})") from None


@dataclass(frozen=True)
class Format:
    """One format of one load generator."""

    recognises: Callable[[Source], bool]  # without errors
    # Returns the run for a sample floor; InputFileError names what is missing, and how to get it.
    read: Callable[[Source, float], Recorded]
    once: tuple[str, ...] = ()  # of texts and tables: patterns of lines that occur once per run
    stream: bool = False  # one request per line; `read` itself refuses several runs


def few(items: Sequence[object]) -> str:
    """Return the first three items for a message, and the number of further ones."""
    more = [f"{len(items) - 3} more"] if len(items) > 3 else []
    return ", ".join([*map(shortened, items[:3]), *more])


def several_runs(path: Path, number: int, evidence: str) -> InputFileError:
    """Return the error for a file with several runs, with the evidence."""
    return InputFileError(
        path,
        f"contains {number} runs ({evidence}); give one file per run "
        "(for several load generators of one run, one file each and --merge)",
    )


def holding(*keys: str) -> Callable[[Source], bool]:
    """Recognise one JSON object with these keys."""
    return lambda source: source.holds(*keys)


def beginning(pattern: str) -> Callable[[Source], bool]:
    """Recognise a file by a regular expression of its beginning."""
    return lambda source: re.match(pattern, source.head, re.MULTILINE) is not None


def with_line(pattern: str) -> Callable[[Source], bool]:
    """Recognise a file by a regular expression of the beginning of any line."""
    return lambda source: re.search(pattern, source.head, re.MULTILINE) is not None


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a position and its end; None and 0 if there is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, 0


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        return None
