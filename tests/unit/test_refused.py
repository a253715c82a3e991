"""What tests ask errors with fails where it should."""

import os

import pytest
import refused as asking
from refused import COLLECTED, missing, refused

from meshtrial import paths
from meshtrial.errors import MeshtrialError, UsageError

LINE = "blocks = 12: must be 0 to 10"


@pytest.mark.parametrize("asked", [{"words": LINE}, {"names": ["blocks", 12, 10]}, {"words": LINE, "names": [0]}])
def test_the_line_and_what_it_names_pass(asked: dict):
    with refused(UsageError, **asked):
        raise UsageError(LINE)


@pytest.mark.parametrize(
    ("kind", "asked", "line"),
    [
        (MeshtrialError, {}, LINE),  # a kind of it is another one
        (UsageError, {"words": "must be 0 to 10"}, LINE),
        (UsageError, {"names": ["blocks", 1]}, LINE),  # inside a number is not there
        (UsageError, {"names": ["must be"]}, LINE),
        (UsageError, {"names": [""]}, LINE),
        (UsageError, {}, f"{LINE}\nand more"),
    ],
)
def test_anything_else_fails(kind: type[Exception], asked: dict, line: str):
    with pytest.raises(AssertionError), refused(kind, **asked):
        raise UsageError(line)


def test_what_a_line_does_not_name_is_told():
    assert missing(LINE, ["blocks", "rps", 11, "must"]) == ["rps", "11"]


@pytest.mark.parametrize("known", [[], ["UsageError 2: blocks = 12: must be 0 to 11"]])
def test_a_line_that_is_not_the_reviewed_one_fails(monkeypatch: pytest.MonkeyPatch, known: list[str]):
    monkeypatch.delenv(COLLECTED, raising=False)
    monkeypatch.setattr(asking, "reviewed", lambda: {os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]: known})
    with pytest.raises(AssertionError, match=r"refusals\.txt"), refused(UsageError):
        raise UsageError(LINE)


@pytest.mark.skipif(COLLECTED in os.environ, reason="the file is being written")
def test_every_test_of_the_file_exists():
    tests = {test.partition("[")[0].partition("::")[::2] for test in asking.reviewed()}
    texts = {file: (paths.CHECKOUT / file).read_text() for file, _ in tests}
    assert [f"{file}::{name}" for file, name in tests if f"def {name}(" not in texts[file]] == []
