"""Messages about a child that ended: real processes, each one line of shell."""

import os
import signal

import pytest
from waiting import wait_for

from meshtrial.testbed.local.processes import Child
from meshtrial.testbed.local.sockets import free_ports


def child(folder, script: str) -> Child:
    return Child("component", ["sh", "-c", script], folder / "component.log")


ENVOY = "echo '[2026][1][critical][main] [server.cc:449] error `no such sink`: {'; echo ' }'; echo ]; echo '}'"


@pytest.mark.parametrize(
    ("script", "asked", "said"),
    [
        ("exit 0", Child.state, "ended with code 0"),
        ("exit 3", Child.state, "ended with code 3"),
        ("kill -9 $$", Child.state, "ended by signal 9, Killed"),
        # The error itself is the reason, without a bracket after it.
        (ENVOY, Child.why, "[2026][1][critical][main] [server.cc:449] error `no such sink`: {"),
        ("for i in 1 2 3 4; do echo $i; done", Child.why, "2 | 3 | 4"),
        ("true", Child.why, "(no output)"),
        ("printf '%01000d' 0", Child.why, "0" * 400),
    ],
)
def test_how_it_ended_and_why_is_said_in_words(script, asked, said, tmp_path):
    made = child(tmp_path, script)
    made.wait(10)
    assert asked(made) == said
    made.stop()


def test_its_folder_has_no_name_in_what_it_said(tmp_path):
    made = Child("component", ["sh", "-c", "echo in $PWD/x"], tmp_path / "component.log", tmp_path)
    made.wait(10)
    assert made.output() == "in ./x\n"
    assert made.tail() == "in ./x"
    made.stop()


def test_it_knows_no_proxy_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    made = child(tmp_path, "env | grep -ic _proxy=")
    made.wait(10)
    assert made.tail() == "0"
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


@pytest.mark.linux  # other systems have one loopback address
def test_free_ports_are_different_ones():
    # Among 500 ports drawn independently, two are usually equal: the kernel has about 28,000.
    assert len(set(free_ports("127.31.41.59", 500))) == 500
