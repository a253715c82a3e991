"""Who is in the mesh and at which address: pure data, and the file that the control plane reads.

Every endpoint has a loopback address of its own (127.a.tier.replica) and the same ports everywhere, so an address
tells the tier and the replica, and no port has to be looked for.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshtrial.envoy.pki import Identity
from meshtrial.errors import TestbedError, UsageError

TIERS = ("load-generator", "client", "server")
CALLS = {"load-generator": "client", "client": "server", "server": ""}
MOST_REPLICAS = 200
ADMIN, OUTBOUND, INBOUND, APPLICATION = 15000, 15001, 15006, 8080
_OWN = 250  # the replica number of what a tier has once
UNUSED_ENDPOINTS = 2  # of each service that nobody calls


@dataclass(frozen=True)
class Layout:
    """Addresses of all endpoints."""

    replicas: int  # endpoints a tier
    network: str  # two octets, e.g. ``127.83``

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise UsageError(f"replicas = {self.replicas}: must be 1 to {MOST_REPLICAS} a tier")

    def address(self, tier: str, replica: int) -> str:
        """Loopback address of a replica, from 1."""
        return f"{self.network}.{TIERS.index(tier)}.{replica}"

    def own(self, tier: str) -> tuple[str, int]:
        """Where the one process of a tier's application listens for itself."""
        return self.address(tier, _OWN), APPLICATION

    def all(self, tier: str, port: int) -> list[tuple[str, int]]:
        """The same port of every replica of a tier."""
        return [(self.address(tier, replica), port) for replica in range(1, self.replicas + 1)]

    def nodes(self) -> list[dict[str, Any]]:
        """Every endpoint in the control plane's form, tier after tier."""
        return [self._node(tier, replica) for tier in TIERS for replica in range(1, self.replicas + 1)]

    def _node(self, tier: str, replica: int) -> dict[str, Any]:
        at = self.address(tier, replica)
        made: dict[str, Any] = {"id": f"{tier}-{replica}", "role": tier, "admin": f"{at}:{ADMIN}"}
        if tier != TIERS[0]:
            # The servers are one process at one address; a client's listener tells which replica was called.
            home = self.own(tier) if tier == TIERS[-1] else (at, APPLICATION)
            made |= {"inbound": f"{at}:{INBOUND}", "application": f"{home[0]}:{home[1]}"}
        if CALLS[tier]:
            made["outbound"] = f"{at}:{OUTBOUND}"
        return made

    def added(self, number: int) -> dict[str, Any]:
        """An endpoint more that callers learn about and do not call: what a push is measured with."""
        at = self.address("server", MOST_REPLICAS + number)
        return {"id": f"added-{number}", "role": "server", "inbound": f"{at}:{INBOUND}", "no_traffic": True}

    def proxy_listeners(self) -> list[tuple[str, int]]:
        """Everything that the sidecars will listen on."""
        listeners = []
        for tier in TIERS:
            listeners += self.all(tier, ADMIN)
            listeners += self.all(tier, INBOUND) if tier != TIERS[0] else []
            listeners += self.all(tier, OUTBOUND) if CALLS[tier] else []
        return listeners


def topology(
    layout: Layout, identities: Mapping[str, Identity], *, scoped: bool, spread: int, unused: int = 0
) -> dict[str, Any]:
    """The control plane's file: full configuration or scoped, see ``lib/native/xds-server/topology.go``.

    ``unused`` are services that nobody calls, which full configuration tells every proxy of.
    """
    roles = {
        tier: {
            "spiffe": identities[tier].spiffe,
            "certificate": str(identities[tier].certificate),
            "key": str(identities[tier].key),
            "authority": str(identities[tier].authority),
            "calls": CALLS[tier],
        }
        for tier in TIERS
    }
    return {
        "scope": "scoped" if scoped else "full",
        "extra_services": unused,
        "extra_endpoints": UNUSED_ENDPOINTS,
        "spread": spread,
        "roles": roles,
        "nodes": layout.nodes(),
    }


def free_layout(replicas: int, sidecars: bool, attempts: int = 20) -> Layout:
    """A layout none of whose addresses is in use; TestbedError when every network that was tried is."""
    for _ in range(attempts):
        layout = Layout(replicas, f"127.{secrets.randbelow(200) + 20}")
        wanted = [layout.own("client"), layout.own("server"), *layout.all("client", APPLICATION)]
        if all(_is_free(*at) for at in (*wanted, *(layout.proxy_listeners() if sidecars else ()))):
            return layout
    raise TestbedError(
        f"three tiers of {replicas}: ports {ADMIN}, {OUTBOUND}, {INBOUND} or {APPLICATION} are in use on all of "
        f"{attempts} loopback networks; is something listening on all addresses (0.0.0.0) at one of them?"
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do it: what is left of an ended deployment (TIME_WAIT) is no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
