"""Wait in a test until another thread or process is done, with a time limit."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Poll; the limit only ends endless waits and is far above the needs of a busy machine."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {limit_s:g} s"
        time.sleep(0.01)
