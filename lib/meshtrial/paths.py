"""Where things lie in the checkout, and the folders of Jupyter and matplotlib that must stay inside it."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = CHECKOUT / "notebooks"
MANIFESTS = CHECKOUT / "manifests"


def studies_root() -> Path:
    """Where recorded studies go: ``MESHTRIAL_DATA``, or ``data/studies`` in the checkout."""
    return Path(os.environ.get("MESHTRIAL_DATA") or CHECKOUT / "data" / "studies")


def reports_root() -> Path:
    """Where executed notebooks and their HTML go: ``MESHTRIAL_REPORTS``, or ``papermill_runs``."""
    return Path(os.environ.get("MESHTRIAL_REPORTS") or CHECKOUT / "papermill_runs")


def display_path(path: Path) -> str:
    """A path as a reader in the checkout would type it."""
    for base in (Path.cwd(), CHECKOUT):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return str(path)


def word(path: Path) -> str:
    """The same as a word of a shell's command."""
    return shlex.quote(display_path(path))


def keep_state_inside() -> None:
    """Point Jupyter, IPython and matplotlib at folders in the checkout, unless the user has pointed them elsewhere."""
    cache = CHECKOUT / ".cache"
    with contextlib.suppress(OSError):  # IPython warns of a folder whose parent is not there
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
