"""Interrupting a real build while its compilers run, for the tests of both builds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def interrupt(argv: Sequence[str | Path], number: int, changed: Mapping[str, str], compilers: int) -> tuple[int, str]:
    """Start a build, signal it alone once so many compilers run, and see that no program of it goes on.

    Parameters
    ----------
    changed : mapping
        Environment by which the build's programs are known; it names an empty GOCACHE, so that there is work.

    Returns
    -------
    int, str
        Exit code and what it said on standard error.
    """
    # A shell lets what it starts in the background ignore Ctrl-C, and so would this build.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | changed
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + 120
            while list(_running(changed).values()).count("compile") < compilers:
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            child.send_signal(number)  # to this process alone, as a supervisor would
            _, said = child.communicate(timeout=240)
        finally:
            child.kill()
            if child.wait() == -signal.SIGKILL:  # it did not end its compilers, so this does
                for pid in _running(changed):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _running(changed) and time.monotonic() < deadline:  # killed; the kernel may take a moment
        time.sleep(0.05)
    assert _running(changed) == {}
    return child.returncode, said


def _running(values: Mapping[str, str]) -> dict[int, str]:
    """Names of the programs with all of these in their environment, by process."""
    wanted = {f"{name}={value}".encode() for name, value in values.items()}
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found
