"""Signals that end a process become an exception, so that every ``finally`` on the way out runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# How soon an interruption comes again that was swallowed.
AGAIN_S = 0.1


def end_tasks() -> None:
    """Cancel what waits in this thread's event loop, and take note of how it ends: nobody else will ask.

    An interrupted loop keeps the tasks of the call that was interrupted, and goes on with them when it is run again:
    that of a notebook's cell then finds its kernel dead.
    """
    import asyncio

    with suppress(RuntimeError):  # no loop runs
        for task in asyncio.all_tasks(asyncio.get_running_loop()):
            task.add_done_callback(_noted)
            task.cancel()


def _noted(task: Any) -> None:
    if not task.cancelled():
        task.exception()


@contextmanager
def interruptible(first: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt as SIGINT is.

    `first` is called before it is raised. A background job has SIGINT ignored and is ended by SIGTERM, whose default
    ends Python at once. In a finaliser, or in what Python calls around a fork, an exception is only printed: then the
    signal comes again. Outside the main thread, where handlers cannot be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    again: list[threading.Timer] = []
    came = signal.SIGTERM

    def raise_interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = signal.Signals(number)
        first()
        raise KeyboardInterrupt(f"signal {came.name}")

    def swallowed(what: Any) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            printed(what)
            return
        again.append(threading.Timer(AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, came)))
        again[-1].start()

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    printed, sys.unraisablehook = sys.unraisablehook, swallowed
    previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in numbers:
        previous[number] = signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        sys.unraisablehook = printed
        for timer in again:
            timer.cancel()
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
