"""Who listens where, for hundreds of addresses in one pass over the kernel's table."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from meshtrial.errors import TestbedError

Endpoint = tuple[str, int]
_LISTEN = "0A"


def listening() -> dict[Endpoint, str]:
    """Socket inode by address, of everything that listens in this network namespace."""
    found: dict[Endpoint, str] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            found[socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)] = fields[9]
    return found


def wait_all_listening(
    what: str, endpoints: Iterable[Endpoint], check: Callable[[], None], timeout_s: float, owner: int | None = None
) -> None:
    """Wait until every endpoint is listened on, by one process where ``owner`` names it.

    Raises
    ------
    TestbedError
        With the number that are missing, or that are held by somebody else.
    """
    wanted = set(endpoints)
    deadline = time.monotonic() + timeout_s
    while missing := wanted - (table := listening()).keys():
        check()
        if time.monotonic() > deadline:
            some = "{}:{}".format(*sorted(missing)[0])
            raise TestbedError(
                f"{what}: {len(missing)} of {len(wanted)} do not listen after {timeout_s:g} s, e.g. {some}"
            )
        time.sleep(0.05)
    if owner is not None:
        own = _inodes(owner)
        foreign = sorted(at for at in wanted if table[at] not in own)
        if foreign:
            raise TestbedError(f"{what}: {foreign[0][0]}:{foreign[0][1]} is held by another process; run again")


def _inodes(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
