"""Who listens on which address: free ports, and whether a process, and no other, listens on its addresses.

This is read from the kernel's table, once for hundreds of addresses, so that no connection is opened to find out.
"""

import operator
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.local.processes import Child

Endpoint = tuple[str, int]
_LISTEN, _ESTABLISHED = "0A", "01"
_ANY = "0.0.0.0"


def free_ports(address: str, count: int = 1) -> tuple[int, ...]:
    """Return different TCP ports of this address on which nothing listens."""
    with ExitStack() as stack:
        # All stay open until the last is found: one after another, the kernel might return the same port twice.
        probes = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for probe in probes:
            probe.bind((address, 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)


def silent(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the endpoints on which nothing listens in this network namespace."""
    listening = _listening()
    return [at for at in endpoints if not listening.keys() & {at, (_ANY, at[1])}]


def foreign(pid: int, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the endpoints on which the process itself does not listen."""
    listening = _listening()
    own: set[str] = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return [at for at in endpoints if (listening.get(at) or listening.get((_ANY, at[1]))) not in own]


def wait_listening(
    child: Child, endpoints: Iterable[Endpoint], timeout_s: float = 30.0, *, itself: bool = True
) -> None:
    """Wait until something listens on all endpoints: with ``itself`` the child, otherwise perhaps its own children.

    Raise TestbedError if the child ends, the time runs out, or another process listens instead.
    """
    expected = sorted(set(endpoints))

    def missing() -> list[Endpoint]:
        if not child.alive():
            raise TestbedError(f"{child.name}: {child.state()} before it served: {child.why()}")
        return silent(expected)

    if remaining := waiting.until(missing, timeout_s, 0.01, operator.not_):
        more = f" and {len(remaining) - 1} more of {len(expected)}" if len(remaining) > 1 else ""
        address = "{}:{}".format(*remaining[0])
        raise TestbedError(f"{child.name}: nothing listens on {address}{more} after {timeout_s:g} s: {child.tail()}")
    if occupied := foreign(child.pid, expected) if itself else []:
        address = "{}:{}".format(*occupied[0])
        raise TestbedError(f"{child.name}: another process listens on {address}; stop it or run again")


def established(endpoint: Endpoint) -> int:
    """Return the number of connections that an endpoint has accepted and that are still open."""
    return sum(at == endpoint for at, _ in _sockets(_ESTABLISHED))


def _listening() -> dict[Endpoint, str]:
    """Return the socket inode of every listening address."""
    return dict(_sockets(_LISTEN))


def _sockets(state: str) -> Iterator[tuple[Endpoint, str]]:
    """Yield the own address and the inode of every socket in a state."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == state:
            address, _, port = fields[1].partition(":")
            yield (socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)), fields[9]
