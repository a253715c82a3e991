"""The application of the three tiers: two fortio servers, one for all clients and one for all servers.

fortio forwards a request to a list of addresses and answers with the status of the first, so the onward call comes
first and the client's own hold second: a failure further down is never hidden behind a hold that went well.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial import native
from meshtrial.testbed.local import apps

APP = "tiers"
_OFF = tuple(part for kind in ("grpc", "tcp", "udp", "redirect") for part in (f"-{kind}-port", "disabled"))


def _command(address: str, http_port: int, _: int) -> tuple[str, ...]:
    return (str(native.find("fortio")), "server", "-http-port", f"{address}:{http_port}", *_OFF, "-quiet")


# The one application of this backend that stands on three tiers: known by name like the others.
apps.APPS.setdefault(APP, apps.App(APP, _command, "/", lambda: {"fortio": native.version("fortio")}))


def server_command(at: tuple[str, int]) -> tuple[str, ...]:
    """The last tier: an echo that holds as long as the caller's query says."""
    return _command(*at, 0)


def client_command(
    own: tuple[str, int], listeners: Sequence[tuple[str, int]], onward: Sequence[tuple[str, int]], hold_ms: float
) -> tuple[str, ...]:
    """The middle tier: listener i calls ``onward[i]``, then holds.

    Parameters
    ----------
    own : tuple of (str, int)
        Where the process answers its own holds.
    listeners, onward : sequence of (str, int)
        Of the same length, one of each for every replica.
    """
    query = f"echo?delay={hold_ms:g}ms"
    hold = f"http://{own[0]}:{own[1]}/{query}"
    forward: list[str] = []
    for (address, port), (to, to_port) in zip(listeners, onward, strict=True):
        forward += ["-M", f"{address}:{port} http://{to}:{to_port}/{query} {hold}"]
    return (*_command(*own, 0), "-multi-serial-mode", "-multi-mirror-origin=false", *forward)
