"""Install the packages of a lock file with pip, which knows the user's index, proxy and certificates."""

import sys
from pathlib import Path

from meshtrial.native.places import run


def install(lock: Path, target: Path) -> str | None:
    """Install them into a folder of their own, with their digests checked; return one line on what failed, or None."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    answer = run([*command, "--no-cache-dir", "--require-hashes", "--target", target, "-r", lock])
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        return f"pip install -r {lock.name}: {lines[-1].removeprefix('ERROR: ').partition('. ')[0]}"
    return None
