"""How a test asks for an error: by its kind and the values that it names. One test by message holds its words."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(
    kind: type[Exception], words: str | None = None, *, names: Iterable[object] = ()
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block ends in an error of just this kind, which is one line: these words, where they are given.

    The same message is elsewhere asked for by what it names: values that stand in the line, each as a whole. They are
    what the program knows and rewording does not change (a parameter, a number, a path), none longer than a word.
    """
    with pytest.raises(kind) as caught:
        yield caught
    line = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in line
    if words is not None:
        assert line == words
    assert missing(line, names) == []


def missing(line: str, names: Iterable[object]) -> list[str]:
    """Those of some values that a line does not name."""
    values = [str(name) for name in names]
    parts = [value for value in values if not value or re.search(r"\s", value)]
    assert not parts, f"{parts}: parts of a sentence; hold the whole of it, once"
    return [value for value in values if not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", line)]
