"""Hundreds of sidecars as one thing: started by a small launcher, watched through it, ended with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from meshtrial import native, waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.local.processes import Child

LAUNCHER = Path(__file__).with_name("launcher.py")
_END_S = 10.0


class Fleet:
    """Envoys by node id, each with the bootstrap ``<bootstraps>/<id>.json``; the launcher's files go to ``folder``.

    ``pids`` are in the order of the names; ``forked`` says whether they were forked from one that had done its static
    initialisation, else each did its own; the ``launcher`` lives as long as every sidecar does.
    """

    def __init__(self, names: Sequence[str], bootstraps: Path, folder: Path) -> None:
        self.names = tuple(names)
        self.pids: tuple[int, ...] = ()
        self.forked = False
        self._ready = folder / "sidecars.pids"
        spec = folder / "sidecars.json"
        commands = [envoy_command(name, bootstraps / f"{name}.json") for name in names]
        library = native.forkserver()
        wanted = {"pids": str(self._ready), "forkserver": library and str(library), "commands": commands}
        spec.write_text(json.dumps(wanted))
        argv = (sys.executable, "-I", "-S", str(LAUNCHER), str(spec))
        self.launcher = Child("sidecars", argv, folder / "sidecars.log")

    def wait_started(self, timeout_s: float) -> None:
        """Wait until every process exists; what it does then is another matter."""

        def ready() -> bool:
            self.require_alive()
            return self._ready.exists()

        if not waiting.until(ready, timeout_s, 0.01):
            raise TestbedError(f"{len(self.names)} sidecars: not started within {timeout_s:g} s")
        started = json.loads(self._ready.read_text())
        self.pids, self.forked = tuple(started["pids"]), bool(started["forked"])

    def require_alive(self) -> None:
        """TestbedError with the last lines of their log when any of them ended."""
        if not self.launcher.alive():
            raise TestbedError(f"sidecars: {self.launcher.tail()}")

    def stop(self) -> None:
        """End all of them at once; back when none is left."""
        self.launcher.stop(_END_S)


def envoy_command(name: str, bootstrap: Path) -> list[str]:
    """What one sidecar is started as; its name comes first, as that of the process."""
    # One log for all, so each line says whose it is.
    flags = ("--concurrency", "1", "--disable-hot-restart", "--skip-deprecated-logs", "-l", "warning")
    return [name, str(native.find("envoy")), "-c", str(bootstrap), *flags, "--log-format", f"{name} [%l] %v"]
