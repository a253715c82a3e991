"""Interrupting a real build while its compilers run, for the tests of both builds."""

from __future__ import annotations

import os
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
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | changed
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + 120
            while _running(changed).count("compile") < compilers:
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            child.send_signal(number)  # to this process alone, as a supervisor would
            _, said = child.communicate(timeout=240)
        finally:
            child.kill()
    deadline = time.monotonic() + 60
    while _running(changed) and time.monotonic() < deadline:  # killed; the kernel may take a moment
        time.sleep(0.05)
    assert _running(changed) == []
    return child.returncode, said


def _running(values: Mapping[str, str]) -> list[str]:
    """Names of the programs with all of these in their environment."""
    wanted = {f"{name}={value}".encode() for name, value in values.items()}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append((entry / "comm").read_text().strip())
    return found
