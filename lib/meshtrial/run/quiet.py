"""Waiting for a quiet machine: before the first run, and before runs that failed are repeated.

What disturbed a run is often still there when the run is repeated, and a second failure costs the block. So the machine
is watched for two seconds; while other programs use more than a run may have beside it, the study waits, for half a
minute at the most. It then goes on either way: whether the runs count is decided by their own checks.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from meshtrial.errors import UsageError
from meshtrial.run.progress import ProgressCallback, span
from meshtrial.testbed.base import Others, Watch

LOOK_S = 2.0
PATIENCE_S = 30.0
_SHORTEST_S = 0.5  # of a look: the kernel counts in hundredths of a second
# Seconds of patience in its place; 0 does not watch.
PATIENCE = "MESHTRIAL_PATIENCE_S"


@dataclass(frozen=True)
class Waited:
    """How long runs waited for a quiet machine, and what other programs used before and after; shares of all cores."""

    seconds: float
    before: float
    after: float

    def to_dict(self) -> dict[str, float]:
        """Plain data, ready for JSON."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def patience_s() -> float:
    """How long a study waits for a quiet machine."""
    text = os.environ.get(PATIENCE) or f"{PATIENCE_S:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{PATIENCE}={text[:40]}: must be seconds, 0 or more; 0 does not watch the machine")
    return seconds


def wait_for_quiet(
    watch: Watch,
    limit: float,
    tell: ProgressCallback,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
) -> Waited | None:
    """Wait until other programs use no more than the limit, or patience is over; None where the machine is quiet."""
    first = now = watch(LOOK_S)
    if first.share <= limit:
        return None
    tell(f"other programs use {_said(first)}; a run fails above {limit:.0%}: waiting for up to {span(patience_s)}")
    began = clock()
    while now.share > limit and (remaining_s := began + patience_s - clock()) >= _SHORTEST_S:
        now = watch(min(LOOK_S, remaining_s))
    waited_s = clock() - began
    if now.share <= limit:
        tell(f"quiet after {span(waited_s)}: other programs use {now.share:.0%}")
    else:
        tell(f"not quiet after {span(waited_s)}: other programs use {_said(now)}; the study goes on, and runs may fail")
    return Waited(waited_s, first.share, now.share)


def _said(others: Others) -> str:
    """Their share, and which they are as far as they can be seen."""
    named = [f"{one.name} (pid {one.pid}) {one.share:.0%}" for one in others.busiest if one.share >= 0.005]
    if 2 * others.unseen >= others.share:
        named.append(f"programs that cannot be seen from here {others.unseen:.0%}")
    return f"{others.share:.0%} of the machine's CPU time" + (f" ({', '.join(named)})" if named else "")
