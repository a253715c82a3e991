"""The helper for errors in tests fails when it should."""

import os

import pytest
import refused as asking
from refused import COLLECTED, missing, refused

from meshtrial.errors import MeshtrialError, UsageError

LINE = "blocks = 12: must be 0 to 10"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that the file has for this test."""
    lines = [f"UsageError 2: {LINE}"]
    monkeypatch.delenv(COLLECTED, raising=False)
    monkeypatch.setattr(asking, "reviewed", lambda: {os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]: lines})
    return lines


@pytest.mark.usefixtures("known")
def test_the_reviewed_line_passes_as_often_as_the_file_has_it():
    with refused(UsageError, names=["blocks", 12, 10]):
        raise UsageError(LINE)
    with pytest.raises(AssertionError, match=r"refusals\.txt"), refused(UsageError):
        raise UsageError(LINE)


def test_another_line_fails(known: list[str]):
    known[0] += "0"
    with pytest.raises(AssertionError, match=r"refusals\.txt"), refused(UsageError):
        raise UsageError(LINE)


@pytest.mark.usefixtures("known")
def test_anything_else_fails():
    for kind, names, line in (
        (MeshtrialError, [], LINE),  # a subclass is another kind
        (UsageError, ["blocks", 1], LINE),  # a number inside another number does not count
        (UsageError, ["must be"], LINE),
        (UsageError, [""], LINE),
        (UsageError, [], f"{LINE}\nand more"),
    ):
        with pytest.raises(AssertionError), refused(kind, names=names):
            raise UsageError(line)
    assert missing(LINE, ["blocks", "rps", 11, "must"]) == ["rps", "11"]
