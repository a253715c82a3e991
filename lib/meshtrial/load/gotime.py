"""Times in Go's formats, to the nanosecond."""

import re
from datetime import datetime, timedelta
from decimal import Decimal

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|μs|ns|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def parse_time_ns(text: str) -> int | None:
    """Parse RFC 3339 with up to nine decimals; return nanoseconds since 1970, or None if it is no such time."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone == 'Z' else zone}")
    except ValueError:  # month 13
        return None
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    whole = (moment - epoch) // timedelta(seconds=1)
    return whole * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def parse_duration_s(text: str) -> float | None:
    """Parse Go's ``1m30.5s``; return seconds, or None for anything else (``until stop``, ``exactly 5 calls``)."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def seconds(value: float) -> str:
    """Format seconds as an exact Go duration without an exponent: ``2.5s``."""
    return plain(value) + "s"


def plain(value: float) -> str:
    """Format a number as the shortest decimal that reads back as the same number, without an exponent."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
