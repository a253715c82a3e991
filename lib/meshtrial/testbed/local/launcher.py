"""Starts hundreds of processes from a small one, and ends them all: run as a program, not imported.

A fork costs what the parent's memory costs to map, so a process that holds a study's tables and libraries is a slow
parent for 600 children. This one holds nothing. Whoever starts it is told the process ids through a file. It ends
when it is told to (SIGTERM), and when a child ends that should not have; either way every child is killed and
reaped first. The kernel's parent-death signal is set on every child, so a launcher that is killed outright leaves
none either.

    python -I -S launcher.py SPEC

    SPEC: {"pids": FILE, "forkserver": FILE or null, "commands": [[NAME, ARGV...], ...]}

With a fork server (``lib/native/forkserver``) the children, who must all be the same program, are forked from one of
them behind its static initialisation; without one, or where the program does not load it, each starts by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
_ORDERS = {signal.SIGTERM, signal.SIGINT}


def main(spec: Path) -> int:
    """Start, wait, end."""
    wanted = json.loads(spec.read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    # Blocked, not handled: nothing can be missed between two children, and each child gets a clean mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    names: dict[int, str] = {}
    commands = [(name, argv) for name, *argv in wanted["commands"]]
    try:
        forked = bool(wanted["forkserver"]) and _fork_all(libc, wanted["forkserver"], commands, names)
        for name, argv in () if forked else commands:
            if signal.sigpending() & _ORDERS:
                return 0
            names[_spawn(libc, argv, os.environ)] = name
        ready = Path(wanted["pids"])
        partial = ready.with_suffix(".partial")
        partial.write_text(json.dumps({"forked": forked, "pids": list(names)}))
        partial.rename(ready)
        return _watch(names)
    except ForkServerError as error:
        print(error, flush=True)
        return 1
    finally:
        _end(names)


class ForkServerError(Exception):
    """It ended before it had forked all."""


def _fork_all(libc: ctypes.CDLL, library: str, commands: list[tuple[str, list[str]]], names: dict[int, str]) -> bool:
    """Fork every command from one process; False when the program went its own way and nothing was started."""
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return False  # the children would be somebody else's
    spoken = os.memfd_create("commands")
    os.write(spoken, b"".join(b"".join(os.fsencode(part) + b"\0" for part in argv) + b"\0" for _, argv in commands))
    os.lseek(spoken, 0, os.SEEK_SET)
    answer, pids = os.pipe()
    server = _spawn(libc, [commands[0][1][0]], {**os.environ, "LD_PRELOAD": library}, (spoken, pids))
    os.close(spoken)
    os.close(pids)
    with os.fdopen(answer) as lines, suppress(ValueError):  # a program that is not the fork server may say anything
        for (name, _), line in zip(commands, lines, strict=False):
            names[int(line)] = name
    _, status = os.waitpid(server, 0)
    if names and (status or len(names) != len(commands)):
        raise ForkServerError(f"the fork server ended with {len(names)} of {len(commands)} sidecars")
    return bool(names)


def _spawn(libc: ctypes.CDLL, argv: list[str], environment: Mapping[str, str], standard: tuple[int, ...] = ()) -> int:
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
            for number, handle in enumerate(standard):  # input, output
                os.dup2(handle, number)
            os.execve(argv[0], argv, environment)
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
