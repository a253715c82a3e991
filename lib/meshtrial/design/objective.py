"""A service-level objective: ``p99<10ms``, the latency that a rate must keep to count."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshtrial.errors import UsageError

_FORM = re.compile(r"p(?P<percent>\d{1,2}(?:\.\d{1,3})?)\s*<\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>us|µs|ms|s)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Objective:
    """A percentile of the latencies from the schedule, and what it must stay below.

    Attributes
    ----------
    q : float
        The quantile, 0.99 for p99.
    limit_s : float
    """

    q: float
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read ``p99<10ms``.

        Raises
        ------
        UsageError
            With what is allowed.
        """
        match = _FORM.fullmatch(text.strip())
        found = cls(float(match["percent"]) / 100, float(match["limit"]) * _SECONDS[match["unit"]]) if match else None
        if found is None or not (0.5 <= found.q < 1 and 0 < found.limit_s <= 3600):
            raise UsageError(f"objective = {text!r}: allowed is a percentile from p50 below a time, e.g. p99<10ms")
        return found

    @property
    def percentile(self) -> str:
        """``p99``."""
        return f"p{100 * self.q:.10g}"

    @property
    def text(self) -> str:
        """What :meth:`parse` reads."""
        return f"{self.percentile}<{1e3 * self.limit_s:.10g}ms"
