"""Poll until a condition holds, and retry after temporary errors."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(poll: Callable[[], T], timeout_s: float, every_s: float, done: Callable[[T], object] = bool) -> T:
    """Call ``poll`` until its result is done or time is over, and return the last result, which the caller checks.

    It is called at least once and never cut short; its exceptions are raised.
    """
    deadline = time.monotonic() + timeout_s
    while not done(result := poll()) and time.monotonic() <= deadline:
        time.sleep(every_s)
    return result


def retried(
    work: Callable[[], T], is_temporary: Callable[[Exception], bool], patience_s: float, every_s: float = 0.5
) -> T:
    """Return the result of ``work``, repeated after temporary errors until patience is over; then they are raised."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except Exception as error:
            if not is_temporary(error) or time.monotonic() > deadline:
                raise
        time.sleep(every_s)
