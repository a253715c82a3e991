"""The Go module's own tests, vetted and formatted."""

import subprocess
import sys
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
