import time
from collections.abc import Callable

import pytest


class Clock:
    """A clock that advances only when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        # Called with the seconds when somebody waits.
        self.meanwhile: Callable[[float], object] = lambda seconds: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    monkeypatch.setattr(time, "sleep", made.sleep)
    return made
