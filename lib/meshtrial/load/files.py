"""The content of somebody else's file, gzip or plain: its bytes, its text, and the fields of its JSON objects.

Opinion: what cannot be read is said in one clear sentence. A field that is not there is None; one that makes no sense,
or has another shape, is refused by its name and place, never guessed and never taken for absent.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshtrial.decoding import NotTextError, as_utf8, text_of
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import shortened

GZIP_MAGIC = b"\x1f\x8b"
LONGEST_S = 1e6  # no answer takes eleven days, whatever a file says
# A log of requests shrinks to a tenth or a thirtieth; what grows by more when it is read is no result of anything.
_MOST_BYTES, _MOST_TIMES = 4 * 2**30, 200
_FEW_BYTES = 2**26  # so much is never too much
# No generator counts further than in 64 bits.
_LARGEST = 2**63
# PowerShell's ConvertTo-Json writes what lies deeper than its -Depth (by default 2) as text: ``@{avg=5; med=4}``.
_FLATTENED = re.compile(r"@\{|System\.\w")


class InputFileError(RecordError, UsageError):
    """A file that was given or recorded cannot be used; the message is ``file: reason``.

    It is both: a record that is not whole, and on a command line bad usage (exit code 2).
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def read_bytes(path: Path) -> bytes:
    """Read a whole file, unpacking gzip by its first two bytes and not by its name.

    Text comes as UTF-8 without a byte order mark, in whichever Unicode form it stands in the file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputFileError(path, "there is no such file") from error
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
            raise InputFileError(path, f"unpacks to more than {most} bytes: no generator writes such a file; unpack it")
    try:
        data = as_utf8(data)
    except NotTextError as error:
        raise InputFileError(path, str(error)) from None
    if not data or data.isspace():
        raise InputFileError(path, "the file is empty")
    return data


def text_in(data: bytes, path: Path) -> str:
    """The text of a file that was read."""
    try:
        return text_of(data)
    except NotTextError as error:
        raise InputFileError(path, str(error)) from None


def read_text(path: Path) -> str:
    """Read a whole text, gzip or plain."""
    return text_in(read_bytes(path), path)


def shown(line: bytes | str) -> str:
    """A line as a message shows it."""
    return shortened(line.decode("utf-8", errors="replace") if isinstance(line, bytes) else line, 80)


@dataclass(frozen=True)
class Fields:
    """An object of a file."""

    data: Mapping[str, Any]
    path: Path  # for messages
    what: str  # what the file should be, as in ``fortio result``
    name: str = ""  # what the object is called in the file; empty for the whole

    def broken(self, reason: str) -> InputFileError:
        """The error that says what is wrong with the file; to be raised."""
        return InputFileError(self.path, f"is not a whole {self.what}: {reason}")

    def number(self, name: str) -> float | None:
        """A finite number, also one that is written as text."""
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
        """A whole number, also one that is written as text."""
        value = self.data.get(name)
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
            return int(value)
        number = self.number(name)
        if number is not None and (number != int(number) or abs(number) >= _LARGEST):
            raise self._odd(name, value, "a whole number")
        return None if number is None else int(number)

    def text(self, name: str) -> str | None:
        """Text that is not empty."""
        value: str | None = self._shaped(name, str, "text")
        return value or None

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value: bool | None = self._shaped(name, bool, "true or false")
        return value

    def counts(self, name: str) -> dict[str, int]:
        """An object of whole numbers from 0 on; empty where there is none."""
        inner = self.inside(name)
        counted = {str(key): inner.integer(key) or 0 for key in inner.data}
        for key, count in counted.items():
            if count < 0:
                raise self.broken(f"{shortened(key)} of {name} is {count}, less than none")
        return counted

    def inside(self, name: str) -> Fields:
        """An object in this one; without fields where there is none."""
        return Fields(self._shaped(name, dict, "an object") or {}, self.path, self.what, name)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; empty where there is none."""
        items = self._shaped(name, list, "a list of objects") or []
        for place, item in enumerate(items):
            if not isinstance(item, dict):
                raise self._odd(f"{name}[{place}]", item, "an object")
        return [Fields(item, self.path, self.what, name) for item in items]

    def _shaped(self, name: str, kind: type, wanted: str) -> Any:
        """A value of one kind; None where there is none, or null."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._odd(name, value, wanted)
        return value

    def _odd(self, name: str, value: Any, wanted: str) -> InputFileError:
        """The error that says that a field is not what it should be, by its value, or by its kind where it is large."""
        called = f"{name} of {self.name}" if self.name else name
        kinds = {dict: "an object", list: "a list"} | ({str: "text"} if "object" in wanted else {})
        shown = next((words for kind, words in kinds.items() if isinstance(value, kind)), shortened(value))
        flattened = isinstance(value, str) and _FLATTENED.match(value)
        how = " (PowerShell: ConvertTo-Json -Depth 10)" if flattened else ""
        return self.broken(f"{called} is {shown}, not {wanted}{how}")
