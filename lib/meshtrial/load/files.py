"""The content of an input file, gzip or plain, with one clear sentence where it cannot be read."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from meshtrial.decoding import NotTextError, as_utf8, text_of
from meshtrial.errors import RecordError, UsageError

GZIP_MAGIC = b"\x1f\x8b"
LONGEST_S = 1e6  # no answer takes eleven days, whatever a file says
# A log of requests shrinks to a tenth or a thirtieth; what grows by more when it is read is no result of anything.
_MOST_BYTES, _MOST_TIMES = 4 * 2**30, 200
_FEW_BYTES = 2**26  # so much is never too much


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
