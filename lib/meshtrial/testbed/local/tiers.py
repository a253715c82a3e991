"""Three tiers of up to 200 endpoints each, every endpoint with its own Envoy under mutual TLS.

    load generator -> [sidecar] -> [sidecar] -> client -> [sidecar] -> [sidecar] -> server

The client and the server hold each request for a known time, as an application does that works. The sidecars are
configured by a control plane of our own. Every endpoint has a loopback address of its own (127.a.tier.replica) and the
same ports everywhere, so an address tells the tier and the replica, and no port has to be looked for. Limits: one
machine carries all of it, so CPU is shared by what would have cores of its own on a cluster; the replicas of a tier are
addresses of one process, so the application's share is smaller than that of real replicas.
"""

from __future__ import annotations

import functools
import secrets
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.pki import Identity
from meshtrial.errors import TestbedError, UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import controlplane, proc
from meshtrial.testbed.local.apps import fortio_server
from meshtrial.testbed.local.controlplane import UNUSED_ENDPOINTS, ControlPlane
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.proofs import Identities, carried, direct_prover, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint, wait_listening

APP = "tiers"
TIERS = ("load-generator", "client", "server")
CALLS = {"load-generator": "client", "client": "server", "server": ""}
MOST_REPLICAS = 200
ADMIN, OUTBOUND, INBOUND, APPLICATION = 15000, 15001, 15006, 8080
HOLD_MS, SPREAD = 100.0, 2
_OWN = 250  # the replica number of what a tier has once
_PUSHES = 3
_START_S = 60.0
_CONFIGURE_S = 240.0
_READERS = 8


def has_sidecars(treatment: Treatment) -> bool:
    """Whether a treatment puts a sidecar beside every endpoint; UsageError for one that this application has not."""
    if treatment.version:
        raise UsageError(f"treatment {treatment.name}: the sidecars of the app {APP} have no versions")
    if treatment.dataplane == "none" and not treatment.features:
        return False
    if treatment.dataplane == "sidecar" and treatment.features in (("mtls",), ("mtls", "scoped")):
        return True
    raise UsageError(
        f"treatment {treatment.name!r}: the app {APP} has none, sidecar+mtls (every proxy knows every endpoint) "
        "and sidecar+mtls+scoped (a proxy knows what it calls)"
    )


def check(treatment: Treatment, load: Load) -> None:
    """Refuse treatments that this application has not, and loads that do not reach every endpoint alike."""
    has_sidecars(treatment)
    if load.protocol != "http1" or load.replicas > MOST_REPLICAS or load.connections % load.replicas:
        raise UsageError(
            f"{load.label}: this app speaks http1, to 1 to {MOST_REPLICAS} replicas a tier, and connections are "
            "a multiple of the replicas, so that every endpoint gets the same share"
        )


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

    def own(self, tier: str) -> Endpoint:
        """Where the one process of a tier's application listens for itself."""
        return self.address(tier, _OWN), APPLICATION

    def all(self, tier: str, port: int) -> list[Endpoint]:
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
            made |= {"inbound": f"{at}:{INBOUND}", "application": host_port(home)}
        if CALLS[tier]:
            made["outbound"] = f"{at}:{OUTBOUND}"
        return made

    def added(self, number: int) -> dict[str, Any]:
        """An endpoint more that callers learn about and do not call: what a push is measured with."""
        at = self.address("server", MOST_REPLICAS + number)
        return {"id": f"added-{number}", "role": "server", "inbound": f"{at}:{INBOUND}", "no_traffic": True}

    def proxy_listeners(self) -> list[Endpoint]:
        """Everything that the sidecars will listen on."""
        listeners = []
        for tier in TIERS:
            listeners += self.all(tier, ADMIN)
            listeners += self.all(tier, INBOUND) if tier != TIERS[0] else []
            listeners += self.all(tier, OUTBOUND) if CALLS[tier] else []
        return listeners


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


def topology(
    layout: Layout, identities: Mapping[str, Identity], *, scoped: bool, spread: int, unused: int = 0
) -> dict[str, Any]:
    """The control plane's file: full configuration, or scoped.

    ``unused`` are services that nobody calls, which full configuration tells every proxy of.
    """
    return {
        "scope": "scoped" if scoped else "full",
        "extra_services": unused,
        "extra_endpoints": UNUSED_ENDPOINTS,
        "spread": spread,
        "roles": {tier: controlplane.role(identities[tier], CALLS[tier]) for tier in TIERS},
        "nodes": layout.nodes(),
    }


def client_command(
    own: Endpoint, listeners: Sequence[Endpoint], onward: Sequence[Endpoint], hold_ms: float
) -> tuple[str, ...]:
    """The middle tier: listener i, of a replica each, calls ``onward[i]``, then holds; ``own`` answers the holds.

    fortio forwards a request to a list of addresses and answers with the status of the first, so the onward call comes
    first and the client's own hold second: a failure further down is never hidden behind a hold that went well.
    """
    query = f"echo?delay={hold_ms:g}ms"
    hold = f"http://{host_port(own)}/{query}"
    forward: list[str] = []
    for listener, to in zip(listeners, onward, strict=True):
        forward += ["-M", f"{host_port(listener)} http://{host_port(to)}/{query} {hold}"]
    return (*fortio_server(*own), "-multi-serial-mode", "-multi-mirror-origin=false", *forward)


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start everything, in the order in which it is needed."""
    sidecars = has_sidecars(spec.treatment)
    layout = free_layout(spec.load.replicas, sidecars)
    hold_s = float(spec.options.get("hold_ms", HOLD_MS)) / 1e3
    spread = int(spec.options.get("spread", SPREAD)) if sidecars else 0
    endpoints = len(TIERS) * layout.replicas
    told = Facts(hold_s=2 * hold_s, endpoints=endpoints, proxies=endpoints if sidecars else 0, notes={"spread": spread})
    _start_apps(spec, fleet, layout, hold_s, sidecars)
    listeners = layout.all("client", APPLICATION)
    if not sidecars:
        ends = dict.fromkeys((listeners[0], listeners[-1]))
        provers = [direct_prover(spec, fleet, "client-app", [at]) for at in ends]
        return Started(spec.target([fleet.start_fan_out(listeners)]), provers, facts=lambda: told)
    identities = Identities(fleet, TIERS)
    plane = _start_mesh(spec, fleet, layout, identities, told)
    return Started(
        spec.target([fleet.start_fan_out(layout.all("load-generator", OUTBOUND))]),
        _mesh_provers(spec, layout, identities),
        facts=functools.partial(_pushed, plane, layout, told),
    )


def _start_apps(spec: Spec, fleet: Fleet, layout: Layout, hold_s: float, sidecars: bool) -> None:
    fleet.versions.update(spec.app.versions())
    server, client = layout.own("server"), layout.own("client")
    fleet.start("server-app", "app", fortio_server(*server), [server])
    onward = layout.all("client", OUTBOUND) if sidecars else [server] * layout.replicas
    listeners = layout.all("client", APPLICATION)
    child = fleet.start("client-app", "app", client_command(client, listeners, onward, hold_s * 1e3), [client])
    # fortio goes on when it cannot listen at one of many addresses, so each of them is looked at.
    wait_listening(child, listeners, _START_S)


def _start_mesh(spec: Spec, fleet: Fleet, layout: Layout, identities: Identities, told: Facts) -> ControlPlane:
    """Start the control plane and all sidecars, and note what their start took."""
    spread, scoped = told.notes["spread"], spec.treatment.has("scoped")
    made = topology(layout, identities.by_name, scoped=scoped, spread=spread, unused=spec.load.unused_services)
    plane, bootstraps = controlplane.start(fleet, made)
    began = time.monotonic()
    groups = {f"{tier} sidecars": [n["id"] for n in layout.nodes() if n["role"] == tier] for tier in TIERS}
    batch = fleet.start_batch(groups, bootstraps, _CONFIGURE_S)
    spawned_s = time.monotonic() - began
    plane.wait_configured(batch.require_alive, _CONFIGURE_S)
    wait_listening(batch.launcher, layout.proxy_listeners(), _START_S, itself=False)
    configured_s = time.monotonic() - began
    stats, plane_pid = plane.stats(), fleet.child("control-plane").pid
    plane_cpu_s = proc.counters(proc.MonitoredProcess("control-plane", "control plane", (plane_pid,))).cpu_s
    told.notes["start"] = {
        "forked": batch.forked,
        "spawned_s": spawned_s,
        "configured_s": configured_s,
        "proxies_cpu_s": proc.counters(proc.MonitoredProcess("sidecars", "data plane", batch.pids)).cpu_s,
        "control_plane_cpu_s": plane_cpu_s,
        "bytes_by_type": stats["by_type"],
        "pushes": stats["pushes"],
    }
    told.responses |= {
        "config_time_s": configured_s,
        "config_cpu_s": plane_cpu_s,
        "config_bytes": float(stats["bytes_pushed"]),
    }
    return plane


def _pushed(plane: ControlPlane, layout: Layout, told: Facts) -> Facts:
    """What was told at the start, and what a few pushes take now that the load is over."""
    pushes = [plane.push(layout.added(number)) for number in range(1, _PUSHES + 1)]
    measured = {
        "push_time_s": statistics.median(push.last_s for push in pushes),
        "push_bytes": float(statistics.median(push.bytes for push in pushes)),
    }
    notes = told.notes | {"pushes": [asdict(push) for push in pushes]}
    return replace(told, responses=told.responses | measured, notes=notes)


def _mesh_provers(spec: Spec, layout: Layout, identities: Identities) -> list[Prover]:
    provers: list[Prover] = [lambda phase, _: prove_hops(identities, layout, phase)]
    if unused := spec.load.unused_services:
        # Its own are the control plane and, but for the generators' tier, the application behind it. With all services
        # it has those of the tiers beside them, else what its tier calls.
        scoped = spec.treatment.has("scoped")
        services = {tier: bool(CALLS[tier]) if scoped else len(TIERS) + unused for tier in TIERS}
        known = {
            f"a {tier} sidecar": ((layout.address(tier, 1), ADMIN), (1 if tier == TIERS[0] else 2) + services[tier])
            for tier in TIERS
        }
        provers.append(lambda phase, _: controlplane.prove_known(known, phase))
    return [*provers, lambda phase, requests: prove_traffic(layout, requests) if phase == "after" else []]


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


def inbound_counts(layout: Layout, tier: str) -> list[int]:
    """Requests that each of a tier's sidecars has taken in since it started."""
    sidecars = [Proxy(f"sidecar at {at[0]}", at) for at in layout.all(tier, ADMIN)]
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(carried, sidecars))
