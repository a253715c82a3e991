"""One JSON object of somebody else's file, read field by field.

Opinion: what is not there is None; what is there and makes no sense is refused by its name, never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshtrial.load.files import InputFileError
from meshtrial.typed import shortened

# No generator counts further than in 64 bits.
_LARGEST = 2**63


@dataclass(frozen=True)
class Fields:
    """An object of a file."""

    data: Mapping[str, Any]
    path: Path  # for messages
    what: str  # what the file should be, as in ``fortio result``

    def broken(self, reason: str) -> InputFileError:
        """The error that says what is wrong with the file; to be raised."""
        return InputFileError(self.path, f"is not a whole {self.what}: {reason}")

    def number(self, name: str) -> float | None:
        """A finite number, also one that is written as text."""
        value = self.data.get(name)
        if value is None:
            return None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.broken(f"{name} is {shortened(value)}, not a number") from None
        return number

    def integer(self, name: str) -> int | None:
        """A whole number, also one that is written as text."""
        value = self.data.get(name)
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
            return int(value)
        number = self.number(name)
        if number is not None and (number != int(number) or abs(number) >= _LARGEST):
            raise self.broken(f"{name} is {shortened(value)}, not a whole number")
        return None if number is None else int(number)

    def text(self, name: str) -> str | None:
        """Text that is not empty."""
        value = self.data.get(name)
        return value if isinstance(value, str) and value else None

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.data.get(name)
        return value if isinstance(value, bool) else None

    def counts(self, name: str) -> dict[str, int]:
        """An object of whole numbers from 0 on; empty where there is none."""
        value = self.data.get(name)
        if not isinstance(value, dict):
            return {}
        inner = self.inside(name)
        counted = {str(key): inner.integer(key) or 0 for key in value}
        for key, count in counted.items():
            if count < 0:
                raise self.broken(f"{shortened(key)} of {name} is {count}, less than none")
        return counted

    def inside(self, name: str) -> Fields:
        """An object in this one; without fields where there is none."""
        value = self.data.get(name)
        return Fields(value if isinstance(value, dict) else {}, self.path, self.what)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; empty where there is none."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.broken(f"{name} is no list of objects")
        return [Fields(item, self.path, self.what) for item in value]
