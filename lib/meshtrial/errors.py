"""The root of all exceptions, and exit codes. A message states where and what went wrong, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of a command, with their meaning."""

    DONE = 0, "done; a study gave verdicts"
    FAILED = 1, "failed"
    USAGE = 2, "invalid usage; nothing was started"
    EXCLUDED = (
        3,
        "the study is complete, but failed runs excluded a block or a treatment, or no verdict was given; "
        "with --allow-excluded only the latter",
    )
    GATE = 4, "the gate fired"
    INTERRUPTED = 130, "interrupted; recorded runs are kept"

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """Create a code with its meaning."""
        self = int.__new__(cls, code)
        self._value_ = code
        self.meaning = meaning
        return self


_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def plain(text: str) -> str:
    """Return a text without terminal colours, which may be in the messages of other programs."""
    return _ESCAPES.sub("", text)


class MeshtrialError(Exception):
    """A failure that a user can correct; the command line prints its message without a traceback.

    ``evidence`` maps file names to longer texts, such as events and logs, which a run stores with its own logs.
    """

    exit_code = Exit.FAILED

    def __init__(self, message: str = "", evidence: Mapping[str, str] | None = None) -> None:
        super().__init__(plain(message))
        self.evidence: Mapping[str, str] = dict(evidence or {})


class UsageError(MeshtrialError):
    """A parameter, a file or a combination of the user is invalid."""

    exit_code = Exit.USAGE


class MissingToolError(MeshtrialError):
    """A required program, package or permission is missing."""


class TestbedError(MeshtrialError):
    """A deployment could not be created, used or removed."""

    __test__ = False  # the name looks like a test class to pytest


class RecordError(MeshtrialError):
    """A record is missing, truncated, foreign or altered."""


class GateError(MeshtrialError):
    """All results are written, and the user's gate fired."""

    exit_code = Exit.GATE


@contextmanager
def writing(path: Path, kind: type[MeshtrialError] = RecordError) -> Iterator[None]:
    """Create the folder in which ``path`` is written, and convert an OSError into an error of this kind."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise kind(f"{path}: cannot be written ({error.strerror}); check permissions and free space") from None
