"""The margin: the largest change that does not matter, for plans, tests and figures."""

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


def read_part(text: str, unit: str, scale: float) -> dict[str, float]:
    """Return what ``5%``, ``0.2ms`` or ``5% of 0.8ms`` declares: relative part, floor, or both; else ValueError.

    Amounts are written in the response's `unit`, also without what follows its stroke (``us`` for ``us/request``), and
    stored divided by `scale`. A share of a level is a fixed amount: it leaves no relative part.
    """
    share, is_share, level = text.replace(" ", "").partition("%")
    if is_share and not level:
        return {"relative": float(share) / 100}
    amount = level.removeprefix("of") if is_share else share
    written = next(name for name in (unit, unit.partition("/")[0], amount) if amount.endswith(name))
    if not written or (is_share and not level.startswith("of")):
        raise ValueError(text)
    size = float(amount.removesuffix(written)) / scale
    if is_share and not float(share) * size > 0:
        raise ValueError(text)
    return {"relative": 0.0, "level": float(share) / 100 * size} if is_share else {"floor": size}


def read_margin(
    text: str, unit: str, where: str = "margin ", known: Margin | None = None, *, scale: float = 1e3
) -> Margin:
    """Read ``5%``, ``0.2ms`` or ``5%,0.2ms``: a relative margin, an absolute floor, or both; see `read_part`.

    ``5% of 0.8ms`` is a floor too, unless a larger one is in force. ``where`` precedes the text in a message. The parts
    that the text leaves out are taken from ``known``; ``0ms`` removes a known floor. UsageError if the result is not a
    margin.
    """
    parts: dict[str, float] = {}
    try:
        for item in text.split(","):
            read = read_part(item, unit, scale)
            if parts.keys() & read.keys():
                raise ValueError(item)
            parts |= read
        level, floor = parts.pop("level", 0.0), parts.get("floor", known.floor if known else 0.0)
        parts["floor"] = max(level, floor)
        return replace(known, **parts) if known else Margin(**({"relative": 0.0} | parts))
    except (ValueError, UsageError):
        one = f"0.2{unit.partition('/')[0]}"
        allowed = "e.g. 5%" + (f" or {one} or 5%,{one} or 5% of {one}" if unit else "")
        raise UsageError(f"{where}{text}: must be {allowed}") from None
