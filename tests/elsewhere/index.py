"""Run programs that query the package index: if it is unreachable, a test is skipped, and fails in CI (CI=true)."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_NO_INDEX = re.compile(r"error sending request|client error|dns error|timed out|network was disabled", re.IGNORECASE)


def asked(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Return the command's result in a folder; skip by name if the index is unreachable."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode and _NO_INDEX.search(done.stderr):
        reason = f"the package index is out of reach: {' '.join(done.stderr.split())[:300]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return done
