"""Interrupt a real build while its compilers run, for the tests of both builds."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from running import running
from waiting import wait_for


def interrupt(argv: Sequence[str | Path], number: int, changed: Mapping[str, str], compilers: int) -> tuple[int, str]:
    """Start a build, signal only it when this many compilers run, and check that none of its programs continues.

    ``changed`` in the environment identifies its programs; it names an empty GOCACHE, so that there is work. Returns
    the exit code and standard error.
    """
    # A shell lets background processes ignore Ctrl-C, and this build would inherit that.
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
            if child.wait() == -signal.SIGKILL:  # the build left its compilers running, so this ends them
                for pid in running(changed):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not running(changed))  # killed; the kernel may take a moment
    return child.returncode, said
