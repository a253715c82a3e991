"""Folders for keys and logs that nobody else may read, and that go even when their owner was killed outright.

Each is held by a lock, which the kernel lets go when its process ends; whoever makes the next one removes those that
nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path

_HELD = ".held"


class PrivateFolder:
    """A new folder, from its making to :meth:`close`."""

    def __init__(self, prefix: str) -> None:
        _sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has the name that others look for.
        new = self.path / f"{_HELD}-new"
        self._lock = new.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _HELD)

    def close(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep(prefix: str) -> None:
    for held in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_HELD}"):
        # Another user's cannot be opened, one in use not be locked.
        with contextlib.suppress(OSError), held.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(held.parent, ignore_errors=True)
