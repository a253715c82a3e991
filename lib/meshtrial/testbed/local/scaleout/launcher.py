"""Starts hundreds of processes from a small one, and ends them all: run as a program, not imported.

A fork costs what the parent's memory costs to map, so a process that holds a study's tables and libraries is a slow
parent for 600 children. This one holds nothing. Whoever starts it is told the process ids through a file. It ends
when it is told to (SIGTERM), and when a child ends that should not have; either way every child is killed and
reaped first. The kernel's parent-death signal is set on every child, so a launcher that is killed outright leaves
none either.

    python -I -S launcher.py SPEC    SPEC: {"pids": FILE, "commands": [[NAME, ARGV...], ...]}
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
_ORDERS = {signal.SIGTERM, signal.SIGINT}


def main(spec: Path) -> int:
    """Start, wait, end."""
    wanted = json.loads(spec.read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    # Blocked, not handled: nothing can be missed between two children, and each child gets a clean mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    names: dict[int, str] = {}
    try:
        for name, *argv in wanted["commands"]:
            if signal.sigpending() & _ORDERS:
                return 0
            names[_spawn(libc, argv)] = name
        ready = Path(wanted["pids"])
        partial = ready.with_suffix(".partial")
        partial.write_text(json.dumps(list(names)))
        partial.rename(ready)
        return _watch(names)
    finally:
        _end(names)


def _spawn(libc: ctypes.CDLL, argv: list[str]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:  # else the parent died before the signal was set
            # A session each, as every other component has: the kernel shares the CPU out by session (autogroup), and
            # 600 sidecars in one would weigh as much as one load generator.
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execv(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", flush=True)
    finally:
        os._exit(127)


def _watch(names: dict[int, str]) -> int:
    while True:
        if signal.sigwaitinfo(_WATCHED).si_signo in _ORDERS:
            return 0
        # One signal may stand for several children.
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            print(f"{names.pop(pid)} ended with code {os.waitstatus_to_exitcode(status)}", flush=True)
            return 1


def _end(names: dict[int, str]) -> None:
    # Killed, not asked: a sidecar holds nothing that must be saved, and 600 orderly ends take seconds.
    for pid in names:
        os.kill(pid, signal.SIGKILL)
    for pid in names:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
