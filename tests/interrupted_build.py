"""Interrupting a real build while its compilers run, for the tests of both builds."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from running import running
from waiting import wait_for


def interrupt(argv: Sequence[str | Path], number: int, changed: Mapping[str, str], compilers: int) -> tuple[int, str]:
    """Start a build, signal it alone once so many compilers run, and see that no program of it goes on.

    By ``changed`` of the environment its programs are known; it names an empty GOCACHE, so that there is work. What
    comes back are the exit code and what was said on standard error.
    """
    # A shell lets what it starts in the background ignore Ctrl-C, and so would this build.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | changed
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            wait_for(lambda: child.poll() or list(running(changed).values()).count("compile") >= compilers, 120)
            assert child.poll() is None
            child.send_signal(number)  # to this process alone, as a supervisor would
            _, said = child.communicate(timeout=240)
        finally:
            child.kill()
            if child.wait() == -signal.SIGKILL:  # it did not end its compilers, so this does
                for pid in running(changed):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not running(changed))  # killed; the kernel may take a moment
    return child.returncode, said
