"""Signals that end a process: raised once, and again where somebody swallowed them."""

import contextlib
import signal

import pytest

from meshtrial import signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_swallowed_signal_is_raised_again(number):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signals.interruptible():
            signals.check()
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(number)
            with pytest.raises(KeyboardInterrupt):
                signals.check()
        signals.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_background_job_goes_on_ignoring_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.interruptible():
            signal.raise_signal(signal.SIGINT)
            signals.check()
    finally:
        signal.signal(signal.SIGINT, before)
