"""Forked sidecars cost as much as separately started ones, and end as reliably."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local.studies import PATIENCE_S
from waiting import wait_for

from meshtrial import native
from meshtrial.errors import TestbedError
from meshtrial.testbed.local import fleet as fleets
from meshtrial.testbed.local.fleet import Batch
from meshtrial.testbed.local.sockets import silent, wait_listening
from meshtrial.testbed.local.tiers import ADMIN, free_layout

COUNT = 4
# A compiler is optional, so without one there is nothing to test; CI must have one.
needs_forkserver = pytest.mark.skipif(
    native.forkserver() is None and os.environ.get("CI") != "true", reason="no C compiler here: meshtrial doctor"
)


@pytest.fixture
def bootstraps(tmp_path) -> tuple[list[str], list[str], Path]:
    """Return names, addresses and folder of Envoys that only have an admin interface."""
    layout = free_layout(COUNT, sidecars=True)
    folder = tmp_path / "bootstraps"
    folder.mkdir()
    names = [f"sidecar-{i}" for i in range(COUNT)]
    addresses = [layout.address("client", i + 1) for i in range(COUNT)]
    for name, address in zip(names, addresses, strict=True):
        at = {"socket_address": {"address": address, "port_value": ADMIN}}
        (folder / f"{name}.json").write_text(json.dumps({"node": {"id": name}, "admin": {"address": at}}))
    return names, addresses, folder


def started(bootstraps: tuple[list[str], list[str], Path], folder: Path) -> Batch:
    names, addresses, where = bootstraps
    folder.mkdir()
    batch = Batch(names, where, folder)
    batch.wait_started(PATIENCE_S)
    wait_listening(batch.launcher, [(address, ADMIN) for address in addresses], PATIENCE_S, itself=False)
    settled(batch.pids)
    return batch


def settled(pids: tuple[int, ...]) -> None:
    """Wait until starting is over: no memory has grown for half a second."""
    deadline, seen, since = time.monotonic() + PATIENCE_S, [], time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline
        now = [memory(pid)["Anonymous"] for pid in pids]
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)


def memory(pid: int) -> dict[str, int]:
    """KiB by kind."""
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}


def alone(pids: tuple[int, ...]) -> None:
    wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], PATIENCE_S)


@needs_forkserver
def test_forked_sidecars_have_all_their_memory_to_themselves(bootstraps, tmp_path, monkeypatch):
    assert native.forkserver()
    forked = started(bootstraps, tmp_path / "forked")
    try:
        assert forked.forked
        assert len(set(forked.pids)) == COUNT
        ours = [memory(pid) for pid in forked.pids]
    finally:
        forked.stop()
    alone(forked.pids)
    monkeypatch.setattr(fleets.native, "forkserver", lambda: None)
    singly = started(bootstraps, tmp_path / "singly")
    try:
        assert not singly.forked
        theirs = [memory(pid) for pid in singly.pids]
    finally:
        singly.stop()
    usual = sum(found["Anonymous"] for found in theirs) / COUNT
    for found in ours:
        # Memory that is not file-backed is private, and as large as in a process that did everything itself.
        assert found["Private_Dirty"] == found["Anonymous"]
        assert found["Anonymous"] == pytest.approx(usual, rel=0.03)


def test_a_program_that_does_not_load_the_library_starts_by_itself(bootstraps, tmp_path, monkeypatch):
    foreign = tmp_path / "foreign.so"
    foreign.write_text("not a library")
    monkeypatch.setattr(fleets.native, "forkserver", lambda: foreign)
    batch = started(bootstraps, tmp_path / "fleet")
    try:
        assert not batch.forked
        assert len(batch.pids) == COUNT
    finally:
        batch.stop()


def test_a_bad_bootstrap_is_named(bootstraps, tmp_path):
    (bootstraps[2] / "sidecar-2.json").write_text('{"admin": 1}')
    (tmp_path / "fleet").mkdir()
    batch = Batch(bootstraps[0], bootstraps[2], tmp_path / "fleet")
    try:
        assert batch.launcher.wait(PATIENCE_S) == 1
        with pytest.raises(TestbedError, match="sidecar-2 ended with code 1"):
            batch.require_alive()
    finally:
        batch.stop()


@needs_forkserver
def test_a_fork_server_that_fails_half_way_leaves_none(bootstraps, tmp_path):
    commands = [fleets.envoy_command(name, bootstraps[2] / f"{name}.json") for name in bootstraps[0]]
    commands[2] += ["--disable-extensions", "x"] * 40  # more than it takes
    spec = tmp_path / "spec.json"
    wanted = {"pids": str(tmp_path / "pids"), "forkserver": str(native.forkserver()), "commands": commands}
    spec.write_text(json.dumps(wanted))
    ended = subprocess.run([sys.executable, "-I", "-S", fleets.LAUNCHER, spec], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "forkserver: arguments: Argument list too long" in ended.stderr
    assert "the fork server ended with 2 of 4 sidecars" in ended.stdout
    assert len(silent([(address, ADMIN) for address in bootstraps[1]])) == COUNT


def test_a_launcher_that_is_killed_takes_the_forked_with_it(bootstraps, tmp_path):
    batch = started(bootstraps, tmp_path / "fleet")
    try:
        os.kill(batch.launcher.pid, signal.SIGKILL)
        alone(batch.pids)
    finally:
        batch.stop()
