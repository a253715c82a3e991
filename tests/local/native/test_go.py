"""The Go module's own tests, vetted and formatted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshtrial import native
from meshtrial.native.building import COMPILE_FLAGS

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]
MODULE = Path(__file__).resolve().parents[3] / "lib" / "native"


def go(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(native.find_go(sys.stderr).path), *arguments]
    return subprocess.run(
        command, cwd=MODULE, env=native.go_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_go_tests_pass() -> None:
    result = go("test", *COMPILE_FLAGS, "./...")
    assert result.returncode == 0, result.stdout + result.stderr


def test_go_vet_has_nothing_to_say() -> None:
    result = go("vet", *COMPILE_FLAGS, "./...")
    assert result.returncode == 0, result.stderr


def test_go_files_are_formatted() -> None:
    gofmt = native.find_go(sys.stderr).path.with_name("gofmt")
    result = subprocess.run([gofmt, "-l", MODULE], capture_output=True, text=True, check=True)
    assert result.stdout == ""


_BUILD = """
import sys
from pathlib import Path
from meshtrial.native import places
from meshtrial.native.__main__ import main
places.CHECKOUT = Path(sys.argv[1])
sys.exit(main(["build"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_compiler(tmp_path: Path, number: int) -> None:
    cache = tmp_path / "cache"  # empty, so that there is something to compile
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "native").symlink_to(MODULE)
    argv = [sys.executable, "-c", _BUILD, str(tmp_path)]
    environment = os.environ | {"GOCACHE": str(cache)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + 120
            while not any("compile" in name for name in _with_cache(cache)):
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            child.send_signal(number)  # to this process alone, as a supervisor would
            _, said = child.communicate(timeout=30)
        finally:
            child.kill()
    assert child.returncode == 130
    assert said == "native: stopped; run it again to go on from Go's cache\n"
    deadline = time.monotonic() + 5
    while _with_cache(cache) and time.monotonic() < deadline:  # killed; the kernel may take a moment
        time.sleep(0.05)
    assert _with_cache(cache) == []
    assert sorted(path.name for path in (tmp_path / ".build").iterdir()) == ["bin", "native.lock"]
    assert list((tmp_path / ".build" / "bin").iterdir()) == []


def _with_cache(cache: Path) -> list[str]:
    """Programs that run with this build cache."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"GOCACHE={cache}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "comm").read_text().strip())
            except OSError:
                continue
    return found
