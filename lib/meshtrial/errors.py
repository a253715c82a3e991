"""The one exception root. A message says what went wrong, where, and what to do next."""


class MeshtrialError(Exception):
    """Anything a user can mend; the command line prints its message alone, without a traceback.

    Attributes
    ----------
    exit_code : int
        What the command exits with: 1 failed, 2 bad usage.
    """

    exit_code = 1


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
