"""A system of services, each a process with an address of its own and, behind a mesh, its own proxy.

    load generator -> [ingress sidecar] -> [sidecar] service-1 -> [its sidecar] -> [sidecar] service-2 ...

The services (``call-tree``) call each other as the system's path says. With sidecars every call passes that of its
caller and that of its callee, with node proxies the tunnel between two proxies that all services share. Limits: one
machine carries all services, so they share CPUs that they would not share on a cluster. Services are not one process,
because calls within a process need no wake-up, which is much of what a call costs without a mesh.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshtrial import native
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.design.system import Call, CallStep, Step, System, calls_of
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.nodeproxies import LEAST_BYTES, start_tunnel
from meshtrial.testbed.local.proofs import (
    Identities,
    carried,
    direct_prover,
    growth_prover,
    prove_app_listens,
    prove_mtls,
)
from meshtrial.testbed.local.sockets import Endpoint, wait_listening

DELAY = "delay-"  # holds each call of one hop, the last of the path: a negative control of predictions
_FEATURES = {"none": ((),), "sidecar": ((), ("mtls",)), "node-proxy": ((),)}
_START_S = 60.0
_SETTLE_S = 5.0  # for calls that are made after the answer


def delay_us(treatment: Treatment) -> int:
    """Return the delay that a treatment hides in one hop, in microseconds; 0 if none."""
    return next((int(f.removeprefix(DELAY).removesuffix("us")) for f in treatment.features if f.startswith(DELAY)), 0)


def check_treatment(treatment: Treatment) -> None:
    """Raise UsageError for a data plane or a feature that generated systems do not have."""
    features = tuple(name for name in treatment.features if not name.startswith(DELAY))
    delays = treatment.features[len(features) :]
    is_delay = all(name.endswith("us") and name[len(DELAY) : -2].isdigit() for name in delays)
    if features not in _FEATURES.get(treatment.dataplane, ()) or treatment.version or len(delays) > 1 or not is_delay:
        raise UsageError(
            f"treatment {treatment.name!r}: generated systems offer none, sidecar, sidecar+mtls and node-proxy, each "
            f"also with a delay that is hidden in one hop, such as none+{DELAY}3000us"
        )


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for loads that the services do not take."""
    sized = load.payload_bytes or load.response_bytes
    if load.protocol != "http1" or load.replicas > 1 or load.unused_services or sized:
        raise UsageError(
            f"treatment {treatment.name}: generated systems take http1 requests without bodies; leave out replicas, "
            "unused_services, payload_bytes and response_bytes"
        )


@dataclass
class Handler:
    """A service's work for a request: steps of calls that are made at once, and calls after the answer."""

    steps: list[list[Call]] = field(default_factory=list)
    afterwards: list[Call] = field(default_factory=list)


def handlers(system: System) -> dict[str, Handler]:
    """Return what each called service does; its calls that no path contains are made after its answer."""
    (path,) = system.paths.values()
    made = {call.callee: Handler() for call in system.calls}
    _add_steps(made, path[1:], system)
    awaited = set(calls_of(path))
    for call in system.calls:
        if call.pair not in awaited:
            made[call.caller].afterwards.append(call)
    return made


def _add_steps(made: Mapping[str, Handler], path: Sequence[Step], system: System) -> None:
    """Add a path's steps to those who make them; every branch of a parallel step begins with a call of one caller."""
    for step in path:
        if isinstance(step, CallStep):
            made[step.caller].steps.append([system.by_pair[step.pair]])
            continue
        first = [system.by_pair[next(calls_of(branch))] for branch in step.branches]
        made[first[0].caller].steps.append(first)
        for branch in step.branches:
            _add_steps(made, branch[1:], system)


def every(system: System, call: Call) -> int:
    """Return n where a call is made for every n-th request of its caller."""
    rate = next(one.rps for one in system.calls if one.callee == call.caller)
    return round(rate / call.rps)


@dataclass(frozen=True)
class Wiring:
    """Where a system's services listen, and which address a caller uses for each of its calls, by callee."""

    system: System
    apps: Mapping[str, Endpoint]
    called: Mapping[str, Endpoint]

    @property
    def first(self) -> Call:
        """The load generator's call."""
        return self.system.calls[0]

    def services(self, delay_us: int) -> list[Json]:
        """Return the services in the form that ``call-tree`` reads; the delay is in the last hop of the path."""
        (path,) = self.system.paths.values()
        *_, slow = calls_of(path)

        def one(call: Call) -> Json:
            asked = {"url": f"http://{host_port(self.called[call.callee])}/", "connections": call.connections}
            return asked | {"every": every(self.system, call), "delay_us": delay_us if call.pair == slow else 0}

        return [
            {
                "name": name,
                "listen": host_port(self.apps[name]),
                "steps": [[one(call) for call in step] for step in handler.steps],
                "afterwards": [one(call) for call in handler.afterwards],
            }
            for name, handler in handlers(self.system).items()
        ]


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the services with or without proxies, each process after those that it depends on."""
    treatment, system = spec.treatment, spec.system
    assert system is not None, "the testbed refuses a system that the plan does not hold"
    apps = {call.callee: fleet.new_endpoint() for call in system.calls}
    provers: list[Prover]
    if treatment.dataplane == "none":
        wiring = Wiring(system, apps, apps)
        _start_services(spec, fleet, wiring)
        first = wiring.first.callee
        provers = [direct_prover(spec, fleet, first, [apps[first]]), lambda phase, _: _prove_direct(fleet, apps, phase)]
    elif treatment.dataplane == "sidecar":
        wiring = Wiring(system, apps, {name: fleet.new_endpoint() for name in apps})
        _start_services(spec, fleet, wiring)
        provers = _start_sidecars(spec, fleet, wiring)
    else:
        wiring = Wiring(system, apps, {name: fleet.new_endpoint() for name in apps})
        _start_services(spec, fleet, wiring)
        tunnel = start_tunnel(fleet, {name: (wiring.called[name], [app]) for name, app in apps.items()})
        provers = [tunnel.prove_mtls, tunnel.bytes_prover(per_request=LEAST_BYTES["http1"])]
    entry = wiring.called[wiring.first.callee]
    if hidden := delay_us(treatment):
        provers.insert(0, lambda phase, _: _prove_delay(entry, hidden, phase))
    return Started(spec.target([entry]), provers)


def _start_services(spec: Spec, fleet: Fleet, wiring: Wiring) -> None:
    fleet.versions.update(spec.app.versions())
    for service in wiring.services(delay_us(spec.treatment)):
        name = service["name"]
        file = fleet.folder / f"{name}.json"
        file.write_text(json.dumps([service]))
        fleet.start(name, "app", (str(native.find("call-tree")), "-services", str(file)), [wiring.apps[name]])


def _start_sidecars(spec: Spec, fleet: Fleet, wiring: Wiring) -> list[Prover]:
    """Start the sidecars of the load generator and of every service; return their proofs."""
    system, mtls = wiring.system, spec.treatment.has("mtls")
    identities = Identities(fleet, [*system.services])
    inbound = {name: fleet.new_endpoint() for name in wiring.apps}
    sidecars = {name: Proxy(f"{name} sidecar", fleet.new_endpoint()) for name in system.services}
    for call in system.calls:
        keys = identities.hop(*call.pair)
        client = envoy.tls_context(keys.client, keys.server.spiffe, server=False) if mtls else None
        server = envoy.tls_context(keys.server, keys.client.spiffe, server=True) if mtls else None
        of_caller, of_callee = sidecars[call.caller], sidecars[call.callee]
        of_caller.clusters.append(envoy.cluster(call.callee, *inbound[call.callee], http2=True, tls=client))
        outbound = envoy.http_manager("outbound", call.callee)
        of_caller.listeners.append(envoy.listener(f"to {call.callee}", *wiring.called[call.callee], [outbound]))
        of_callee.clusters.append(envoy.cluster("app", *wiring.apps[call.callee]))
        manager = envoy.http_manager("inbound", "app")
        of_callee.listeners.append(envoy.listener("inbound", *inbound[call.callee], [manager], server))
    fleet.note_version("envoy")
    bootstraps = fleet.folder / "bootstraps"
    bootstraps.mkdir()
    for name, proxy in sidecars.items():
        (bootstraps / f"{name}.json").write_text(json.dumps(proxy.bootstrap()))
    batch = fleet.start_batch({proxy.name: [name] for name, proxy in sidecars.items()}, bootstraps, _START_S)
    listening = [*(proxy.admin for proxy in sidecars.values()), *inbound.values(), *wiring.called.values()]
    wait_listening(batch.launcher, listening, _START_S, itself=False)

    def prove_hops(phase: str, _: int) -> list[Proof]:
        proofs = []
        # All before the load; after it two, because no configuration changes while the sidecars run.
        for call in system.calls if phase == "before" else (system.calls[0], system.calls[-1]):
            if mtls:
                proofs += _of_hop(prove_mtls(identities.hop(*call.pair), inbound[call.callee], phase), call.callee)
            else:
                answer = wire.speak_h2(*inbound[call.callee])
                name = f"plaintext to the sidecar, {call.callee}"
                proofs.append(Proof(name, phase, answer.accepted, "accepted", answer.detail))
        return proofs

    def counts() -> dict[tuple[str, str], int]:
        return {(_through(name), name): carried(sidecars[name]) for name in wiring.apps}

    return [prove_hops, growth_prover(counts, lambda requests: _least(system, requests), _SETTLE_S)]


def _prove_direct(fleet: Fleet, apps: Mapping[str, Endpoint], phase: str) -> list[Proof]:
    return [
        prove_app_listens(fleet, name, f"no proxy before {name}", "where it is called", [at], phase)
        for name, at in apps.items()
    ]


def _through(service: str) -> str:
    return f"requests through the sidecar, {service}"


def _of_hop(proofs: Sequence[Proof], service: str) -> list[Proof]:
    return [Proof(f"{p.name}, {service}", p.phase, p.passed, p.expected, p.observed) for p in proofs]


def _least(system: System, requests: int) -> dict[str, int]:
    """Return the least number of requests of each service's sidecar.

    It is rounded down: the first call for every n-th request may come after any of the first n requests.
    """
    received = {system.calls[0].callee: requests}
    for call in system.calls[1:]:
        received[call.callee] = received[call.caller] // every(system, call)
    return {_through(name): number for name, number in received.items()}


def _prove_delay(entry: Endpoint, hidden_us: int, phase: str) -> list[Proof]:
    """Prove that a request takes at least the delay that is hidden in one of its hops."""
    began = time.monotonic()
    answer = wire.http_get(*entry)
    took_us = (time.monotonic() - began) * 1e6
    passed = answer.status == 200 and took_us >= hidden_us
    return [Proof("delay hidden in a hop", phase, passed, f"at least {hidden_us} us", f"{took_us:.0f} us")]
