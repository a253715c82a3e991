"""Paths in the checkout, and state folders of Jupyter and matplotlib inside it."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = CHECKOUT / "notebooks"
MANIFESTS = CHECKOUT / "manifests"


def studies_root() -> Path:
    """Return the folder of recorded studies: ``MESHTRIAL_DATA``, or ``data/studies`` in the checkout."""
    return Path(os.environ.get("MESHTRIAL_DATA") or CHECKOUT / "data" / "studies")


def reports_root() -> Path:
    """Return the folder of executed notebooks and reports: ``MESHTRIAL_REPORTS``, or ``papermill_runs``."""
    return Path(os.environ.get("MESHTRIAL_REPORTS") or CHECKOUT / "papermill_runs")


def display_path(path: Path) -> str:
    """Return a path relative to the working folder or the checkout, if it is inside."""
    for base in (Path.cwd(), CHECKOUT):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return str(path)


def word(path: Path) -> str:
    """Return the same, quoted for a shell command."""
    return shlex.quote(display_path(path))


def keep_state_inside() -> None:
    """Set the folders of Jupyter, IPython and matplotlib inside the checkout, unless the user has set them."""
    cache = CHECKOUT / ".cache"
    with contextlib.suppress(OSError):  # IPython warns if the parent of its folder is missing
        cache.mkdir(exist_ok=True)
    defaults = {
        "IPYTHONDIR": cache / "ipython",
        "JUPYTER_CONFIG_DIR": cache / "jupyter" / "config",
        "JUPYTER_DATA_DIR": cache / "jupyter" / "data",
        "JUPYTER_RUNTIME_DIR": cache / "jupyter" / "runtime",
        "MPLCONFIGDIR": cache / "matplotlib",
    }
    for name, path in defaults.items():
        os.environ.setdefault(name, str(path))
