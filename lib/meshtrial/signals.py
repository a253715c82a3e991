"""Signals that end a process become an exception, so that every ``finally`` on the way out runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_caught = False


def check() -> None:
    """Raise an interruption again that was swallowed: in a finaliser or a callback Python only prints it."""
    if _caught:
        raise KeyboardInterrupt("a signal came earlier")


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt as SIGINT is, and remember for :func:`check` that one came.

    A background job has SIGINT ignored and is ended by SIGTERM, whose default ends Python at once.
    Outside the main thread, where handlers cannot be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    global _caught
    _caught = False

    def raise_interrupt(number: int, _frame: FrameType | None) -> None:
        global _caught
        _caught = True
        raise KeyboardInterrupt(f"signal {signal.Signals(number).name}")

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in numbers:
        previous[number] = signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        _caught = False
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
