"""A copy of the checkout's library to be changed, and commands in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from meshtrial import paths


def checkout(root: Path) -> Path:
    """What may be changed is copied to a folder, the rest is linked."""
    # With what is compiled already: a file's time goes with it, and what is changed is compiled anew.
    for name in ("lib", "manifests", "docs"):
        shutil.copytree(paths.CHECKOUT / name, root / name)
    for name in ("data", "notebooks", "pyproject.toml"):
        (root / name).symlink_to(paths.CHECKOUT / name)
    return root


def said(root: Path, command: list[str]) -> str:
    """What a command prints there, with this test's own Python and with the copy's library before the installed one."""
    path = os.pathsep.join([str(root / "lib"), str(paths.CHECKOUT / "tests")])
    env = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(root: Path, code: str) -> str:
    """What a script prints there."""
    return said(root, [sys.executable, "-c", code])
