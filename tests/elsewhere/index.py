"""Programs that ask the package index: a test ends where that is out of reach, which in CI (CI=true) is a failure."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_NO_INDEX = re.compile(r"error sending request|client error|dns error|timed out|network was disabled", re.IGNORECASE)


def asked(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What the command did in a folder; skipped by name where the index was out of its reach."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode and _NO_INDEX.search(done.stderr):
        reason = f"the package index is out of reach: {' '.join(done.stderr.split())[:300]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return done
