"""The one exception root. A message says what went wrong, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def plain(text: str) -> str:
    """A text without what colours it on a terminal: programs whose words are passed on may have coloured them."""
    return _ESCAPES.sub("", text)


class MeshtrialError(Exception):
    """Anything a user can mend; the command line prints its message alone, without a traceback.

    ``evidence`` is file name to text: what a message is too short for (events, logs). A run keeps it beside its own
    logs.
    """

    exit_code = 1  # of the command: 1 failed, 2 bad usage, 4 a gate fired

    def __init__(self, message: str = "", evidence: Mapping[str, str] | None = None) -> None:
        super().__init__(plain(message))
        self.evidence: Mapping[str, str] = dict(evidence or {})


class UsageError(MeshtrialError):
    """A parameter, a file or a combination that the user gave cannot be used."""

    exit_code = 2


class MissingToolError(MeshtrialError):
    """A binary, a package or a right that the work needs is not there."""


class TestbedError(MeshtrialError):
    """A deployment could not be made, used or removed."""

    __test__ = False  # the name looks like a test class to pytest


class RecordError(MeshtrialError):
    """A record is missing, truncated, foreign or altered."""


class GateError(MeshtrialError):
    """All is done and written, and the user's own gate does not let it pass."""

    exit_code = 4
