"""Paths in the checkout or in the installed package, and state folders of Jupyter and matplotlib.

The wheel contains the files of the checkout that commands read, in the folder ``checkout`` of the package. An installed
package is never written to: records and reports go to the working folder, state goes to the user's cache.
"""

import contextlib
import os
import shlex
from pathlib import Path

_PACKAGED = Path(__file__).resolve().parent / "checkout"
INSTALLED = _PACKAGED.is_dir()
CHECKOUT = _PACKAGED if INSTALLED else _PACKAGED.parents[2]
NOTEBOOKS = CHECKOUT / "notebooks"
MANIFESTS = CHECKOUT / "manifests"


def studies_root() -> Path:
    """Return the folder of recorded studies: ``MESHTRIAL_DATA``, or ``data/studies`` in the checkout."""
    return Path(os.environ.get("MESHTRIAL_DATA") or _results_root() / "data" / "studies")


def reports_root() -> Path:
    """Return the folder of executed notebooks and reports: ``MESHTRIAL_REPORTS``, or ``papermill_runs``."""
    return Path(os.environ.get("MESHTRIAL_REPORTS") or _results_root() / "papermill_runs")


def _results_root() -> Path:
    return Path.cwd() if INSTALLED else CHECKOUT


def cache_root() -> Path:
    """Return the folder of files that can be made again: ``.cache`` in the checkout, or one in the user's cache."""
    if not INSTALLED:
        return CHECKOUT / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshtrial"


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
    """Set the folders of Jupyter, IPython and matplotlib inside the cache, unless the user has set them."""
    cache = cache_root()
    with contextlib.suppress(OSError):  # IPython warns if the parent of its folder is missing
        cache.mkdir(parents=True, exist_ok=True)
    defaults = {
        "IPYTHONDIR": cache / "ipython",
        "JUPYTER_CONFIG_DIR": cache / "jupyter" / "config",
        "JUPYTER_DATA_DIR": cache / "jupyter" / "data",
        "JUPYTER_RUNTIME_DIR": cache / "jupyter" / "runtime",
        "MPLCONFIGDIR": cache / "matplotlib",
    }
    for name, path in defaults.items():
        os.environ.setdefault(name, str(path))
