"""Turn signals that end a process into an exception, so that every ``finally`` runs."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# After this time an interruption that was swallowed is raised again.
AGAIN_S = 0.1


def end_tasks() -> None:
    """Cancel the tasks in this thread's event loop, and retrieve their exceptions, so that none is logged.

    An interrupted loop keeps its tasks and would continue them when it is run again. The task of a notebook's cell
    would then find its kernel dead.
    """
    import asyncio

    with suppress(RuntimeError):  # no loop is running
        for task in asyncio.all_tasks(asyncio.get_running_loop()):
            task.add_done_callback(_retrieve)
            task.cancel()


def _retrieve(task: Any) -> None:
    if not task.cancelled():
        task.exception()


@contextmanager
def interruptible(first: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP as for SIGINT, after calling ``first``.

    A background job ignores SIGINT and is ended by SIGTERM, which by default ends Python at once. In a finaliser, or
    in Python's callbacks around a fork, an exception is only printed; the signal is then sent again. Outside the main
    thread, where handlers cannot be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    again: list[threading.Timer] = []
    received = signal.SIGTERM

    def raise_interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received = signal.Signals(number)
        first()
        raise KeyboardInterrupt(f"signal {received.name}")

    def send_again(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
            return
        again.append(threading.Timer(AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, received)))
        again[-1].start()

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    hook, sys.unraisablehook = sys.unraisablehook, send_again
    previous: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for number in numbers:
        previous[number] = signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for timer in again:
            timer.cancel()
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
