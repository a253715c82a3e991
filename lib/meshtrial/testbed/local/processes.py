"""Child processes that end with this one: on success, on failure, on a signal, and even when this process is killed.

Three mechanisms are needed, because each alone was seen to leak. The caller stops its children in ``finally``; an exit
hook stops every living child; and the kernel's parent-death signal covers the case that this process is killed.

The parent-death signal is sent when the THREAD that started the child ends (prctl(2), PR_SET_PDEATHSIG). So children
are started by the main thread, or by a thread that lives as long as this process.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import operator
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshtrial import network, waiting
from meshtrial.errors import TestbedError

_PR_SET_PDEATHSIG = 1
_ERROR = re.compile(r"\[(critical|error)\]")
_LONGEST_LINE = 400  # characters
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIVE: set[Child] = set()
_LOCK = threading.Lock()
_LASTING = ThreadPoolExecutor(1, thread_name_prefix="starter")


class Child:
    """A process in a session of its own, without proxy settings; standard output and error go to the file ``log``.

    ``name`` is used in messages, e.g. ``client sidecar``. Without ``cwd`` it runs in this process's folder.
    """

    def __init__(self, name: str, argv: Sequence[str], log: Path, cwd: Path | None = None) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._cwd = cwd
        self.was_paused = False  # as seen by reap()
        try:
            if threading.current_thread() is threading.main_thread():
                self._start()
            else:
                _LASTING.submit(self._start).result()
        except OSError as error:
            raise TestbedError(
                f"{name}: cannot start {argv[0]}: {error.strerror}; `meshtrial doctor` checks the programs"
            ) from None

    def _start(self) -> None:
        with self.log.open("ab") as out:
            self._popen = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env=network.environment(),
                start_new_session=True,
                # Only this call is made between fork and exec, where little is safe.
                preexec_fn=functools.partial(_LIBC.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        with _LOCK:
            _LIVE.add(self)

    def again(self) -> Child:
        """Start another process of the same command, which appends to the same log."""
        return Child(self.name, self.argv, self.log, self._cwd)

    @property
    def pid(self) -> int:
        """Process id, which is also the process group's."""
        return self._popen.pid

    def alive(self) -> bool:
        """Return whether it still runs."""
        return self._popen.poll() is None

    def paused(self) -> bool:
        """Return whether a signal has stopped or continued it since the last call (the kernel keeps one such event)."""
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None
        return False

    def state(self) -> str:
        """Describe it: ``running``, or how it ended."""
        code = self._popen.poll()
        if code is None:
            return "running"
        return f"ended with code {code}" if code >= 0 else f"ended by signal {-code}, {signal.strsignal(-code)}"

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return the exit code, or None on time-out."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def reap(self, timeout_s: float) -> tuple[int | None, float, int]:
        """Wait for its end; return exit code (None on time-out), CPU seconds and context switches.

        The kernel counts the latter two for the whole process, including threads that ended before it.
        """

        def poll() -> tuple[int, int, Any]:
            self.was_paused = self.paused() or self.was_paused
            return os.wait4(self.pid, os.WNOHANG)

        pid, status, used = waiting.until(poll, timeout_s, 0.01, operator.itemgetter(0))
        if not pid:
            return None, 0.0, 0
        # Popen must not wait for a process that has been reaped.
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        return self._popen.returncode, used.ru_utime + used.ru_stime, used.ru_nvcsw + used.ru_nivcsw

    def end(self, grace_s: float = 2.0) -> tuple[float, int]:
        """Stop it as :meth:`stop` does; return CPU seconds and context switches of its whole life."""
        _signal_group(self, signal.SIGTERM)
        code, cpu_s, switches = self.reap(grace_s)
        if code is None:
            _signal_group(self, signal.SIGKILL)
            code, cpu_s, switches = self.reap(5.0)
        stop_all([self])
        return cpu_s, switches

    def tail(self) -> str:
        """Return the last lines of its output, for a message."""
        return _last_lines(self.output().strip().splitlines())

    def why(self) -> str:
        """Return the last lines of its output that are marked as errors, or else its last lines.

        Envoy prints a whole configuration after an error found in it, so its last line is often a closing bracket.
        """
        output = self.output().strip().splitlines()
        return _last_lines([line for line in output if _ERROR.search(line)] or output)

    def output(self) -> str:
        """Return its output so far, with its working folder written as ``.`` so that records name no machine."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return text if self._cwd is None else text.replace(str(self._cwd), ".")

    def stop(self, grace_s: float = 2.0) -> None:
        """Send SIGTERM to its process group, SIGKILL after ``grace_s``, and reap it."""
        stop_all([self], grace_s)


def _last_lines(lines: Sequence[str]) -> str:
    return " | ".join(line[:_LONGEST_LINE] for line in lines[-3:]) or "(no output)"


def stop_all(children: Sequence[Child], grace_s: float = 2.0) -> None:
    """Stop several children at once, with one grace period for all of them."""
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for child in children:
        if child.wait(max(0.0, deadline - time.monotonic())) is None:
            _signal_group(child, signal.SIGKILL)
            child.wait(5.0)
        # The group may outlive its leader; it belongs to the child alone, so what remains of it is killed too.
        _signal_group(child, signal.SIGKILL, even_if_reaped=True)
        with _LOCK:
            _LIVE.discard(child)


def _signal_group(child: Child, number: signal.Signals, even_if_reaped: bool = False) -> None:
    if not even_if_reaped and not child.alive():
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@atexit.register
def _stop_what_lives() -> None:
    with _LOCK:
        living = list(_LIVE)
    if living:
        stop_all(living, grace_s=1.0)
