"""Build the programs of ``lib/native`` whose sources, pins or flags have changed.

The library in C, which makes hundreds of sidecars start sooner, is optional, and so is a C compiler.
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
from meshtrial.native.toolchain import Go, go_toolchain, print_line, read_go_mod

FORTIO_PACKAGE = "fortio.org/fortio"
# Compiling without debugging records, which the linker drops anyway, takes a sixth less time. The tests use the same
# flags, so they share Go's build cache.
COMPILE_FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
_BUILD_FLAGS = (*COMPILE_FLAGS, "-ldflags=-s -w")
_LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
NO_FORKSERVER = "sidecars of scale-out will start one by one, which takes up to twice as long"


def build(names: Sequence[str] = (), out: TextIO = sys.stdout) -> tuple[Path, ...]:
    """Build these commands, or all, into ``.build/bin``; return their paths. Up-to-date commands are not built.

    Each is replaced atomically. Raise UsageError for an unknown name, MissingToolError without a Go toolchain, and
    MeshtrialError if the build fails.
    """
    read_go_mod()
    names = tuple(names) or commands()
    if unknown := ", ".join(sorted(set(names) - set(commands()))):
        raise UsageError(f"there is no program {unknown}; choose from {', '.join(commands())}")
    target = build_dir() / "bin"
    target.mkdir(parents=True, exist_ok=True)
    with _lock(build_dir() / "native.lock", out):
        stale = [name for name in names if not _is_current(name)]
        if not stale:
            print_line(out, f"{', '.join(names)} are up to date")
            return tuple(target / name for name in names)
        with go_toolchain(out) as go:
            print_line(out, f"building {', '.join(stale)} with {go.version}, once per checkout (a minute or two)")
            started = time.monotonic()
            for abandoned in build_dir().glob("new-*"):  # of a killed build
                shutil.rmtree(abandoned, ignore_errors=True)
            # It also contains Go's work folder, which a killed compiler would leave behind.
            with tempfile.TemporaryDirectory(dir=build_dir(), prefix="new-", ignore_cleanup_errors=True) as folder:
                _go_build(go, stale, Path(folder), out)
                for name in stale:
                    (Path(folder) / name).replace(target / name)
            stamps = read_stamps()
            for name in stale:
                modules = [asdict(module) for module in linked_modules(go, target / name)]
                stamps[name] = {"key": _source_key(name), "modules": modules}
            stamps_file().write_text(json.dumps(stamps, indent=1) + "\n", encoding="utf-8")
        print_line(out, f"built into {target} in {time.monotonic() - started:.0f} s")
    return tuple(target / name for name in names)


def provide(names: Collection[str], out: TextIO = sys.stdout) -> None:
    """Build those of these programs that belong to the project and are missing or older than their sources.

    A program that the user names in the environment or has on PATH is used unchanged.
    """
    ours = [name for name in commands() if name in names and (module_dir() / "go.mod").is_file()]
    if stale := [name for name in ours if not _is_current(name) and (_is_built(name) or not _is_elsewhere(name))]:
        build(stale, out)


def _is_elsewhere(name: str) -> bool:
    try:
        find(name)
    except MissingToolError:
        return override_variable(name) in os.environ  # `find` reports what is wrong with it
    return True


def _is_built(name: str) -> bool:
    return override_variable(name) not in os.environ and is_executable(build_dir() / "bin" / name)


def _is_current(name: str) -> bool:
    return is_executable(build_dir() / "bin" / name) and read_stamps().get(name, {}).get("key") == _source_key(name)


def build_forkserver(out: TextIO = sys.stdout) -> Path | None:
    """Compile the fork server and replace it atomically; None, with a printed reason, if that is not possible."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        print_line(out, f"no C compiler on PATH: {NO_FORKSERVER}")
        return None
    target = build_dir() / "lib" / f"{FORKSERVER}.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    source = module_dir() / FORKSERVER / f"{FORKSERVER}.c"
    with tempfile.TemporaryDirectory(dir=build_dir(), prefix="new-") as folder:
        library = Path(folder) / target.name
        answer = run((compiler, *_LIBRARY_FLAGS, "-o", library, source))
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[0]
            print_line(out, f"{Path(compiler).name} cannot build {source.name} ({reason}): {NO_FORKSERVER}")
            return None
        library.replace(target)
    return target


@contextmanager
def _lock(path: Path, out: TextIO) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_line(out, "another build is running in this checkout; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _source_key(name: str) -> str:
    """Return a hash of a program's sources, the shared sources, pins and flags.

    The compiler is left out: it may be removed after set-up, and a newer one is no reason to build again.
    """
    digest = hashlib.sha256(f"{_BUILD_FLAGS} {sys.platform}".encode())
    folders = (module_dir() / name, module_dir() / "internal")
    sources = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in sorted([*sources, *module_dir().glob("go.*")]):
        digest.update(str(path.relative_to(module_dir())).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _go_build(go: Go, names: Sequence[str], folder: Path, out: TextIO) -> None:
    """Run one ``go build`` for all commands, so that shared packages compile once; print progress every 15 s."""
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
            start_new_session=True,  # a group of its own, so that the compilers can be stopped with it
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
                print_line(out, f"{passed}, {fetched} modules fetched, {len(lines) - fetched} packages compiled")
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
    """Return one line with the first error and what to do next."""
    errors = [
        line for line in lines if re.search(r": |\berror\b", line) and not line.startswith(("go: downloading", "# "))
    ]
    reason = errors[0].strip() if errors else "no message"
    if re.search(r"dial tcp|lookup |i/o timeout|TLS handshake|proxyconnect|40[0-9] |410 Gone|5\d\d ", "\n".join(lines)):
        advice = "a Go module could not be fetched: check the network or GOPROXY, then try again"
    elif "no space left" in "\n".join(lines):
        advice = "free about 2 GB of disk, then try again"
    else:
        advice = f"the whole output is in {log}"
    return MeshtrialError(f"building lib/native failed: {reason}; {advice}")
