"""The margin: the largest change that does not matter, for plans, tests and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from meshtrial.errors import UsageError


@dataclass(frozen=True)
class Margin:
    """The largest change that does not matter; no part is negative, and not both are zero."""

    relative: float  # change, 0.05 for 5 %
    # Absolute change in the response's stored unit: smaller changes do not matter, whatever their relative size
    # (0.0001 s on a p50 of 0.0005 s is 20 %). 0 for none.
    floor: float = 0.0

    def __post_init__(self) -> None:
        good = 0 <= self.relative < 10 and 0 <= self.floor < math.inf
        if not good or self.relative + self.floor == 0:
            raise UsageError(
                f"margin {self.relative:g}, floor {self.floor:g}: must be a positive fraction below 10, a positive "
                "floor in the response's unit, or both"
            )

    def ratio(self, baseline_median: float) -> float:
        """Return the upper bound of the ratio; the lower bound is its reciprocal, for symmetry between treatments."""
        if not baseline_median > 0:
            raise UsageError(
                f"a ratio needs a positive baseline median, got {baseline_median}; use the difference scale"
            )
        return 1 + max(self.relative, self.floor / baseline_median)

    def difference(self, baseline_median: float) -> float:
        """Return the largest difference in the response's unit; UsageError if baseline and floor are zero."""
        size = max(self.relative * abs(baseline_median), self.floor)
        if not size > 0:
            raise UsageError(
                "a relative margin of a zero baseline is meaningless; declare a floor in the response's unit"
            )
        return size


def read_margin(text: str, unit: str, where: str = "margin ", known: Margin | None = None) -> Margin:
    """Read ``5%``, ``0.2ms`` or ``5%,0.2ms``: a relative margin, for responses shown in ms an absolute floor, or both.

    ``where`` precedes the text in a message. The parts that the text leaves out are taken from ``known``; ``0ms``
    removes a known floor. UsageError if the result is not a margin.
    """
    parts: dict[str, float] = {}
    try:
        for item in text.replace(" ", "").split(","):
            if item.endswith("%") and "relative" not in parts:
                parts["relative"] = float(item[:-1]) / 100
            elif item.endswith("ms") and unit == "ms" and "floor" not in parts:
                parts["floor"] = float(item[:-2]) / 1e3
            else:
                raise ValueError(item)
        return replace(known, **parts) if known else Margin(**({"relative": 0.0} | parts))
    except (ValueError, UsageError):
        allowed = "e.g. 5%" + (" or 0.2ms or 5%,0.2ms" if unit == "ms" else "")
        raise UsageError(f"{where}{text}: must be {allowed}") from None
