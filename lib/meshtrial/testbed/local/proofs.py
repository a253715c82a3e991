"""Proofs shared by data planes: no proxy in the path, mutual TLS really required, counters that grew with requests.

A proof tests the effect (a refused request, a counter that grew), never the configuration that should cause it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from meshtrial import waiting
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.keys import Authority, Identity
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import sockets, wire
from meshtrial.testbed.local.deployment import Prover, Spec
from meshtrial.testbed.local.fleet import Fleet
from meshtrial.testbed.local.sockets import Endpoint

WRITTEN_S = 6.0  # within which anything that is written with a delay must appear
# Consecutive requests that show a policy: random choice between two copies alternates by chance once in 32,768 cases.
_TURNS = 16


@dataclass(frozen=True)
class Keys:
    """The identities by which mutual TLS of one hop is proven: client, server, and two that must be refused."""

    client: Identity
    server: Identity
    stranger: Identity
    foreign: Identity


class Identities:
    """The identities of a deployment, in its folder, and identities of the same names by a foreign authority."""

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        folder = fleet.folder / "keys"
        folder.mkdir(mode=0o700)
        authority, foreign = Authority(folder), Authority(folder, "foreign")
        self.by_name = {name: authority.issue(name) for name in names}
        self._foreign = {name: foreign.issue(name) for name in names}

    def hop(self, caller: str, called: str) -> Keys:
        """Return the keys of one hop; ``foreign`` is the caller's name, certified by the foreign authority."""
        stranger = next(identity for name, identity in self.by_name.items() if name not in (caller, called))
        return Keys(self.by_name[caller], self.by_name[called], stranger, self._foreign[caller])


def make_keys(fleet: Fleet) -> Keys:
    """Make the keys of one hop between a client and a server."""
    return Identities(fleet, ("client", "server", "stranger")).hop("client", "server")


def prove_mtls(keys: Keys, endpoint: Endpoint, phase: str) -> list[Proof]:
    """Prove that the server shows its certificate and refuses plain text and clients without the right certificate."""
    right = wire.speak_h2(*endpoint, keys.client)
    expected = keys.server.spiffe
    accepted = right.accepted and right.peer == expected
    proofs = [Proof("peer certificate", phase, accepted, expected, right.peer or right.detail)]
    # The foreign client trusts our authority, so that only the server can refuse the connection.
    foreign = replace(keys.foreign, authority=keys.client.authority)
    attempts: dict[str, Callable[[], wire.Answer]] = {
        "plaintext refused": lambda: wire.speak_h2(*endpoint),
        "no certificate refused": lambda: wire.speak_h2(*endpoint, keys.client, present=False),
        "wrong identity refused": lambda: wire.speak_h2(*endpoint, keys.stranger),
        "foreign authority refused": lambda: wire.speak_h2(*endpoint, foreign),
    }
    for name, attempt in attempts.items():
        answer = attempt()
        proofs.append(Proof(name, phase, not answer.accepted, "refused", answer.detail))
    return proofs


def carried(server: Proxy) -> int:
    """Return the number of requests that a server's sidecar has received since its start."""
    return sum(server.stats("^http.inbound.downstream_rq_total$").values())


def counter_prover(counters: Mapping[str, tuple[Sequence[Proxy], Sequence[str]]], per_request: int) -> Prover:
    """Prove that counters, summed over proxies and names, grow by at least ``per_request`` for every request."""

    def counts() -> dict[tuple[str, str], int]:
        counted: dict[tuple[str, str], int] = {}
        for name, (proxies, summed) in counters.items():
            pattern = f"^({'|'.join(map(re.escape, summed))})$"
            # The counters of a restarted proxy begin at zero.
            counted |= {(name, f"{p.name} {p.starts}"): sum(p.stats(pattern).values()) for p in proxies}
        return counted

    return growth_prover(counts, lambda requests: dict.fromkeys(counters, per_request * requests))


def growth_prover(
    counts: Callable[[], Mapping[tuple[str, str], int]],
    expected: Callable[[int], Mapping[str, int]],
    settle_s: float = 0.0,
) -> Prover:
    """Prove that counters grow by at least ``expected(requests)``, within ``settle_s`` of the end of the load.

    ``counts`` returns counters by (name, who counts); those of one name are summed.
    """
    before: dict[tuple[str, str], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []
        least = expected(requests)

        def grown() -> dict[str, int]:
            growth = dict.fromkeys(least, 0)
            for (name, counter), value in counts().items():
                if name in growth:
                    growth[name] += value - before.get((name, counter), 0)
            return growth

        growth = waiting.until(grown, settle_s, 0.2, lambda growth: all(growth[name] >= least[name] for name in least))
        return [
            Proof(name, phase, growth[name] >= number > 0, f"at least {number}", str(growth[name]))
            for name, number in least.items()
        ]

    return prove


def direct_prover(spec: Spec, fleet: Fleet, component: str, endpoints: Sequence[Endpoint]) -> Prover:
    """Prove that the application itself listens on the called addresses and that no proxy answers in its place."""

    def prove(phase: str, _: int) -> list[Proof]:
        proofs = [prove_app_listens(fleet, component, "no proxy in the path", "at the target", endpoints, phase)]
        if not spec.load.only_grpc and spec.load.protocol != "tcp":
            answer = wire.http_get(*endpoints[0], spec.app.path)
            traces = _proxy_traces(answer)
            passed = answer.status == 200 and not traces
            seen = ", ".join(traces) or answer.detail
            proofs.append(Proof("no proxy headers", phase, passed, "HTTP 200 without a proxy's headers", seen))
        return proofs

    return prove


def prove_app_listens(
    fleet: Fleet, component: str, name: str, where: str, endpoints: Sequence[Endpoint], phase: str
) -> Proof:
    """Prove that a process of the application itself listens on the endpoints."""
    owned = not sockets.foreign(fleet.child(component).pid, endpoints)
    observed = "the app's own process" if owned else "another process"
    return Proof(name, phase, owned, f"the app itself listens {where}", observed)


def _proxy_traces(answer: wire.HttpAnswer) -> list[str]:
    """Return the headers of an answer that reveal a proxy."""
    traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
    return [*traces, "server: envoy"] if answer.headers.get("server", "").lower() == "envoy" else traces


def share_prover(servers: Sequence[Proxy]) -> Prover:
    """Prove that each copy's sidecar receives at least half of an equal share of the requests."""
    before: dict[tuple[str, int], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        counts = {(server.name, server.starts): carried(server) for server in servers}
        if phase == "before":
            before.update(counts)
            return []
        grown = [counts[start] - before.get(start, 0) for start in counts]
        least = requests // (2 * len(servers))
        shares = ", ".join(map(str, grown))
        expected = f"at least {least} through each of {len(servers)}"
        return [Proof("each copy has its share", phase, min(grown) >= least > 0, expected, shares)]

    return prove


def turns_prover(servers: Sequence[Proxy], ask: Callable[[], object], *, in_turn: bool) -> Prover:
    """Prove that consecutive requests, sent by ``ask``, go to the copies in turn, or with ``in_turn=False`` do not."""
    name = "copies take turns" if in_turn else "copies do not take turns"

    def served() -> int | None:
        """Send one request; return the copy whose sidecar received it, None if that is unclear."""
        before = [carried(server) for server in servers]
        ask()
        moved = [copy for copy, server in enumerate(servers) if carried(server) > before[copy]]
        return moved[0] if len(moved) == 1 else None

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase != "before":
            return []
        order = [served() for _ in range(_TURNS)]
        copies = len(servers)
        turns = all(copy == next_copy for copy, next_copy in zip(order, order[copies:], strict=False))
        passed = (turns and len(set(order[:copies])) == copies) == in_turn
        observed = " ".join("?" if copy is None else str(copy + 1) for copy in order)
        return [Proof(name, phase, passed, "a fixed round" if in_turn else "no fixed round", observed)]

    return prove


def connections_prover(server: Proxy, cluster: str) -> Prover:
    """Prove that a node proxy, which carries bytes, opened connections to every copy."""

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            return []
        clusters = server.query("/clusters?format=json", "cluster_statuses")
        hosts: list[Json] = next((row.get("host_statuses", []) for row in clusters if row["name"] == cluster), [])
        stats = ({stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", [])} for host in hosts)
        counts = [host_stats.get("cx_total", 0) for host_stats in stats]
        passed = min(counts, default=0) > 0
        return [Proof("connections to each copy", phase, passed, "at least 1 to each", ", ".join(map(str, counts)))]

    return prove
