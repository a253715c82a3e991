"""That the treatment is what its label says: mutual TLS on both hops, traffic at every endpoint, or no proxy at all."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from meshtrial.envoy.pki import Authority, Identity
from meshtrial.errors import TestbedError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.processes import owns_listener
from meshtrial.testbed.local.proofs import Keys, prove_mtls
from meshtrial.testbed.local.scaleout.topology import ADMIN, INBOUND, TIERS, Layout

_READERS = 8
_COUNTER = "http.inbound.downstream_rq_total"


class Identities:
    """One identity a tier, and a client's name under a foreign authority, which must be refused."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        authority = Authority(folder)
        self.tiers = {tier: authority.issue(tier) for tier in TIERS}
        self._foreign = Authority(folder, "foreign")
        self._strangers = {tier: self._foreign.issue(tier) for tier in TIERS}

    def hop(self, caller: str, called: str) -> _HopKeys:
        """The right keys of one hop, and wrong ones: a member of the mesh that is not the caller, a foreign one."""
        member = self.tiers[next(tier for tier in TIERS if tier != caller)]
        return _HopKeys(self.tiers[caller], self.tiers[called], member, self._strangers[caller])


class _HopKeys(Keys):
    def __init__(self, client: Identity, server: Identity, stranger: Identity, foreign: Identity) -> None:
        self.client = client
        self.server = server
        self.stranger = stranger
        self.foreign = foreign


def prove_hops(identities: Identities, layout: Layout, phase: str) -> list[Proof]:
    """Mutual TLS between the tiers, at the first and the last endpoint of each hop."""
    found = []
    for caller, called in pairwise(TIERS):
        keys = identities.hop(caller, called)
        for replica in sorted({1, layout.replicas}):
            at = (layout.address(called, replica), INBOUND)
            found += [replace(proof, name=f"{proof.name}, {called} {replica}") for proof in prove_mtls(keys, at, phase)]
    return found


def prove_traffic(layout: Layout, requests: int) -> list[Proof]:
    """Every endpoint of the two called tiers was reached, and together they saw every request."""
    found = []
    for tier in TIERS[1:]:
        counts = inbound_counts(layout, tier)
        quiet = sum(1 for count in counts if count == 0)
        reached = f"{len(counts) - quiet} of {len(counts)}"
        found.append(Proof(f"traffic at every {tier} endpoint", "after", quiet == 0, "all reached", reached))
        total = sum(counts)
        passed = total >= requests > 0
        found.append(
            Proof(f"requests through the {tier} sidecars", "after", passed, f"at least {requests}", str(total))
        )
    return found


def inbound_counts(layout: Layout, tier: str) -> list[int]:
    """Requests that each of a tier's sidecars has taken in since it started."""
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(_inbound_count, layout.all(tier, ADMIN)))


def _inbound_count(admin: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*admin, timeout=10)
    try:
        connection.request("GET", f"/stats?format=json&filter=^{_COUNTER}$")
        stats = json.loads(connection.getresponse().read())["stats"]
        return sum(int(row["value"]) for row in stats if row.get("name") == _COUNTER)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        raise TestbedError(f"sidecar at {admin[0]}: its admin interface does not answer ({error})") from None
    finally:
        connection.close()


def prove_direct(client_pid: int, listeners: Sequence[tuple[str, int]], phase: str) -> list[Proof]:
    """The application itself answers at the first and the last address, without a proxy's headers."""
    found = []
    for at in dict.fromkeys((listeners[0], listeners[-1])):
        owner = owns_listener(client_pid, *at)
        answer = wire.http_get(*at, "/")
        traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
        passed = owner and answer.status == 200 and not traces
        seen = ", ".join(traces) or answer.detail if owner else "another process listens"
        found.append(Proof(f"no proxy before {at[0]}", phase, passed, "HTTP 200 from the app itself", seen))
    return found
