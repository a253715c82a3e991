"""The one exception root, and how a command ends. A message says what went wrong, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """How a command ends: its exit code, and what the code means to whoever started it."""

    DONE = 0, "done; a study gave its verdicts"
    FAILED = 1, "failed"
    USAGE = 2, "bad usage: nothing was started"
    EXCLUDED = (
        3,
        "the study is complete, but a block or a treatment was excluded for failed runs, or no verdict was given; "
        "with --allow-excluded only the latter",
    )
    GATE = 4, "a gate fired"
    INTERRUPTED = 130, "interrupted; what is recorded is kept"

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """The code with its meaning."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning = meaning
        return made


_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def plain(text: str) -> str:
    """A text without what colours it on a terminal: programs whose words are passed on may have coloured them."""
    return _ESCAPES.sub("", text)


class MeshtrialError(Exception):
    """Anything a user can mend; the command line prints its message alone, without a traceback.

    ``evidence`` is file name to text: what a message is too short for (events, logs). A run keeps it beside its own
    logs.
    """

    exit_code = Exit.FAILED

    def __init__(self, message: str = "", evidence: Mapping[str, str] | None = None) -> None:
        super().__init__(plain(message))
        self.evidence: Mapping[str, str] = dict(evidence or {})


class UsageError(MeshtrialError):
    """A parameter, a file or a combination that the user gave cannot be used."""

    exit_code = Exit.USAGE


class MissingToolError(MeshtrialError):
    """A binary, a package or a right that the work needs is not there."""


class TestbedError(MeshtrialError):
    """A deployment could not be made, used or removed."""

    __test__ = False  # the name looks like a test class to pytest


class RecordError(MeshtrialError):
    """A record is missing, truncated, foreign or altered."""


class GateError(MeshtrialError):
    """All is done and written, and the user's own gate does not let it pass."""

    exit_code = Exit.GATE


@contextmanager
def writing(path: Path, kind: type[MeshtrialError] = RecordError) -> Iterator[None]:
    """What the machine refuses while a file or folder is written, as one line of an error of this kind."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: cannot be written ({error.strerror}); check rights and free space") from None
