"""Signals that end a process become an exception, so that every ``finally`` on the way out runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that every ``finally`` on the way out runs.

    A background job has SIGINT ignored and is ended by SIGTERM, whose default ends Python at once.
    Outside the main thread, where handlers cannot be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_interrupt(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {signal.Signals(number).name}")

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in numbers:
        previous[number] = signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
