"""Several copies of the application: each has its share, and requests are spread by the policy that is meant."""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import carried

# Requests, one after another, that show a policy: two copies drawn at random keep strict turns with chance 1 in 32,768.
_TURNS = 16


def share_prover(servers: Sequence[Proxy]) -> Prover:
    """Every copy's sidecar carries a share of the load: at least half of an equal one."""
    before: dict[tuple[str, int], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        counts = {(server.name, server.starts): carried(server) for server in servers}
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
        served = [_served(deployment, pair) for _ in range(_TURNS)]
        copies = len(pair.servers)
        turns = all(one == later for one, later in zip(served, served[copies:], strict=False))
        kept = (turns and len(set(served[:copies])) == copies) == in_turn
        seen = " ".join("?" if copy is None else str(copy + 1) for copy in served)
        return [Proof(name, phase, kept, "a fixed round" if in_turn else "no fixed round", seen)]

    return prove


def connections_prover(server: Proxy, cluster: str) -> Prover:
    """A node proxy that carries bytes spreads connections: every copy had some."""

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            return []
        counts = _connections(server, cluster)
        seen = ", ".join(map(str, counts))
        return [Proof("connections to each copy", phase, min(counts, default=0) > 0, "at least 1 to each", seen)]

    return prove


def _served(deployment: LocalDeployment, pair: Pair) -> int | None:
    """Which copy's sidecar carried one request that is sent now."""
    before = [carried(server) for server in pair.servers]
    if deployment.load.protocol == "grpc":
        wire.grpc_call(*pair.entry, deployment.app.grpc_path, tuple(pair.headers), "POST")
    else:
        wire.http_get(*pair.entry, deployment.app.path, tuple(pair.headers))
    moved = [copy for copy, server in enumerate(pair.servers) if carried(server) > before[copy]]
    return moved[0] if len(moved) == 1 else None


def _connections(server: Proxy, cluster: str) -> list[int]:
    """Connections to each endpoint of a cluster so far."""
    clusters = server.told("/clusters?format=json", "cluster_statuses")
    hosts: list[Json] = next((one.get("host_statuses", []) for one in clusters if one["name"] == cluster), [])
    stats = ({stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", [])} for host in hosts)
    return [of_host.get("cx_total", 0) for of_host in stats]
