"""Proofs shared by data planes: no proxy in the path, mutual TLS really asked for, counters that moved with requests.

A proof asks for the effect (a refused request, a counter that moved), never for the configuration that was meant to
cause it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from meshtrial import waiting
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.pki import Authority, Identity
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import sockets, wire
from meshtrial.testbed.local.deployment import Prover, Spec
from meshtrial.testbed.local.fleet import Fleet
from meshtrial.testbed.local.sockets import Endpoint

WRITTEN_S = 6.0  # until what is written with a delay must be there
# Requests, one after another, that show a policy: two copies drawn at random keep strict turns with chance 1 in 32,768.
_TURNS = 16


@dataclass(frozen=True)
class Keys:
    """The identities that one hop is proven with: client, server, and wrong ones."""

    client: Identity
    server: Identity
    stranger: Identity
    foreign: Identity


class Identities:
    """The identities of a deployment in its folder, and as many of the same names under a foreign authority."""

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        folder = fleet.folder / "keys"
        folder.mkdir(mode=0o700)
        authority, foreign = Authority(folder), Authority(folder, "foreign")
        self.by_name = {name: authority.issue(name) for name in names}
        self._foreign = {name: foreign.issue(name) for name in names}

    def hop(self, caller: str, called: str) -> Keys:
        """The right keys of one hop, and wrong ones: another identity than these two, and a foreign caller."""
        stranger = next(identity for name, identity in self.by_name.items() if name not in (caller, called))
        return Keys(self.by_name[caller], self.by_name[called], stranger, self._foreign[caller])


def make_keys(fleet: Fleet) -> Keys:
    """Fresh ones for a client and a server."""
    return Identities(fleet, ("client", "server", "stranger")).hop("client", "server")


def prove_mtls(keys: Keys, endpoint: Endpoint, phase: str) -> list[Proof]:
    """The peer's certificate is seen; plain text, no certificate, a wrong name and a foreign authority are refused."""
    right = wire.speak_h2(*endpoint, keys.client)
    expected = keys.server.spiffe
    seen = right.peer or right.detail
    proofs = [Proof("peer certificate", phase, right.accepted and right.peer == expected, expected, seen)]
    # The foreign client keeps our trust root, so that only the server's judgement is tested.
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
    """Requests that a server's sidecar has taken in since it was started."""
    return sum(server.stats("^http.inbound.downstream_rq_total$").values())


def counter_prover(counters: Mapping[str, tuple[Sequence[Proxy], Sequence[str]]], per_request: int) -> Prover:
    """Counters, summed over proxies and names, that must grow by ``per_request`` for every request, or more."""

    def counts() -> dict[tuple[str, str], int]:
        counted: dict[tuple[str, str], int] = {}
        for name, (proxies, summed) in counters.items():
            pattern = f"^({'|'.join(map(re.escape, summed))})$"
            # A proxy that was restarted counts from zero again.
            counted |= {(name, f"{p.name} {p.starts}"): sum(p.stats(pattern).values()) for p in proxies}
        return counted

    return growth_prover(counts, lambda requests: dict.fromkeys(counters, per_request * requests))


def growth_prover(
    counts: Callable[[], Mapping[tuple[str, str], int]],
    wanted: Callable[[int], Mapping[str, int]],
    settle_s: float = 0.0,
) -> Prover:
    """Proofs that counters have grown by what so many requests want; what is written with a delay is waited for.

    ``counts`` has each counter by its name and by who counts: those of one name are summed.
    """
    before: dict[tuple[str, str], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []
        least = wanted(requests)

        def grown() -> dict[str, int]:
            growth = dict.fromkeys(least, 0)
            for (name, counter), value in counts().items():
                if name in growth:
                    growth[name] += value - before.get((name, counter), 0)
            return growth

        seen = waiting.until(grown, settle_s, 0.2, lambda growth: all(growth[name] >= least[name] for name in least))
        return [
            Proof(name, phase, seen[name] >= number > 0, f"at least {number}", str(seen[name]))
            for name, number in least.items()
        ]

    return prove


def direct_prover(spec: Spec, fleet: Fleet, component: str, endpoints: Sequence[Endpoint]) -> Prover:
    """The addresses that are called are the application's own: nothing listens or answers in its place."""

    def prove(phase: str, _: int) -> list[Proof]:
        proofs = [prove_own(fleet, component, "no proxy in the path", "at the target", endpoints, phase)]
        if spec.load.protocol not in ("grpc", "tcp"):
            answer = wire.http_get(*endpoints[0], spec.app.path)
            traces = _proxy_traces(answer)
            passed = answer.status == 200 and not traces
            seen = ", ".join(traces) or answer.detail
            proofs.append(Proof("no proxy headers", phase, passed, "HTTP 200 without a proxy's headers", seen))
        return proofs

    return prove


def prove_own(fleet: Fleet, component: str, name: str, where: str, endpoints: Sequence[Endpoint], phase: str) -> Proof:
    """A process of the application listens itself."""
    owned = not sockets.foreign(fleet.child(component).pid, endpoints)
    seen = "the app's own process" if owned else "another process"
    return Proof(name, phase, owned, f"the app itself listens {where}", seen)


def _proxy_traces(answer: wire.HttpAnswer) -> list[str]:
    """What in an answer tells of a proxy."""
    traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
    return [*traces, "server: envoy"] if answer.headers.get("server", "").lower() == "envoy" else traces


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


def turns_prover(servers: Sequence[Proxy], ask: Callable[[], object], *, in_turn: bool) -> Prover:
    """Requests sent by ``ask``, one after another, go to the copies in turn, or just not in turn."""
    name = "copies take turns" if in_turn else "copies do not take turns"

    def served() -> int | None:
        """Which copy's sidecar carried one request that is sent now."""
        before = [carried(server) for server in servers]
        ask()
        moved = [copy for copy, server in enumerate(servers) if carried(server) > before[copy]]
        return moved[0] if len(moved) == 1 else None

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase != "before":
            return []
        order = [served() for _ in range(_TURNS)]
        copies = len(servers)
        turns = all(one == later for one, later in zip(order, order[copies:], strict=False))
        kept = (turns and len(set(order[:copies])) == copies) == in_turn
        seen = " ".join("?" if copy is None else str(copy + 1) for copy in order)
        return [Proof(name, phase, kept, "a fixed round" if in_turn else "no fixed round", seen)]

    return prove


def connections_prover(server: Proxy, cluster: str) -> Prover:
    """A node proxy that carries bytes spreads connections: every copy had some."""

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            return []
        clusters = server.told("/clusters?format=json", "cluster_statuses")
        hosts: list[Json] = next((one.get("host_statuses", []) for one in clusters if one["name"] == cluster), [])
        stats = ({stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", [])} for host in hosts)
        counts = [of_host.get("cx_total", 0) for of_host in stats]
        seen = ", ".join(map(str, counts))
        return [Proof("connections to each copy", phase, min(counts, default=0) > 0, "at least 1 to each", seen)]

    return prove
