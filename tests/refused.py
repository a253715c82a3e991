"""How a test asks for an error: by its kind and the values that it names. One test by message holds the words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(
    kind: type[Exception], *values: object, words: str | None = None
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block ends in an error of just this kind, in one line that names these values; ``words`` is the whole line.

    A value is what a program knows and a sentence does not change: a name, a number, a path, what is allowed. So it has
    no blanks, and it stands in the line as a whole, not inside a longer word.
    """
    with pytest.raises(kind) as caught:
        yield caught
    line = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in line
    assert names(line, *values)
    if words is not None:
        assert line == words


def names(line: str, *values: object) -> bool:
    """Whether a line names each of these values."""
    for value in map(str, values):
        assert value, "an empty value is in every line"
        assert not re.search(r"\s", value), f"{value!r} is a part of a sentence; hold the whole of it, once"
    return all(re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", line) for value in values)
