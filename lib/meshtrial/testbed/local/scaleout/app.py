"""The application of the three tiers and what leads to it: a fortio for all clients, one for all servers, a fan-out.

fortio forwards a request to a list of addresses and answers with the status of the first, so the onward call comes
first and the client's own hold second: a failure further down is never hidden behind a hold that went well.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.testbed.local.apps import fortio_server
from meshtrial.testbed.local.sockets import Endpoint

APP = "tiers"


def client_command(
    own: Endpoint, listeners: Sequence[Endpoint], onward: Sequence[Endpoint], hold_ms: float
) -> tuple[str, ...]:
    """The middle tier: listener i, of a replica each, calls ``onward[i]``, then holds; ``own`` answers the holds."""
    query = f"echo?delay={hold_ms:g}ms"
    hold = f"http://{own[0]}:{own[1]}/{query}"
    forward: list[str] = []
    for (address, port), (to, to_port) in zip(listeners, onward, strict=True):
        forward += ["-M", f"{address}:{port} http://{to}:{to_port}/{query} {hold}"]
    return (*fortio_server(*own), "-multi-serial-mode", "-multi-mirror-origin=false", *forward)


def fan_out(admin: Endpoint, entry: Endpoint, endpoints: Sequence[Endpoint]) -> Proxy:
    """One address in front of all endpoints of the first tier, which fortio calls.

    As plain TCP proxy it deals connections out in turn, so with a multiple of the replicas every endpoint gets the
    same number. It belongs to the load generator: the same in every treatment, and counted there.
    """
    listener = envoy.listener("entry", *entry, [envoy.tcp_proxy("fan_out", "endpoints")])
    return Proxy("fan-out", admin, [listener], [envoy.cluster("endpoints", *endpoints[0], *endpoints[1:])])
