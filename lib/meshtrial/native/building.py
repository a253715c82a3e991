"""Building the programs of ``lib/native`` that are asked for, when something that decides what they are has changed.

The one library in C, which makes hundreds of sidecars start sooner, is optional, as is a C compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from meshtrial.errors import MeshtrialError, MissingToolError, UsageError
from meshtrial.native.places import (
    FORKSERVER,
    build_dir,
    commands,
    find,
    is_executable,
    module_dir,
    override_variable,
    run,
)
from meshtrial.native.terms import linked_modules, read_stamps, stamps_file
from meshtrial.native.toolchain import Go, go_toolchain, read_go_mod, say

FORTIO_PACKAGE = "fortio.org/fortio"
# Without debugging records, which the linker drops anyway, the compiler takes a sixth less time. Whatever is compiled
# with the same flags, the tests too, shares Go's build cache.
COMPILE_FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
_BUILD_FLAGS = (*COMPILE_FLAGS, "-ldflags=-s -w")
_LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
WITHOUT = "sidecars of scale-out will start one by one, which takes up to twice as long"


def build(names: Sequence[str] = (), out: TextIO = sys.stdout) -> tuple[Path, ...]:
    """Build these commands, or all, into ``.build/bin``, each put in place whole; does nothing when nothing changed.

    Raises UsageError for a name that is no command, MissingToolError where no Go toolchain can be had, and
    MeshtrialError where the build fails.
    """
    read_go_mod()
    names = tuple(names) or commands()
    if unknown := ", ".join(sorted(set(names) - set(commands()))):
        raise UsageError(f"no program is called {unknown}; known are {', '.join(commands())}")
    target = build_dir() / "bin"
    target.mkdir(parents=True, exist_ok=True)
    with _lock(build_dir() / "native.lock", out):
        stale = [name for name in names if not _is_current(name)]
        if not stale:
            say(out, f"{', '.join(names)} are up to date")
            return tuple(target / name for name in names)
        with go_toolchain(out) as go:
            say(out, f"building {', '.join(stale)} with {go.version}, once in this checkout (a minute or two)")
            started = time.monotonic()
            for abandoned in build_dir().glob("new-*"):  # a build that was killed
                shutil.rmtree(abandoned, ignore_errors=True)
            # Go's own work folder is in it: a compiler that is killed leaves it behind.
            with tempfile.TemporaryDirectory(dir=build_dir(), prefix="new-", ignore_cleanup_errors=True) as folder:
                _go_build(go, stale, Path(folder), out)
                for name in stale:
                    (Path(folder) / name).replace(target / name)
            stamps = read_stamps()
            for name in stale:
                modules = [asdict(module) for module in linked_modules(go, target / name)]
                stamps[name] = {"key": _source_key(name), "modules": modules}
            stamps_file().write_text(json.dumps(stamps, indent=1) + "\n", encoding="utf-8")
        say(out, f"built into {target} in {time.monotonic() - started:.0f} s")
    return tuple(target / name for name in names)


def provide(names: Collection[str], out: TextIO = sys.stdout) -> None:
    """Build those of these programs that are ours and are missing, or older than their sources; the rest is left alone.

    A program that the user names or has on PATH is taken as it is.
    """
    ours = [name for name in commands() if name in names and (module_dir() / "go.mod").is_file()]
    wanted = [name for name in ours if not _is_current(name) and (_is_built(name) or not _is_elsewhere(name))]
    if wanted:
        build(wanted, out)


def _is_elsewhere(name: str) -> bool:
    try:
        find(name)
    except MissingToolError:
        return override_variable(name) in os.environ  # `find` says what is wrong with it
    return True


def _is_built(name: str) -> bool:
    return override_variable(name) not in os.environ and is_executable(build_dir() / "bin" / name)


def _is_current(name: str) -> bool:
    return is_executable(build_dir() / "bin" / name) and read_stamps().get(name, {}).get("key") == _source_key(name)


def build_forkserver(out: TextIO = sys.stdout) -> Path | None:
    """Compile it, in place whole; None, with a line that says why, where that is not possible."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        say(out, f"no C compiler on PATH: {WITHOUT}")
        return None
    target = build_dir() / "lib" / f"{FORKSERVER}.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    source = module_dir() / FORKSERVER / f"{FORKSERVER}.c"
    with tempfile.TemporaryDirectory(dir=build_dir(), prefix="new-") as folder:
        made = Path(folder) / target.name
        answer = run((compiler, *_LIBRARY_FLAGS, "-o", made, source))
        if answer.returncode:
            said = (answer.stderr.strip().splitlines() or ["no message"])[0]
            say(out, f"{Path(compiler).name} cannot build {source.name} ({said}): {WITHOUT}")
            return None
        made.replace(target)
    return target


@contextmanager
def _lock(path: Path, out: TextIO) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(out, "another build is running in this checkout; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _source_key(name: str) -> str:
    """Hash everything that decides what a program is: its sources, those that all share, pins and flags.

    Not the compiler: it is gone after set-up where none is on PATH, and a newer one is no reason to build again.
    """
    digest = hashlib.sha256(f"{_BUILD_FLAGS} {sys.platform}".encode())
    folders = (module_dir() / name, module_dir() / "internal")
    sources = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in sorted([*sources, *module_dir().glob("go.*")]):
        digest.update(str(path.relative_to(module_dir())).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _go_build(go: Go, names: Sequence[str], folder: Path, out: TextIO) -> None:
    """Run one ``go build`` for these commands (one package graph, compiled once), reporting progress every 15 s."""
    log = build_dir() / "native.log"
    command = [
        str(go.path),
        "build",
        "-v",
        *_BUILD_FLAGS,
        "-o",
        f"{folder}/",
        *(FORTIO_PACKAGE if name == "fortio" else f"./{name}" for name in names),
    ]
    work = folder / ".work"
    work.mkdir()
    lines: list[str] = []
    started = reported = time.monotonic()
    with (
        subprocess.Popen(
            command,
            cwd=module_dir(),
            env={**go.environment, "GOTMPDIR": str(work)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a group of its own: the compilers that it starts end with it
        ) as process,
        _ending_with_us(process),
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if time.monotonic() - reported > 15:
                reported = time.monotonic()
                fetched = sum(line.startswith("go: downloading") for line in lines)
                passed = f"{reported - started:.0f} s"
                say(out, f"{passed}, {fetched} modules fetched, {len(lines) - fetched} packages compiled")
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if process.returncode:
        raise _build_error(lines, log)


@contextmanager
def _ending_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _build_error(lines: Sequence[str], log: Path) -> MeshtrialError:
    """Turn the compiler's or the downloader's words into one line with what to do next."""
    telling = [
        line for line in lines if re.search(r": |\berror\b", line) and not line.startswith(("go: downloading", "# "))
    ]
    said = telling[0] if telling else "no message"
    if re.search(r"dial tcp|lookup |i/o timeout|TLS handshake|proxyconnect|40[0-9] |410 Gone|5\d\d ", "\n".join(lines)):
        advice = "a Go module could not be fetched: check the network or GOPROXY, then try again"
    elif "no space left" in "\n".join(lines):
        advice = "free about 2 GB of disk, then try again"
    else:
        advice = f"the whole output is in {log}"
    return MeshtrialError(f"building lib/native failed: {said.strip()}; {advice}")
