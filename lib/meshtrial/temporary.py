"""Private folders for keys and logs, which are removed even if their process was killed.

Each contains a lock that the kernel releases when the process ends. Creating the next folder removes those whose lock
is free.
"""

import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path

_LOCK = ".held"


class PrivateFolder:
    """A new folder that exists until :meth:`close`, in ``parent`` or the user's folder of temporary files."""

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _sweep(prefix, parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # It is locked before it gets the name that other processes look for.
        new = self.path / f"{_LOCK}-new"
        self._lock = new.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep(prefix: str, parent: Path) -> None:
    for path in parent.glob(f"{prefix}*/{_LOCK}"):
        # Opening fails for another user's folder, locking fails for one in use.
        with contextlib.suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
