"""The content of a given file, gzip or plain: bytes, text, fields of JSON objects, times as Go writes them.

Opinion: a field that is absent is None; one with an impossible value or another type is refused by name and place. It
is neither guessed nor treated as absent.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from meshtrial.decoding import NotTextError, as_utf8, text_of
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import shortened

GZIP_MAGIC = b"\x1f\x8b"
CLOCK_S = 1e-6  # the resolution of fortio's access log
LONGEST_S = 1e6  # no answer takes eleven days
# A request log compresses to between a tenth and a thirtieth; a file that unpacks to much more is no result.
_MOST_BYTES, _MOST_TIMES = 4 * 2**30, 200
_FEW_BYTES = 2**26  # always permitted
# Generators count in 64 bits.
_LARGEST = 2**63
# PowerShell's ConvertTo-Json writes levels deeper than its -Depth (2 by default) as text: ``@{avg=5; med=4}``.
_FLATTENED = re.compile(r"@\{|System\.\w")
# Times in Go's formats.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|μs|ns|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


class InputFileError(RecordError, UsageError):
    """A given or recorded file cannot be used; the message is ``file: reason``.

    It is both an invalid record and, on a command line, bad usage (exit code 2).
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def read_bytes(path: Path) -> bytes:
    """Read a whole file; gzip is recognised by its first two bytes, not by the file's name.

    Text in any Unicode encoding is returned as UTF-8 without a byte order mark.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputFileError(path, "the file does not exist") from error
    except OSError as error:
        raise InputFileError(path, f"cannot be read ({error.strerror or error})") from error
    if data.startswith(GZIP_MAGIC):
        most = max(_FEW_BYTES, min(_MOST_BYTES, _MOST_TIMES * len(data)))
        try:
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(most + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputFileError(path, f"the gzip data is damaged or truncated ({error})") from error
        if len(data) > most:
            raise InputFileError(path, f"unpacks to more than {most} bytes, which no generator writes; unpack it first")
    try:
        data = as_utf8(data)
    except NotTextError as error:
        raise InputFileError(path, str(error)) from None
    if not data or data.isspace():
        raise InputFileError(path, "the file is empty")
    return data


def text_in(data: bytes, path: Path) -> str:
    """Return the text of a file's bytes; InputFileError if they are not text."""
    try:
        return text_of(data)
    except NotTextError as error:
        raise InputFileError(path, str(error)) from None


def read_text(path: Path) -> str:
    """Read a whole text file, gzip or plain."""
    return text_in(read_bytes(path), path)


def excerpt(line: bytes | str) -> str:
    """Return a line shortened for a message."""
    return shortened(line.decode("utf-8", errors="replace") if isinstance(line, bytes) else line, 80)


def parse_time_ns(text: str) -> int | None:
    """Parse RFC 3339 with up to nine decimals; return nanoseconds since 1970, or None if it is no such time."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone == 'Z' else zone}")
    except ValueError:  # month 13
        return None
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    whole = (moment - epoch) // timedelta(seconds=1)
    return whole * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def parse_duration_s(text: str) -> float | None:
    """Parse Go's ``1m30.5s``; return seconds, or None for anything else (``until stop``, ``exactly 5 calls``)."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


@dataclass(frozen=True)
class Fields:
    """A JSON object of a file; its methods read fields of a given type and return None for absent ones."""

    data: Mapping[str, Any]
    path: Path  # for messages
    kind: str  # what the file should be, e.g. ``fortio result``
    name: str = ""  # the object's name in the file; empty for the whole

    def broken(self, reason: str) -> InputFileError:
        """Return the error for a fault of the file, to be raised."""
        return InputFileError(self.path, f"is not a complete {self.kind}: {reason}")

    def number(self, name: str) -> float | None:
        """Return a finite number, which may be written as text."""
        value = self.data.get(name)
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self._odd(name, value, "a number") from None
        return number

    def integer(self, name: str) -> int | None:
        """Return a whole number, which may be written as text."""
        value = self.data.get(name)
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
            return int(value)
        number = self.number(name)
        if number is not None and (number != int(number) or abs(number) >= _LARGEST):
            raise self._odd(name, value, "a whole number")
        return None if number is None else int(number)

    def text(self, name: str) -> str | None:
        """Return text; None if it is empty."""
        value: str | None = self._shaped(name, str, "text")
        return value or None

    def flag(self, name: str) -> bool | None:
        """Return a Boolean."""
        value: bool | None = self._shaped(name, bool, "true or false")
        return value

    def counts(self, name: str) -> dict[str, int]:
        """Return an object of whole numbers that are not negative; empty if it is absent."""
        inner = self.inside(name)
        counted = {str(key): inner.integer(key) or 0 for key in inner.data}
        for key, count in counted.items():
            if count < 0:
                raise self.broken(f"{shortened(key)} of {name} is {count}, but a count cannot be negative")
        return counted

    def inside(self, name: str) -> Fields:
        """Return an object inside this one; without fields if it is absent."""
        return Fields(self._shaped(name, dict, "an object") or {}, self.path, self.kind, name)

    def objects(self, name: str) -> list[Fields]:
        """Return a list of objects; empty if it is absent."""
        items = self._shaped(name, list, "a list of objects") or []
        for place, item in enumerate(items):
            if not isinstance(item, dict):
                raise self._odd(f"{name}[{place}]", item, "an object")
        return [Fields(item, self.path, self.kind, name) for item in items]

    def _shaped(self, name: str, kind: type, expected: str) -> Any:
        value = self.data.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._odd(name, value, expected)
        return value

    def _odd(self, name: str, value: Any, expected: str) -> InputFileError:
        field = f"{name} of {self.name}" if self.name else name
        kinds = {dict: "an object", list: "a list"} | ({str: "text"} if "object" in expected else {})
        actual = next((words for kind, words in kinds.items() if isinstance(value, kind)), shortened(value))
        flattened = isinstance(value, str) and _FLATTENED.match(value)
        remedy = " (PowerShell: ConvertTo-Json -Depth 10)" if flattened else ""
        return self.broken(f"{field} is {actual}, not {expected}{remedy}")
