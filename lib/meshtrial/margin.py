"""What is too small to matter: the one margin that plans, tests and figures speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from meshtrial.errors import UsageError


@dataclass(frozen=True)
class Margin:
    """The largest change that nobody would act on; neither part is negative, nor are both zero."""

    relative: float  # change, 0.05 for 5 %
    # Absolute change in the response's stored unit, below which a relative change does not matter either (0.0001 s on a
    # p50 of 0.0005 s is 20 %); 0 for none
    floor: float = 0.0

    def __post_init__(self) -> None:
        good = 0 <= self.relative < 10 and 0 <= self.floor < math.inf
        if not good or self.relative + self.floor == 0:
            raise UsageError(
                f"margin {self.relative:g}, floor {self.floor:g}: a margin is a positive fraction below 10, or a "
                "positive floor in the response's unit, or both"
            )

    def ratio(self, baseline_median: float) -> float:
        """Upper bound of the ratio; the lower bound is its reciprocal, so swapping the treatments changes nothing."""
        if not baseline_median > 0:
            raise UsageError(
                f"a ratio needs a positive baseline median, got {baseline_median}; use the difference scale"
            )
        return 1 + max(self.relative, self.floor / baseline_median)

    def difference(self, baseline_median: float) -> float:
        """Largest difference in the response's unit; the bounds are minus and plus this.

        UsageError if the baseline is zero and no floor was declared.
        """
        size = max(self.relative * abs(baseline_median), self.floor)
        if not size > 0:
            raise UsageError(
                "the baseline is zero, so a relative margin means nothing: declare a floor in the response's unit"
            )
        return size


def read_margin(text: str, unit: str, where: str = "margin ", known: Margin | None = None) -> Margin:
    """Read ``5%``, ``0.2ms`` or ``5%,0.2ms``: a relative margin, for responses shown in ms an absolute floor, or both.

    ``where`` stands before the text in a message; of ``known`` stays the part that the text does not give, so that
    ``0ms`` takes a known floor away. What results must be a margin.
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
