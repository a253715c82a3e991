"""Several copies of the application: each has its share, and requests are spread by the policy that is meant."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence

from meshtrial.envoy.bootstrap import Proxy
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.pair import Pair

# Requests, one after another, that show a policy: two copies drawn at random keep strict turns with chance 1 in 32,768.
_TURNS = 16
_REQUESTS = "http.inbound.downstream_rq_total"


def share_prover(servers: Sequence[Proxy]) -> Prover:
    """Every copy's sidecar carries a share of the load: at least half of an equal one."""
    before: dict[tuple[str, int], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        counts = {(server.name, server.starts): _carried(server) for server in servers}
        if phase == "before":
            before.update(counts)
            return []
        grown = [counts[start] - before.get(start, 0) for start in counts]
        least = requests // (2 * len(servers))
        expected = f"at least {least} through each of {len(servers)}"
        return [Proof("each copy has its share", phase, min(grown) >= least > 0, expected, ", ".join(map(str, grown)))]

    return prove


def turns_prover(deployment: LocalDeployment, pair: Pair, *, in_turn: bool) -> Prover:
    """Requests one after another go to the copies in turn, or just not in turn."""
    name = "copies take turns" if in_turn else "copies do not take turns"

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase != "before":
            return []
        found = [_served(deployment, pair) for _ in range(_TURNS)]
        copies = len(pair.servers)
        turns = all(one == later for one, later in zip(found, found[copies:], strict=False))
        kept = (turns and len(set(found[:copies])) == copies) == in_turn
        seen = " ".join("?" if one is None else str(one + 1) for one in found)
        return [Proof(name, phase, kept, "a fixed round" if in_turn else "no fixed round", seen)]

    return prove


def connections_prover(server: Proxy, cluster: str) -> Prover:
    """A node proxy that carries bytes spreads connections: every copy had some."""

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            return []
        found = _connections(server, cluster)
        seen = ", ".join(map(str, found))
        return [Proof("connections to each copy", phase, min(found, default=0) > 0, "at least 1 to each", seen)]

    return prove


def _served(deployment: LocalDeployment, pair: Pair) -> int | None:
    """Which copy's sidecar carried one request that is sent now."""
    before = [_carried(server) for server in pair.servers]
    if deployment.load.protocol == "grpc":
        wire.grpc_call(*pair.entry, deployment.app.grpc_path, tuple(pair.headers), "POST")
    else:
        wire.http_get(*pair.entry, deployment.app.path, tuple(pair.headers))
    moved = [copy for copy, server in enumerate(pair.servers) if _carried(server) > before[copy]]
    return moved[0] if len(moved) == 1 else None


def _carried(server: Proxy) -> int:
    return sum(server.stats(f"^{_REQUESTS}$").values())


def _connections(server: Proxy, cluster: str) -> list[int]:
    """Connections to each endpoint of a cluster so far (Envoy's admin interface, ``/clusters``)."""
    url = f"http://{server.admin[0]}:{server.admin[1]}/clusters?format=json"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            told = json.load(answer)["cluster_statuses"]
        hosts = next(one["host_statuses"] for one in told if one["name"] == cluster)
        return [
            sum(int(stat.get("value", 0)) for stat in host["stats"] if stat["name"] == "cx_total") for host in hosts
        ]
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise TestbedError(f"{server.name}: its admin interface does not tell its connections ({error})") from None
