"""Wait for a quiet machine: before the first run, and before failed runs are repeated.

What disturbed a run is often still there when the run is repeated, and a second failure costs the block. So other
programs are watched for two seconds. While they use more CPU than a run tolerates, the study waits, for at most half a
minute. It then continues in any case, and the run checks decide whether the runs are valid.
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
_SHORTEST_S = 0.5  # the kernel counts CPU time in hundredths of a second
# Environment variable that replaces PATIENCE_S; 0 disables the watch.
PATIENCE = "MESHTRIAL_PATIENCE_S"


@dataclass(frozen=True)
class Waited:
    """How long runs waited for a quiet machine; share of all cores used by other programs before and after."""

    seconds: float
    before: float
    after: float

    def to_dict(self) -> dict[str, float]:
        """Return plain data for JSON."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def patience_s() -> float:
    """Return how long a study waits for a quiet machine; UsageError if the environment variable is invalid."""
    text = os.environ.get(PATIENCE) or f"{PATIENCE_S:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{PATIENCE}={text[:40]}: must be a number of seconds; 0 disables the watch")
    return seconds


def wait_for_quiet(
    watch: Watch,
    limit: float,
    progress: ProgressCallback,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
) -> Waited | None:
    """Wait until other programs use at most ``limit`` or patience is over; return None if the machine was quiet."""
    first = now = watch(LOOK_S)
    if first.share <= limit:
        return None
    progress(f"other programs use {_usage(first)}; runs fail above {limit:.0%}; waiting for up to {span(patience_s)}")
    began = clock()
    while now.share > limit and (remaining_s := began + patience_s - clock()) >= _SHORTEST_S:
        now = watch(min(LOOK_S, remaining_s))
    waited_s = clock() - began
    if now.share <= limit:
        progress(f"quiet after {span(waited_s)}: other programs use {now.share:.0%}")
    else:
        progress(f"not quiet after {span(waited_s)}: other programs use {_usage(now)}; continuing, runs may fail")
    return Waited(waited_s, first.share, now.share)


def _usage(others: Others) -> str:
    programs = [f"{one.name} (pid {one.pid}) {one.share:.0%}" for one in others.busiest if one.share >= 0.005]
    if 2 * others.unseen >= others.share:
        programs.append(f"programs that are not visible here {others.unseen:.0%}")
    return f"{others.share:.0%} of the machine's CPU time" + (f" ({', '.join(programs)})" if programs else "")
