"""What the machine may refuse a command, in one line: descriptors, memory, space, rights.

Limits that are too small for a study are asked for first: libraries in C end a process that runs out of descriptors,
and the loader's words for too little address space name neither.
"""

import contextlib
import errno
import resource

from meshtrial.errors import MissingToolError

# Most that a short study's kernel was seen to take on two cores, 76 and 1.8 GiB, with some to spare.
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
    """MissingToolError where a limit is below what a study takes, and may not be raised by ourselves."""
    if (files := _raised(resource.RLIMIT_NOFILE, FILES)) < FILES:
        raise MissingToolError(
            f"this shell allows {files} open files a process and a study needs {FILES}: `ulimit -n` raises it"
        )
    if (addresses := _raised(resource.RLIMIT_AS, ADDRESSES)) < ADDRESSES:
        raise MissingToolError(
            f"this shell allows {addresses / 2**30:.2g} GiB of addresses a process and a study needs "
            f"{ADDRESSES // 2**30}: `ulimit -v unlimited` raises it"
        )


def refusal(error: OSError | MemoryError) -> str | None:
    """What the machine refused, for a line; None for an error that is not of this kind."""
    if isinstance(error, MemoryError):
        return "there was not enough memory; free some, or use a larger machine"
    if error.errno not in _REFUSED:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; mend that and give the command again"


def _raised(kind: int, wanted: int) -> float:
    """A limit, raised to what is wanted where that is allowed."""
    soft, hard = resource.getrlimit(kind)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (wanted, hard))
            soft = wanted
    return float("inf") if soft == resource.RLIM_INFINITY else soft
