"""Proofs shared by data planes: mutual TLS really asked for, counters that moved with the requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.pki import Authority, Identity
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment


class Keys:
    """The identities of one deployment: client, server, and the wrong ones."""

    def __init__(self, deployment: LocalDeployment) -> None:
        folder = deployment.folder / "keys"
        folder.mkdir(mode=0o700)
        authority = Authority(folder)
        self.client = authority.issue("client")
        self.server = authority.issue("server")
        self.stranger = authority.issue("stranger")
        self.foreign = Authority(folder, "foreign").issue("client")


def prove_mtls(keys: Keys, endpoint: tuple[str, int], phase: str) -> list[Proof]:
    """The peer's certificate is seen; plain text, no certificate, a wrong name and a foreign authority are refused."""
    right = wire.speak_h2(*endpoint, keys.client)
    expected = keys.server.spiffe
    seen = right.peer or right.detail
    proofs = [Proof("peer certificate", phase, right.accepted and right.peer == expected, expected, seen)]
    # The foreign client keeps our trust root, so that only the server's judgement is tested.
    foreign = Identity(keys.foreign.spiffe, keys.foreign.certificate, keys.foreign.key, keys.client.authority)
    attempts: dict[str, Callable[[], wire.Answer]] = {
        "plaintext refused": lambda: wire.speak_h2(*endpoint),
        "no certificate refused": lambda: wire.speak_h2_without_certificate(*endpoint, keys.client),
        "wrong identity refused": lambda: wire.speak_h2(*endpoint, keys.stranger),
        "foreign authority refused": lambda: wire.speak_h2(*endpoint, foreign),
    }
    for name, attempt in attempts.items():
        answer = attempt()
        proofs.append(Proof(name, phase, not answer.accepted, "refused", answer.detail))
    return proofs


def counter_prover(
    counters: Mapping[str, tuple[Sequence[Proxy], Sequence[str]]], per_request: int
) -> Callable[[str, int], Sequence[Proof]]:
    """Counters, summed over proxies and names, that must grow by ``per_request`` for every request, or more."""
    before: dict[str, list[tuple[int, int]]] = {}

    def prove(phase: str, requests: int) -> list[Proof]:
        proofs = []
        for name, (proxies, summed) in counters.items():
            pattern = f"^({'|'.join(map(re.escape, summed))})$"
            values = [(proxy.starts, sum(proxy.stats(pattern).values())) for proxy in proxies]
            if phase == "before":
                before[name] = values
                continue
            first = before.get(name, [(0, 0)] * len(values))
            grown = sum(
                now - then * (starts == once) for (starts, now), (once, then) in zip(values, first, strict=True)
            )
            wanted = per_request * requests
            proofs.append(Proof(name, phase, grown >= wanted > 0, f"at least {wanted}", str(grown)))
        return proofs

    return prove


def grown_enough(
    counts: Callable[[], Mapping[str, int]], before: Mapping[str, int], wanted: Mapping[str, int], settle_s: float = 6.0
) -> dict[str, int]:
    """How much counters have grown since ``before``; what is written with a delay is waited for.

    Parameters
    ----------
    counts : callable
        Reads the counters now.
    before, wanted : mapping of str to int
        Their first values, and the growth to wait for.
    settle_s : float
        How long to wait at the most.
    """
    deadline = time.monotonic() + settle_s
    while True:
        now = counts()
        grown = {name: now[name] - before.get(name, 0) for name in wanted}
        if all(grown[name] >= wanted[name] for name in wanted) or time.monotonic() > deadline:
            return grown
        time.sleep(0.2)
