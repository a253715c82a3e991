"""Resource limits of the machine: file descriptors, memory, disk space, permissions.

Limits that are too small for a study are checked before it starts. C libraries abort a process that runs out of
descriptors, and the loader's message on too little address space names neither cause nor remedy.
"""

import contextlib
import errno
import resource

from meshtrial.errors import MissingToolError

# The kernel of a short study on two cores needed up to 76 files and 1.8 GiB; these leave some reserve.
FILES, ADDRESSES = 128, 2 * 2**30
_REFUSED = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}


def require() -> None:
    """Raise MissingToolError if a limit is below what a study needs and cannot be raised by this process."""
    if (files := _raised(resource.RLIMIT_NOFILE, FILES)) < FILES:
        raise MissingToolError(
            f"this shell allows {files} open files per process, and a study needs {FILES}; raise it with `ulimit -n`"
        )
    if (addresses := _raised(resource.RLIMIT_AS, ADDRESSES)) < ADDRESSES:
        raise MissingToolError(
            f"this shell allows {addresses / 2**30:.2g} GiB of address space per process, and a study needs "
            f"{ADDRESSES // 2**30}; raise it with `ulimit -v unlimited`"
        )


def refusal(error: OSError | MemoryError) -> str | None:
    """Return what the machine refused, in one line; None if the error has another cause."""
    if isinstance(error, MemoryError):
        return "not enough memory; free some, or use a larger machine"
    if error.errno not in _REFUSED:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; correct this and run the command again"


def _raised(kind: int, minimum: int) -> float:
    """Raise a soft limit to ``minimum`` if that is allowed, and return the limit."""
    soft, hard = resource.getrlimit(kind)
    if soft != resource.RLIM_INFINITY and soft < minimum:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (minimum, hard))
            soft = minimum
    return float("inf") if soft == resource.RLIM_INFINITY else soft
