"""Three tiers of up to 200 endpoints each, every endpoint with its own Envoy under mutual TLS.

    load generator -> [sidecar] -> [sidecar] -> client -> [sidecar] -> [sidecar] -> server

The client and the server hold each request for a known time, like an application that works. The project's own control
plane configures the sidecars. Every endpoint has a loopback address of its own (127.a.tier.replica) and the same ports,
so an address identifies tier and replica, and ports need not be searched. Limits: one machine carries all tiers, so
they share CPUs that they would not share on a cluster. The replicas of a tier are addresses of one process, so the
application's share is smaller than with real replicas.
"""

import functools
import secrets
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from meshtrial.design.load import Load
from meshtrial.design.study import Study, Treatment
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.keys import Identity
from meshtrial.errors import TestbedError, UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import controlplane, host, proc
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
_OWN = 250  # replica number of the address that a tier's one process listens on
_PUSHES = 3
_START_S = 60.0
_CONFIGURE_S = 240.0
_READERS = 8
# Resources that a proxy needs, rounded up: an Envoy 1.40 with one worker that knows 400 endpoints used 43 file handles,
# 7 threads and about 16 MiB. Each unused service added 82 KiB.
_FILES_PER_PROXY, _THREADS_PER_PROXY, _PSS_PER_PROXY = 50, 7, 17 * 2**20
_PSS_PER_UNUSED_SERVICE = 90 * 2**10
_BASE_FILES, _BASE_THREADS, _BASE_PSS = 500, 120, 400 * 2**20
_LIMITS = (  # field of `Resources`, unit, label, remedy
    ("files_per_process", 1, "open files per process", "raise `ulimit -n`"),
    ("files", 1, "open files in total", "raise the sysctl fs.file-max"),
    ("threads", 1, "threads", "raise `ulimit -u`, kernel.threads-max or the pids cgroup"),
    ("memory_bytes", 2**20, "MiB of memory", "use a larger machine"),
)


def has_sidecars(treatment: Treatment) -> bool:
    """Return whether a treatment has a sidecar at every endpoint; UsageError if this application does not have it."""
    if treatment.version:
        raise UsageError(f"treatment {treatment.name}: the sidecars of the app {APP} have no versions; leave out @")
    if treatment.dataplane == "none" and not treatment.features:
        return False
    if treatment.dataplane == "sidecar" and treatment.features in (("mtls",), ("mtls", "scoped")):
        return True
    raise UsageError(
        f"treatment {treatment.name!r}: the app {APP} offers none, sidecar+mtls (every proxy knows every endpoint) "
        "and sidecar+mtls+scoped (a proxy knows only what it calls)"
    )


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for treatments that this application lacks, and loads that reach endpoints unequally."""
    has_sidecars(treatment)
    if load.protocol != "http1" or load.replicas > MOST_REPLICAS or load.connections % load.replicas:
        raise UsageError(
            f"{load.label}: the app {APP} needs http1, 1 to {MOST_REPLICAS} replicas per tier, and a number of "
            "connections that is a multiple of the replicas, so that every endpoint gets the same share"
        )


def needs(load: Load, sidecars: bool, scoped: bool = False) -> host.Resources:
    """Return what a load needs, with or without sidecars; ``scoped`` ones do not know unused services."""
    proxies = len(TIERS) * load.replicas if sidecars else 0
    unused = 0 if scoped else load.unused_services
    # A request in flight holds a socket on both sides of every hop, and idle connections stay open.
    sockets = 2 * load.connections + 2 * len(TIERS) * load.replicas
    widest = max(2 * load.connections + load.replicas, proxies) + 200
    return host.Resources(
        files_per_process=widest,
        files=proxies * _FILES_PER_PROXY + 4 * sockets + _BASE_FILES,
        threads=proxies * _THREADS_PER_PROXY + _BASE_THREADS,
        memory_bytes=proxies * (_PSS_PER_PROXY + unused * _PSS_PER_UNUSED_SERVICE) + _BASE_PSS,
    )


def shortfalls(load: Load, required: host.Resources, available: host.Resources) -> tuple[str, ...]:
    """Return one line for each resource that is too small, with both numbers and what to do."""
    size, lists = f"{len(TIERS) * load.replicas} endpoints", "`sizes`"
    if load.unused_services:
        size, lists = f"{size} and {load.unused_services} unused services", "`sizes` or `unused_services`"
    lines = []
    for name, unit, label, remedy in _LIMITS:
        needed, limit = getattr(required, name), getattr(available, name)
        if limit is not None and limit // unit < needed // unit:
            numbers = f"{needed // unit} {label} are needed and {limit // unit} are available"
            lines.append(f"{size}: {numbers}; {remedy}, or remove this size from {lists}")
    return tuple(lines)


def problems(study: Study) -> tuple[str, ...]:
    """Return what this machine lacks for the study's sizes; UsageError for what no machine can provide."""
    if study.order == "growing":
        raise UsageError("order = 'growing': here every size is a fresh deployment; take ascending, or a cluster")
    sidecars = True in [has_sidecars(treatment) for treatment in study.treatments]  # all are checked
    available = host.available()
    scoped = all(treatment.has("scoped") for treatment in study.treatments if has_sidecars(treatment))
    lines = [line for load in study.loads for line in shortfalls(load, needs(load, sidecars, scoped), available)]
    return tuple(dict.fromkeys(lines))


@dataclass(frozen=True)
class Layout:
    """Addresses of all endpoints."""

    replicas: int  # endpoints per tier
    network: str  # two octets, e.g. ``127.83``

    def address(self, tier: str, replica: int) -> str:
        """Return the loopback address of a replica, numbered from 1."""
        return f"{self.network}.{TIERS.index(tier)}.{replica}"

    def application(self, tier: str) -> Endpoint:
        """Return the endpoint of a tier's one application process."""
        return self.address(tier, _OWN), APPLICATION

    def all(self, tier: str, port: int) -> list[Endpoint]:
        """Return the endpoints of every replica of a tier at one port."""
        return [(self.address(tier, replica), port) for replica in range(1, self.replicas + 1)]

    def nodes(self) -> list[dict[str, Any]]:
        """Return every endpoint in the form of the control plane's topology file, tier by tier."""
        return [self._node(tier, replica) for tier in TIERS for replica in range(1, self.replicas + 1)]

    def _node(self, tier: str, replica: int) -> dict[str, Any]:
        address = self.address(tier, replica)
        node: dict[str, Any] = {"id": f"{tier}-{replica}", "role": tier, "admin": f"{address}:{ADMIN}"}
        if tier != TIERS[0]:
            # The servers are one process at one address; a client's listener identifies the replica that was called.
            application = self.application(tier) if tier == TIERS[-1] else (address, APPLICATION)
            node |= {"inbound": f"{address}:{INBOUND}", "application": host_port(application)}
        if CALLS[tier]:
            node["outbound"] = f"{address}:{OUTBOUND}"
        return node

    def added(self, number: int) -> dict[str, Any]:
        """Return a further endpoint that callers learn about but do not call, by which a push is measured."""
        address = self.address("server", MOST_REPLICAS + number)
        return {"id": f"added-{number}", "role": "server", "inbound": f"{address}:{INBOUND}", "no_traffic": True}

    def proxy_listeners(self) -> list[Endpoint]:
        """Return all endpoints on which the sidecars will listen."""
        listening = {ADMIN: TIERS, INBOUND: TIERS[1:], OUTBOUND: TIERS[:-1]}
        return [at for port, tiers in listening.items() for tier in tiers for at in self.all(tier, port)]


def free_layout(replicas: int, sidecars: bool, attempts: int = 20) -> Layout:
    """Return a layout whose addresses are all free; TestbedError if each of ``attempts`` networks is in use."""
    for _ in range(attempts):
        layout = Layout(replicas, f"127.{secrets.randbelow(200) + 20}")
        endpoints = [layout.application("client"), layout.application("server"), *layout.all("client", APPLICATION)]
        if all(_is_free(*at) for at in (*endpoints, *(layout.proxy_listeners() if sidecars else ()))):
            return layout
    raise TestbedError(
        f"three tiers of {replicas}: ports {ADMIN}, {OUTBOUND}, {INBOUND} or {APPLICATION} are in use on each of "
        f"{attempts} loopback networks; stop the program that listens on one of them on all addresses (0.0.0.0)"
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended deployment (TIME_WAIT) do not block the address, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def topology(
    layout: Layout, identities: Mapping[str, Identity], *, scoped: bool, spread: int, unused: int = 0
) -> dict[str, Any]:
    """Return the control plane's topology file, with full or scoped configuration.

    Full configuration tells every proxy about all endpoints and about ``unused`` further services.
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
    """Return the command of the middle tier: listener i calls ``onward[i]`` and then holds, by a request to ``own``.

    fortio forwards a request to a list of addresses and answers with the status of the first. So the onward call comes
    first and the hold second: the hold's success cannot hide a failure further down.
    """
    query = f"echo?delay={hold_ms:g}ms"
    hold = f"http://{host_port(own)}/{query}"
    forward: list[str] = []
    for listener, to in zip(listeners, onward, strict=True):
        forward += ["-M", f"{host_port(listener)} http://{host_port(to)}/{query} {hold}"]
    return (*fortio_server(*own), "-multi-serial-mode", "-multi-mirror-origin=false", *forward)


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the tiers with or without sidecars, each process after those that it depends on."""
    sidecars = has_sidecars(spec.treatment)
    layout = free_layout(spec.load.replicas, sidecars)
    hold_s = float(spec.options.get("hold_ms", HOLD_MS)) / 1e3
    spread = int(spec.options.get("spread", SPREAD)) if sidecars else 0
    endpoints = len(TIERS) * layout.replicas
    proxies = endpoints if sidecars else 0
    facts = Facts(hold_s=2 * hold_s, endpoints=endpoints, proxies=proxies, notes={"spread": spread})
    _start_apps(spec, fleet, layout, hold_s, sidecars)
    listeners = layout.all("client", APPLICATION)
    if not sidecars:
        ends = dict.fromkeys((listeners[0], listeners[-1]))
        provers = [direct_prover(spec, fleet, "client-app", [at]) for at in ends]
        return Started(spec.target([fleet.start_fan_out(listeners)]), provers, facts=lambda: facts)
    identities = Identities(fleet, TIERS)
    plane = _start_mesh(spec, fleet, layout, identities, facts)
    return Started(
        spec.target([fleet.start_fan_out(layout.all("load-generator", OUTBOUND))]),
        _mesh_provers(spec, layout, identities),
        facts=functools.partial(_with_pushes, plane, layout, facts),
    )


def _start_apps(spec: Spec, fleet: Fleet, layout: Layout, hold_s: float, sidecars: bool) -> None:
    fleet.versions.update(spec.app.versions())
    server, client = layout.application("server"), layout.application("client")
    fleet.start("server-app", "app", fortio_server(*server), [server])
    onward = layout.all("client", OUTBOUND) if sidecars else [server] * layout.replicas
    listeners = layout.all("client", APPLICATION)
    child = fleet.start("client-app", "app", client_command(client, listeners, onward, hold_s * 1e3), [client])
    # fortio keeps running if it cannot listen on one of many addresses, so check each.
    wait_listening(child, listeners, _START_S)


def _start_mesh(spec: Spec, fleet: Fleet, layout: Layout, identities: Identities, facts: Facts) -> ControlPlane:
    """Start the control plane and all sidecars, and add to ``facts`` what their start took."""
    spread, scoped = facts.notes["spread"], spec.treatment.has("scoped")
    content = topology(layout, identities.by_name, scoped=scoped, spread=spread, unused=spec.load.unused_services)
    plane, bootstraps = controlplane.start(fleet, content)
    began = time.monotonic()
    groups = {f"{tier} sidecars": [node["id"] for node in layout.nodes() if node["role"] == tier] for tier in TIERS}
    batch = fleet.start_batch(groups, bootstraps, _CONFIGURE_S)
    spawned_s = time.monotonic() - began
    plane.wait_configured(batch.require_alive, _CONFIGURE_S)
    wait_listening(batch.launcher, layout.proxy_listeners(), _START_S, itself=False)
    configured_s = time.monotonic() - began
    stats, plane_pid = plane.stats(), fleet.child("control-plane").pid
    plane_cpu_s = proc.counters(proc.MonitoredProcess("control-plane", "control plane", (plane_pid,))).cpu_s
    facts.notes["start"] = {
        "forked": batch.forked,
        "spawned_s": spawned_s,
        "configured_s": configured_s,
        "proxies_cpu_s": proc.counters(proc.MonitoredProcess("sidecars", "data plane", batch.pids)).cpu_s,
        "control_plane_cpu_s": plane_cpu_s,
        "bytes_by_type": stats["by_type"],
        "pushes": stats["pushes"],
    }
    facts.responses |= {
        "config_time_s": configured_s,
        "config_cpu_s": plane_cpu_s,
        "config_bytes": float(stats["bytes_pushed"]),
    }
    return plane


def _with_pushes(plane: ControlPlane, layout: Layout, facts: Facts) -> Facts:
    """Add endpoints after the load, and return the facts with what these pushes took."""
    pushes = [plane.push(layout.added(number)) for number in range(1, _PUSHES + 1)]
    measured = {
        "push_time_s": statistics.median(push["last_s"] for push in pushes),
        "push_bytes": float(statistics.median(push["bytes"] for push in pushes)),
    }
    return replace(facts, responses=facts.responses | measured, notes=facts.notes | {"pushes": pushes})


def _mesh_provers(spec: Spec, layout: Layout, identities: Identities) -> list[Prover]:
    provers: list[Prover] = [lambda phase, _: prove_hops(identities, layout, phase)]
    if unused := spec.load.unused_services:
        # Each sidecar has a cluster for the control plane and, except in the generators' tier, one for its application.
        # With full configuration it also has those of all services, with scoped only that of the tier that it calls.
        scoped = spec.treatment.has("scoped")
        services = {tier: bool(CALLS[tier]) if scoped else len(TIERS) + unused for tier in TIERS}
        known = {
            f"a {tier} sidecar": ((layout.address(tier, 1), ADMIN), (1 if tier == TIERS[0] else 2) + services[tier])
            for tier in TIERS
        }
        provers.append(lambda phase, _: controlplane.prove_known(known, phase))
    return [*provers, lambda phase, requests: prove_traffic(layout, requests) if phase == "after" else []]


def prove_hops(identities: Identities, layout: Layout, phase: str) -> list[Proof]:
    """Prove mutual TLS between the tiers, at the first and the last endpoint of each hop."""
    proofs = []
    for caller, called in pairwise(TIERS):
        keys = identities.hop(caller, called)
        for replica in sorted({1, layout.replicas}):
            at = (layout.address(called, replica), INBOUND)
            checked = prove_mtls(keys, at, phase)
            proofs += [replace(proof, name=f"{proof.name}, {called} {replica}") for proof in checked]
    return proofs


def prove_traffic(layout: Layout, requests: int) -> list[Proof]:
    """Prove that every endpoint of the two called tiers was reached, and that together they received every request."""
    proofs = []
    for tier in TIERS[1:]:
        counts = inbound_counts(layout, tier)
        reached = sum(count > 0 for count in counts)
        observed = f"{reached} of {len(counts)}"
        proofs.append(
            Proof(f"traffic at every {tier} endpoint", "after", reached == len(counts), "all reached", observed)
        )
        total = sum(counts)
        passed = total >= requests > 0
        proofs.append(
            Proof(f"requests through the {tier} sidecars", "after", passed, f"at least {requests}", str(total))
        )
    return proofs


def inbound_counts(layout: Layout, tier: str) -> list[int]:
    """Return the requests that each sidecar of a tier has received since it started."""
    sidecars = [Proxy(f"sidecar at {at[0]}", at) for at in layout.all(tier, ADMIN)]
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(carried, sidecars))
