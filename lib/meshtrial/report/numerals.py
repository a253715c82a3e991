"""Numbers for a reader: significant digits, thousands apart, a unit that stays on its line, a sign where it matters."""

from __future__ import annotations

import math

MINUS = "−"
TIMES = "×"
NBSP = "\u00a0"  # a number keeps its unit on its line


def number(value: float | None, digits: int = 3, most: int = 12) -> str:
    """Significant digits without an exponent, at most so many decimals; thousands set apart."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.{digits}g}"))))
    decimals = min(most, max(0, digits - 1 - size))
    text = f"{abs(value):,.{decimals}f}".replace(",", "\u202f")
    if not text.strip("0."):
        return "0"
    return (MINUS if value < 0 else "") + text


def count(value: float) -> str:
    """A whole number, thousands set apart."""
    return f"{value:,.0f}".replace(",", "\u202f").replace("-", MINUS)


def signed(value: float | None, digits: int = 3, most: int = 12) -> str:
    """A difference: its sign is always written."""
    text = number(value, digits, most)
    return text if value is None or not value > 0 or text == "0" else "+" + text


def plain(value: float) -> str:
    """A declared number as it was declared: 5, 0.05, 2 000."""
    return f"{value:,.10g}".replace(",", "\u202f").replace("-", MINUS)


def percent(share: float | None, digits: int = 3) -> str:
    """A measured share as a percentage."""
    return "–" if share is None else f"{number(100 * share, digits)}{NBSP}%"


def rounded_percent(share: float) -> str:
    """A margin in force: 5 %, 89.3 %; a floor can make it any number."""
    return f"{plain(float(f'{100 * share:.3g}'))}{NBSP}%"


def declared_percent(share: float) -> str:
    """A declared share as it was declared: 5 %, not 5.00 %."""
    return f"{plain(100 * share)}{NBSP}%"


def probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def equation(symbol: str, p: float) -> str:
    """``p = 0.0039`` or ``p < 0.0001``, on one line."""
    text = probability(p)
    return f"{symbol} {text}".replace(" ", NBSP) if text.startswith("<") else f"{symbol}{NBSP}={NBSP}{text}"


def duration(seconds: float) -> str:
    """A span of time, e.g. ``5 min 12 s``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{number(seconds, most=1).removesuffix('.0')} s"


def mebibytes(value: float | None) -> str:
    """Bytes as MiB, or GiB where that reads better."""
    if value is None:
        return "–"
    return f"{number(value / 2**30)} GiB" if value >= 4 * 2**30 else f"{number(value / 2**20)} MiB"


def listing(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]
