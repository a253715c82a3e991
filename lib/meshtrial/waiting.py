"""Looking again until something is so, and trying again what may pass: the one place that sleeps between two looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], timeout_s: float, every_s: float, done: Callable[[T], object] = bool) -> T:
    """What the last look saw: the first that is done, or the one after which the time was over.

    Whoever must not go on without it asks what came back; a look that raises ends the waiting. There is one look at
    least, and none is cut short; enough is anything true by default.
    """
    deadline = time.monotonic() + timeout_s
    while not done(seen := look()) and time.monotonic() <= deadline:
        time.sleep(every_s)
    return seen


def retried(work: Callable[[], T], may_pass: Callable[[Exception], bool], patience_s: float, every_s: float = 0.5) -> T:
    """What the work returns, done again after errors that may pass, until patience is over: then they are raised."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except Exception as error:
            if not may_pass(error) or time.monotonic() > deadline:
                raise
        time.sleep(every_s)
