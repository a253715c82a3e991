"""Who listens where: ports that are free, and whether a process, and no other, serves at its addresses.

Asked of the kernel's own table, once for hundreds of addresses, so that nobody is called to find out.
"""

from __future__ import annotations

import operator
import socket
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.local.processes import Child

Endpoint = tuple[str, int]
_LISTEN = "0A"
_ANY = "0.0.0.0"


def free_ports(address: str, count: int = 1) -> tuple[int, ...]:
    """So many different TCP ports that nothing listens on at this address now."""
    with ExitStack() as held:
        # All are held until the last is found: asked for one after another, the kernel may give the same one twice.
        probes = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for probe in probes:
            probe.bind((address, 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)


def silent(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Those at which nothing listens in this network namespace."""
    listening = _listening()
    return [at for at in endpoints if not listening.keys() & {at, (_ANY, at[1])}]


def foreign(pid: int, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Those at which the process does not listen itself."""
    listening = _listening()
    own: set[str] = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return [at for at in endpoints if (listening.get(at) or listening.get((_ANY, at[1]))) not in own]


def wait_listening(
    child: Child, endpoints: Iterable[Endpoint], timeout_s: float = 30.0, *, itself: bool = True
) -> None:
    """Wait until all are listened on: by the child itself and not some other process, unless its own children do it."""
    wanted = sorted(set(endpoints))

    def missing() -> list[Endpoint]:
        if not child.alive():
            raise TestbedError(f"{child.name}: {child.state()} before it served: {child.why()}")
        return silent(wanted)

    if left := waiting.until(missing, timeout_s, 0.01, operator.not_):
        more = f" and {len(left) - 1} more of {len(wanted)}" if len(left) > 1 else ""
        at = "{}:{}".format(*left[0])
        raise TestbedError(f"{child.name}: nothing listens on {at}{more} after {timeout_s:g} s: {child.tail()}")
    if held := foreign(child.pid, wanted) if itself else []:
        at = "{}:{}".format(*held[0])
        raise TestbedError(f"{child.name}: {at} is held by another process; stop it or run again")


def _listening() -> dict[Endpoint, str]:
    """Socket inode by address."""
    inodes = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            inodes[socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)] = fields[9]
    return inodes
