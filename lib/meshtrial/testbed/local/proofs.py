"""Proofs shared by data planes: no proxy in the path, mutual TLS really required, counters that grew with requests.

A proof tests the effect (a refused request, a counter that grew), never the configuration that should cause it.
"""

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
Counters = Mapping[tuple[str, str], int]  # by (name, who counts)


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
    # The foreign client trusts our authority, so that only the server can refuse the connection.
    foreign = replace(keys.foreign, authority=keys.client.authority)
    wrong = {
        "plaintext refused": wire.speak_h2(*endpoint),
        "no certificate refused": wire.speak_h2(*endpoint, keys.client, present=False),
        "wrong identity refused": wire.speak_h2(*endpoint, keys.stranger),
        "foreign authority refused": wire.speak_h2(*endpoint, foreign),
    }
    return [
        Proof("peer certificate", phase, accepted, expected, right.peer or right.detail),
        *(Proof(name, phase, not answer.accepted, "refused", answer.detail) for name, answer in wrong.items()),
    ]


def carried(server: Proxy) -> int:
    """Return the number of requests that a server's sidecar has received since its start."""
    return sum(server.stats("^http.inbound.downstream_rq_total$").values())


def counter_prover(counters: Mapping[str, tuple[Sequence[Proxy], Sequence[str]]], per_request: int) -> Prover:
    """Prove that counters, summed over proxies and names, grow by at least ``per_request`` for every request."""

    def counts() -> Counters:
        counted: dict[tuple[str, str], int] = {}
        for name, (proxies, summed) in counters.items():
            pattern = f"^({'|'.join(map(re.escape, summed))})$"
            counted |= {(name, numbered_start(p)): sum(p.stats(pattern).values()) for p in proxies}
        return counted

    return growth_prover(counts, lambda requests: dict.fromkeys(counters, per_request * requests))


def numbered_start(proxy: Proxy) -> str:
    """Return a proxy's name with the number of its start, with which its counters begin at zero."""
    return f"{proxy.name} {proxy.starts}"


def growth_prover(
    counts: Callable[[], Counters], expected: Callable[[int], Mapping[str, int]], settle_s: float = 0.0
) -> Prover:
    """Prove that counters grow by at least ``expected(requests)``; counters of one name are summed."""

    def judge(growth: Counters, phase: str, requests: int) -> list[Proof]:
        proofs = []
        for name, least in expected(requests).items():
            grown = sum(value for (counted, _), value in growth.items() if counted == name)
            proofs.append(Proof(name, phase, grown >= least > 0, f"at least {least}", str(grown)))
        return proofs

    return before_and_after(counts, judge, settle_s)


def before_and_after(
    counts: Callable[[], Counters], judge: Callable[[Counters, str, int], list[Proof]], settle_s: float = 0.0
) -> Prover:
    """Prove something by the growth of counters during the load, within ``settle_s`` of its end.

    ``judge`` gets the growth, the phase and the requests sent.
    """
    before: dict[tuple[str, str], int] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []

        def proofs() -> list[Proof]:
            return judge({key: value - before.get(key, 0) for key, value in counts().items()}, phase, requests)

        return waiting.until(proofs, settle_s, 0.2, lambda proofs: all(proof.passed for proof in proofs))

    return prove


def direct_prover(spec: Spec, fleet: Fleet, component: str, endpoints: Sequence[Endpoint]) -> Prover:
    """Prove that the application itself listens on the called addresses and that no proxy answers in its place."""

    def prove(phase: str, _: int) -> list[Proof]:
        proofs = [prove_app_listens(fleet, component, "no proxy in the path", "at the target", endpoints, phase)]
        if not spec.load.only_grpc and spec.load.protocol != "tcp":
            answer = wire.http_get(*endpoints[0], spec.app.path)
            # Headers that reveal a proxy.
            traces = sorted({"via", "x-envoy-upstream-service-time"}.intersection(answer.headers))
            traces += ["server: envoy"] if answer.headers.get("server", "").lower() == "envoy" else []
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


def share_prover(servers: Sequence[Proxy]) -> Prover:
    """Prove that each copy's sidecar receives at least half of an equal share of the requests."""

    def judge(growth: Counters, phase: str, requests: int) -> list[Proof]:
        least = requests // (2 * len(servers))
        passed = min(growth.values()) >= least > 0
        expected = f"at least {least} through each of {len(servers)}"
        return [Proof("each copy has its share", phase, passed, expected, ", ".join(map(str, growth.values())))]

    return before_and_after(
        lambda: {("requests", numbered_start(server)): carried(server) for server in servers}, judge
    )


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
