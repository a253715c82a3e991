"""Start hundreds of processes from a small one, and end them all together; run as a program, not imported.

A fork takes time in proportion to the parent's memory, so a process that holds a study's tables and libraries forks 600
children slowly. This process holds nothing. It writes the children's process ids to a file. It ends on SIGTERM, and
when any child ends; either way it first kills and reaps every child. Every child also has the kernel's parent-death
signal set, so that none survives a launcher that is killed.

    python -I -S launcher.py SPEC

    SPEC: {"pids": FILE, "forkserver": FILE or null, "commands": [[NAME, ARGV...], ...]}

With a fork server (``lib/native/forkserver``) the children, which must all run the same program, are forked from one
process after its static initialisation. Without one, or if the program does not load it, each child starts by itself.
"""

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
    """Start the processes, wait until one ends or a signal comes, and end the others; return the exit code."""
    order = json.loads(spec.read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    # Signals are blocked and waited for, so that none is missed between two children; each child gets an empty mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    names: dict[int, str] = {}
    commands = [(name, argv) for name, *argv in order["commands"]]
    try:
        forked = bool(order["forkserver"]) and _fork_all(libc, order["forkserver"], commands, names)
        for name, argv in () if forked else commands:
            if signal.sigpending() & _ORDERS:
                return 0
            names[_spawn(libc, argv, os.environ)] = name
        ready = Path(order["pids"])
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
    """The fork server ended before it had forked every command."""


def _fork_all(libc: ctypes.CDLL, library: str, commands: list[tuple[str, list[str]]], names: dict[int, str]) -> bool:
    """Fork every command from one process; False if the program did not load the fork server and nothing started."""
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        return False  # the children would belong to another process
    requests = os.memfd_create("commands")
    os.write(requests, b"".join(b"".join(os.fsencode(part) + b"\0" for part in argv) + b"\0" for _, argv in commands))
    os.lseek(requests, 0, os.SEEK_SET)
    answer, pids = os.pipe()
    server = _spawn(libc, [commands[0][1][0]], {**os.environ, "LD_PRELOAD": library}, (requests, pids))
    os.close(requests)
    os.close(pids)
    with os.fdopen(answer) as lines, suppress(ValueError):  # another program may print anything
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
        if os.getppid() == parent:  # otherwise the parent ended before the signal was set
            # One session each, as for every other component: the kernel divides the CPU by session (autogroup), and 600
            # sidecars in one session would get no more CPU than one load generator.
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for number, handle in enumerate(standard):  # stdin, stdout
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
        # One signal may be reported for several children.
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            print(f"{names.pop(pid)} ended with code {os.waitstatus_to_exitcode(status)}", flush=True)
            return 1


def _end(names: dict[int, str]) -> None:
    # Sidecars have nothing to save, and 600 orderly shutdowns would take seconds.
    for pid in names:
        os.kill(pid, signal.SIGKILL)
    for pid in names:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
