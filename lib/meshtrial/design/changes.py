"""Changes of the configuration under load, and how the response to a request shows which state it met.

Two versions of the application answer with different statuses (200 and 202), and a request that is denied gets neither.
So every response shows which configuration was in force for it, behind any data plane.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# How a request was answered.
FIRST, SECOND, REFUSED = "first version", "second version", "refused"
SECOND_STATUS = "202"


@dataclass(frozen=True)
class ChangeStep:
    """One change, and the responses that are expected before and after it."""

    change: str  # which of :data:`CHANGES`
    on: bool  # whether it leads away from the deployed state; otherwise back to it
    name: str  # of its responses: ``propagation_all_<name>_s``
    before: str
    after: str

    @property
    def failing(self) -> bool:
        """Whether requests are expected to fail before or after it."""
        return REFUSED in (self.before, self.after)


def _both_ways(change: str, there: str, back: str, after: str) -> tuple[ChangeStep, ChangeStep]:
    return ChangeStep(change, True, there, FIRST, after), ChangeStep(change, False, back, after, FIRST)


CHANGES: dict[str, tuple[ChangeStep, ChangeStep]] = {
    "authorization": _both_ways("authorization", "deny", "allow", REFUSED),
    "weight": _both_ways("weight", "weight", "weight", SECOND),
    "endpoints": _both_ways("endpoints", "endpoints", "endpoints", SECOND),
}
# The name of each change for readers.
LABELS = {
    "deny": "denial",
    "allow": "permission",
    "weight": "route's weight",
    "endpoints": "exchanged endpoint",
}


def steps(changes: Sequence[str], cycles: int = 1) -> tuple[ChangeStep, ...]:
    """Return the steps in their order: each change there and back, and all of them again in every cycle."""
    return tuple(step for change in changes for step in CHANGES[change]) * cycles


def names(changes: Sequence[str]) -> tuple[str, ...]:
    """Return the names that responses of these changes contain, each once."""
    return tuple(dict.fromkeys(step.name for step in steps(changes)))
