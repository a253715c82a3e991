"""What is changed while requests are under way, and how a request tells which state of it it met.

Two versions of the application answer with a status of their own (200 and 202), and whoever is not let in gets neither:
so every single request says which configuration it was carried by, behind any data plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How a request was answered.
FIRST, SECOND, REFUSED = "first version", "second version", "refused"
SECOND_STATUS = "202"


@dataclass(frozen=True)
class ChangeStep:
    """One change, and what requests have to tell of it."""

    change: str  # which of :data:`CHANGES`
    on: bool  # away from the state that was deployed; else back to it
    name: str  # of its responses: ``obeyed_all_<name>_s``
    before: str
    after: str

    @property
    def failing(self) -> bool:
        """Whether requests are meant to fail before it or after."""
        return REFUSED in (self.before, self.after)


def _both_ways(change: str, there: str, back: str, after: str) -> tuple[ChangeStep, ChangeStep]:
    return ChangeStep(change, True, there, FIRST, after), ChangeStep(change, False, back, after, FIRST)


CHANGES: dict[str, tuple[ChangeStep, ChangeStep]] = {
    "authorization": _both_ways("authorization", "deny", "allow", REFUSED),
    "weight": _both_ways("weight", "weight", "weight", SECOND),
    "endpoints": _both_ways("endpoints", "endpoints", "endpoints", SECOND),
}
# What a reader sees of each name.
LABELS = {
    "deny": "denial",
    "allow": "permission",
    "weight": "route's weight",
    "endpoints": "exchanged endpoint",
}


def steps(changes: Sequence[str], cycles: int = 1) -> tuple[ChangeStep, ...]:
    """What is changed one after another: each change there and back, and all of them again in every cycle."""
    return tuple(step for change in changes for step in CHANGES[change]) * cycles


def names(changes: Sequence[str]) -> tuple[str, ...]:
    """Names of the responses that these changes have, each once."""
    return tuple(dict.fromkeys(step.name for step in steps(changes)))
