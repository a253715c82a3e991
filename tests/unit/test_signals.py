"""Signals that end a process: raised once, and again where Python swallowed them."""

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import time

import pytest

from meshtrial import signals


def swallowed(number: int, wait_s: float = 0) -> None:
    """Send the signal inside a finaliser, and wait a little afterwards."""

    class Ends:
        def __del__(self) -> None:
            signal.raise_signal(number)

    Ends()
    time.sleep(wait_s)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_python_swallows_comes_again(number):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hook = sys.unraisablehook
    try:
        with signals.interruptible(), pytest.raises(KeyboardInterrupt, match=signal.Signals(number).name):
            swallowed(number, wait_s=60)
        assert sys.unraisablehook is hook
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_was_swallowed_does_not_outlive_what_it_was_to_end(monkeypatch):
    monkeypatch.setattr(signals, "AGAIN_S", 60)
    with signals.interruptible():
        swallowed(signal.SIGTERM)
    waiting = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert [thread for thread in waiting if not thread.finished.is_set()] == []


def test_a_background_job_goes_on_ignoring_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.interruptible():
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_waits_in_a_loop_that_is_interrupted_ends_and_is_not_complained_of(caplog):
    ended = []

    async def wait() -> None:
        await asyncio.Event().wait()

    async def cell() -> None:
        # As in nbclient: any lost reply is reported as a dead kernel.
        reply = asyncio.ensure_future(wait())
        try:
            await reply
        except asyncio.CancelledError:
            ended.append(reply.cancelled())
            raise RuntimeError("the kernel died") from None

    loop = asyncio.new_event_loop()
    with signals.interruptible(signals.end_tasks), contextlib.closing(loop):
        loop.call_later(0.01, signal.raise_signal, signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        loop.run_until_complete(asyncio.sleep(0.01))  # as at the kernel's end
    gc.collect()
    assert ended == [True]
    assert caplog.records == []


def test_an_interruption_where_no_loop_runs_is_raised_alone():
    with signals.interruptible(signals.end_tasks), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
