"""Tables of the pages, and the words in them."""

import re
from collections.abc import Iterable, Sequence


def under(text: str, heading: str, rows: Iterable[Sequence[str]]) -> str:
    """A page with these rows in the first table below a heading; the table's own head stays."""
    mark = f"{heading}\n"
    start = text.index(mark) + len(mark)
    before, after = text[:start], text[start:]
    made = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    found, count = re.subn(r"(?m)^(\|(?:-+\|)+\n)(?:\|.*\n)*", lambda head: head[1] + made, after, count=1)
    assert count, f"no table below {heading!r}"
    return before + found


def plain(text: str) -> str:
    """Words of the reports with the blanks of a text file."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")
