"""Proofs shared by data planes: mutual TLS really asked for, counters that moved with the requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from meshtrial import waiting
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.pki import Authority, Identity
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment, Prover

WRITTEN_S = 6.0  # until what is written with a delay must be there


@dataclass(frozen=True)
class Keys:
    """The identities that one hop is proven with: client, server, and wrong ones."""

    client: Identity
    server: Identity
    stranger: Identity
    foreign: Identity


def make_keys(deployment: LocalDeployment) -> Keys:
    """Fresh ones in the deployment's folder."""
    folder = deployment.folder / "keys"
    folder.mkdir(mode=0o700)
    authority = Authority(folder)
    client, server, stranger = map(authority.issue, ("client", "server", "stranger"))
    return Keys(client, server, stranger, Authority(folder, "foreign").issue("client"))


def prove_mtls(keys: Keys, endpoint: tuple[str, int], phase: str) -> list[Proof]:
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
