"""The Go toolchain and its environment."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from testcluster.settings import CHECKOUT, ClusterError

_GO_NEEDED = (1, 26)


def find_go() -> Path:
    """Find a Go that is new enough: ``GO``, PATH, then the one that the library's own set-up installs from PyPI."""
    override = os.environ.get("GO")
    for candidate in [override] if override else [shutil.which("go")]:
        version = _go_version(candidate)
        if candidate and version >= _GO_NEEDED:
            return Path(shutil.which(candidate) or candidate)
        if override:
            raise ClusterError(
                f"GO={override} is not Go {'.'.join(map(str, _GO_NEEDED))} or newer; correct or unset GO"
            )
    sys.path.insert(0, str(CHECKOUT / "lib"))
    try:
        from meshtrial import native  # the checkout's, because set-up may not have installed it yet
    except ImportError:
        raise ClusterError("no Go 1.26 or newer on PATH; install one, or set GO to it") from None
    finally:
        sys.path.remove(str(CHECKOUT / "lib"))
    try:
        return Path(native.find_go(sys.stderr).path)
    except Exception as error:  # noqa: BLE001  whatever the library's set-up meets is the reason to give
        raise ClusterError(f"no Go 1.26 or newer on PATH, and none could be installed: {error}") from None


def _go_version(program: str | None) -> tuple[int, ...]:
    if not program:
        return ()
    try:
        answer = subprocess.run([program, "version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"go(\d+)\.(\d+)", answer)
    return (int(match[1]), int(match[2])) if match else ()


def go_environment() -> dict[str, str]:
    """Return the user's environment without variables that would change the build."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOFLAGS", "GOWORK"))}
    # local: never fetch another toolchain. CGO off: the programs run in an image without a C library.
    return environment | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


class Compilers:
    """The running compilers: when one fails or somebody interrupts, all end."""

    def __init__(self, work: str) -> None:
        # Killed, Go leaves its work in GOTMPDIR. Compilers live for seconds. They collect garbage only beyond a
        # gigabyte, which saves a fifth of their time.
        self._environment = go_environment() | {"GOTMPDIR": work, "GOGC": "off", "GOMEMLIMIT": "1GiB"}
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, command: Sequence[str], folder: Path, output: IO[str]) -> int:
        """Run one to its end and return its exit code."""
        with self._lock:
            if self._ended:
                return -signal.SIGKILL
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group for it and all its children
            )
            self._running.add(child)
        code = child.wait()
        with self._lock:
            self._running.discard(child)
        return code

    def end(self) -> None:
        """Kill all of them; no other can start."""
        with self._lock:
            self._ended = True
            for child in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
