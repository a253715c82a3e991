"""What a child says of its end: real processes, each a line of shell."""

from __future__ import annotations

import os
import signal

import pytest
from waiting import wait_for

from meshtrial.testbed.local.processes import Child
from meshtrial.testbed.local.sockets import free_ports


def child(folder, script: str) -> Child:
    return Child("component", ["sh", "-c", script], folder / "component.log")


@pytest.mark.parametrize(
    ("script", "state"),
    [("exit 0", "ended with code 0"), ("exit 3", "ended with code 3"), ("kill -9 $$", "ended by signal 9, Killed")],
)
def test_how_it_ended_is_said_in_words(script, state, tmp_path):
    made = child(tmp_path, script)
    made.wait(10)
    assert made.state() == state
    made.stop()


def test_while_it_runs_it_says_so(tmp_path):
    made = child(tmp_path, "sleep 60")
    try:
        assert made.state() == "running"
        os.kill(made.pid, signal.SIGTERM)
        made.wait(10)
        assert made.state() == "ended by signal 15, Terminated"
    finally:
        made.stop()


@pytest.mark.linux
def test_one_that_was_stopped_for_a_while_is_found_out_afterwards(tmp_path):
    made = child(tmp_path, "sleep 60")
    try:
        assert not made.paused()
        os.kill(made.pid, signal.SIGSTOP)
        wait_for(made.paused)
        os.kill(made.pid, signal.SIGCONT)
        wait_for(made.paused)
        assert not made.paused()
        assert made.state() == "running"
    finally:
        made.stop()


ENVOY = "echo '[2026][1][critical][main] [server.cc:449] error `no such sink`: {'; echo ' }'; echo ]; echo '}'"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (ENVOY, "[2026][1][critical][main] [server.cc:449] error `no such sink`: {"),
        ("for i in 1 2 3 4; do echo $i; done", "2 | 3 | 4"),
        ("true", "(no output)"),
        ("printf '%01000d' 0", "0" * 400),
    ],
)
def test_why_is_the_error_itself_and_no_bracket_behind_it(script, why, tmp_path):
    made = child(tmp_path, script)
    made.wait(10)
    assert made.why() == why
    made.stop()


@pytest.mark.linux  # elsewhere there is one loopback address
def test_free_ports_are_different_ones():
    # One after another, two of so many are the same in most tries: the kernel knows of some 28,000.
    assert len(set(free_ports("127.31.41.59", 500))) == 500
