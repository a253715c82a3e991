"""A study that is divided over several clusters or machines: one plan, and each place runs blocks of its own.

A block is never divided: what is compared within it shares its place. So the place is one more thing that blocks take
out, and nothing else is needed for the contrasts. Which blocks a place runs follows from the plan alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshtrial.errors import UsageError

_FORM = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})", re.ASCII)


@dataclass(frozen=True)
class Part:
    """One of ``of`` parts of a study, by its number from 1.

    Examples
    --------
    >>> [list(Part(number, 3).blocks(10)) for number in (1, 2, 3)]
    [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``1/3``.

        Raises
        ------
        UsageError
        """
        found = _FORM.fullmatch(text.strip())
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"part = {text[:40]!r}: allowed is a number and how many parts there are, e.g. 1/3")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def blocks(self, total: int) -> range:
        """Its blocks out of this many: neighbours, the first parts one more where they do not divide evenly.

        Raises
        ------
        UsageError
            Where there are fewer blocks than parts.
        """
        if total < self.of:
            raise UsageError(f"part = {self}: {total} blocks cannot be divided into {self.of} parts")
        size, more = divmod(total, self.of)
        first = (self.number - 1) * size + min(self.number - 1, more)
        return range(first + 1, first + 1 + size + (self.number <= more))
