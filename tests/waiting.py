"""How a test waits for what another thread or process does: until it is done, with an end for one that never is."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Poll; the end is for what never comes, and far beyond what a busy machine takes."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {limit_s:g} s"
        time.sleep(0.01)
