"""What tests ask errors with fails where it should."""

import pytest
from refused import missing, refused

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
