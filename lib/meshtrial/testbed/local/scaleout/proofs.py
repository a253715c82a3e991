"""That the treatment is what its label says: mutual TLS on both hops, traffic at every endpoint, or no proxy at all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.pki import Authority
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.direct import proxy_traces
from meshtrial.testbed.local.proofs import Keys, carried, prove_mtls
from meshtrial.testbed.local.scaleout.topology import ADMIN, CALLS, INBOUND, TIERS, Layout
from meshtrial.testbed.local.sockets import Endpoint, foreign

_READERS = 8
_CLUSTERS = r"cluster_manager\.active_clusters"


class Identities:
    """One identity a tier, and a client's name under a foreign authority, which must be refused."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        authority = Authority(folder)
        self.tiers = {tier: authority.issue(tier) for tier in TIERS}
        strangers = Authority(folder, "foreign")
        self._strangers = {tier: strangers.issue(tier) for tier in TIERS}

    def hop(self, caller: str, called: str) -> Keys:
        """The right keys of one hop, and wrong ones: a member of the mesh that is not the caller, a foreign one."""
        member = self.tiers[next(tier for tier in TIERS if tier != caller)]
        return Keys(self.tiers[caller], self.tiers[called], member, self._strangers[caller])


def prove_hops(identities: Identities, layout: Layout, phase: str) -> list[Proof]:
    """Mutual TLS between the tiers, at the first and the last endpoint of each hop."""
    proofs = []
    for caller, called in pairwise(TIERS):
        keys = identities.hop(caller, called)
        for replica in sorted({1, layout.replicas}):
            at = (layout.address(called, replica), INBOUND)
            proofs += [replace(one, name=f"{one.name}, {called} {replica}") for one in prove_mtls(keys, at, phase)]
    return proofs


def prove_traffic(layout: Layout, requests: int) -> list[Proof]:
    """Every endpoint of the two called tiers was reached, and together they saw every request."""
    proofs = []
    for tier in TIERS[1:]:
        counts = inbound_counts(layout, tier)
        quiet = sum(1 for count in counts if count == 0)
        reached = f"{len(counts) - quiet} of {len(counts)}"
        proofs.append(Proof(f"traffic at every {tier} endpoint", "after", quiet == 0, "all reached", reached))
        total = sum(counts)
        passed = total >= requests > 0
        proofs.append(
            Proof(f"requests through the {tier} sidecars", "after", passed, f"at least {requests}", str(total))
        )
    return proofs


def prove_known(layout: Layout, unused: int, phase: str) -> list[Proof]:
    """A sidecar of each tier knows so many services that nobody calls, by the number of its clusters."""
    proofs = []
    for tier in TIERS:
        seen = sum(Proxy(f"sidecar of {tier}", (layout.address(tier, 1), ADMIN)).stats(f"^{_CLUSTERS}$").values())
        # Its own are the control plane and, but for the generators' tier, the application behind it. With all services
        # it has those of the tiers beside them, else what its tier calls.
        own = 1 if tier == TIERS[0] else 2
        expected = own + (len(TIERS) + unused if unused else int(bool(CALLS[tier])))
        proofs.append(
            Proof(f"clusters of a {tier} sidecar", phase, seen == expected, str(expected), str(seen)),
        )
    return proofs


def inbound_counts(layout: Layout, tier: str) -> list[int]:
    """Requests that each of a tier's sidecars has taken in since it started."""
    sidecars = [Proxy(f"sidecar at {at[0]}", at) for at in layout.all(tier, ADMIN)]
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(carried, sidecars))


def prove_direct(client_pid: int, listeners: Sequence[Endpoint], phase: str) -> list[Proof]:
    """The application itself answers at the first and the last address, without a proxy's headers."""
    proofs = []
    for at in dict.fromkeys((listeners[0], listeners[-1])):
        answer = wire.http_get(*at, "/")
        seen = ", ".join(proxy_traces(answer)) or answer.detail
        if foreign(client_pid, [at]):
            seen = "another process listens"
        passed = seen == "HTTP 200"
        proofs.append(Proof(f"no proxy before {at[0]}", phase, passed, "HTTP 200 from the app itself", seen))
    return proofs
