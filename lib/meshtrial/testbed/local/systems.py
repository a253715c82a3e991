"""A system of services, each a process with an address of its own and, behind a mesh, its own proxy.

    load generator -> [ingress sidecar] -> [sidecar] service-1 -> [its sidecar] -> [sidecar] service-2 ...

The services (``call-tree``) call each other as the system's path says. With sidecars every call passes that of its
caller and that of its callee, with node proxies the tunnel between two proxies that all services share. Limits: one
machine carries all services, so they share CPUs that they would not share on a cluster. Services are not one process,
because calls within a process need no wake-up, which is much of what a call costs without a mesh.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshtrial import native
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.design.system import Call, CallStep, Step, System, calls_of
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import DELAY, Prover, Spec, Started
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

_FEATURES = {"none": ((),), "sidecar": ((), ("mtls",)), "node-proxy": ((),)}
_START_S = 60.0
_SETTLE_S = 5.0  # for calls that are made after the answer


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


def every(system: System, call: Call) -> int:
    """Return n where a call is made for every n-th request of its caller."""
    rate = next(one.rps for one in system.calls if one.callee == call.caller)
    return round(rate / call.rps)


def services(system: System, apps: Mapping[str, Endpoint], called: Mapping[str, Endpoint], delay_us: int) -> list[Json]:
    """Return the services in the form that ``call-tree`` reads; the delay is in the last hop of the path.

    ``apps`` and ``called`` are by service: where it listens, and the address that its callers use. A step is the calls
    that are made at once. Calls that no path contains are made after the answer.
    """
    (path,) = system.paths.values()
    awaited = [*calls_of(path)]
    made: dict[str, Json] = {
        name: {"name": name, "listen": host_port(at), "steps": [], "afterwards": []} for name, at in apps.items()
    }

    def asked(pair: tuple[str, str]) -> Json:
        call = system.by_pair[pair]
        return {
            "url": f"http://{host_port(called[call.callee])}/",
            "connections": call.connections,
            "every": every(system, call),
            "delay_us": delay_us if pair == awaited[-1] else 0,
        }

    def add_steps(path: Sequence[Step]) -> None:
        for step in path:
            # Every branch of a parallel step begins with a call of one caller.
            branches: Sequence[Sequence[Step]] = [[step]] if isinstance(step, CallStep) else step.branches
            pairs = [next(calls_of(branch)) for branch in branches]
            made[pairs[0][0]]["steps"].append([asked(pair) for pair in pairs])
            for branch in branches:
                add_steps(branch[1:])

    add_steps(path[1:])
    for call in system.calls:
        if call.pair not in awaited:
            made[call.caller]["afterwards"].append(asked(call.pair))
    return [*made.values()]


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the services with or without proxies, each process after those that it depends on."""
    treatment, system = spec.treatment, spec.system
    assert system is not None, "the testbed refuses a system that the plan does not hold"
    apps = {call.callee: fleet.new_endpoint() for call in system.calls}
    direct, first = treatment.dataplane == "none", system.calls[0].callee
    called = apps if direct else {name: fleet.new_endpoint() for name in apps}
    fleet.versions.update(spec.app.versions())
    for service in services(system, apps, called, spec.delay_us):
        name = service["name"]
        file = fleet.folder / f"{name}.json"
        file.write_text(json.dumps([service]))
        fleet.start(name, "app", (str(native.find("call-tree")), "-services", str(file)), [apps[name]])
    provers: list[Prover]
    if direct:
        provers = [
            direct_prover(spec, fleet, first, [apps[first]]),
            lambda phase, _: [
                prove_app_listens(fleet, name, f"no proxy before {name}", "where it is called", [at], phase)
                for name, at in apps.items()
            ],
        ]
    elif treatment.dataplane == "sidecar":
        provers = _start_sidecars(system, fleet, apps, called, mtls=treatment.has("mtls"))
    else:
        backends = {name: (called[name], [app]) for name, app in apps.items()}
        _, *provers = start_tunnel(fleet, backends, LEAST_BYTES["http1"])
    entry = called[first]
    if spec.delay_us:
        provers.insert(0, lambda phase, _: [_prove_delay(entry, spec.delay_us, phase)])
    return Started(spec.target([entry]), provers)


def _start_sidecars(
    system: System, fleet: Fleet, apps: Mapping[str, Endpoint], called: Mapping[str, Endpoint], *, mtls: bool
) -> list[Prover]:
    """Start the sidecars of the load generator and of every service; return their proofs."""
    identities = Identities(fleet, [*system.services])
    inbound = {name: fleet.new_endpoint() for name in apps}
    sidecars = {name: Proxy(f"{name} sidecar", fleet.new_endpoint()) for name in system.services}
    for call in system.calls:
        keys = identities.hop(*call.pair)
        client = envoy.tls_context(keys.client, keys.server.spiffe, server=False) if mtls else None
        server = envoy.tls_context(keys.server, keys.client.spiffe, server=True) if mtls else None
        of_caller, of_callee = sidecars[call.caller], sidecars[call.callee]
        of_caller.clusters.append(envoy.cluster(call.callee, *inbound[call.callee], http2=True, tls=client))
        outbound = envoy.http_manager("outbound", call.callee)
        of_caller.listeners.append(envoy.listener(f"to {call.callee}", *called[call.callee], [outbound]))
        of_callee.clusters.append(envoy.cluster("app", *apps[call.callee]))
        manager = envoy.http_manager("inbound", "app")
        of_callee.listeners.append(envoy.listener("inbound", *inbound[call.callee], [manager], server))
    fleet.note_version("envoy")
    bootstraps = fleet.folder / "bootstraps"
    bootstraps.mkdir()
    for name, proxy in sidecars.items():
        (bootstraps / f"{name}.json").write_text(json.dumps(proxy.bootstrap()))
    batch = fleet.start_batch({proxy.name: [name] for name, proxy in sidecars.items()}, bootstraps, _START_S)
    listening = [*(proxy.admin for proxy in sidecars.values()), *inbound.values(), *called.values()]
    wait_listening(batch.launcher, listening, _START_S, itself=False)

    def prove_hops(phase: str, _: int) -> list[Proof]:
        proofs = []
        # All before the load; after it two, because no configuration changes while the sidecars run.
        for call in system.calls if phase == "before" else (system.calls[0], system.calls[-1]):
            if mtls:
                checked = prove_mtls(identities.hop(*call.pair), inbound[call.callee], phase)
                proofs += [replace(proof, name=f"{proof.name}, {call.callee}") for proof in checked]
            else:
                answer = wire.speak_h2(*inbound[call.callee])
                name = f"plaintext to the sidecar, {call.callee}"
                proofs.append(Proof(name, phase, answer.accepted, "accepted", answer.detail))
        return proofs

    def counts() -> dict[tuple[str, str], int]:
        return {(_through(name), name): carried(sidecars[name]) for name in apps}

    return [prove_hops, growth_prover(counts, lambda requests: _least(system, requests), _SETTLE_S)]


def _through(service: str) -> str:
    return f"requests through the sidecar, {service}"


def _least(system: System, requests: int) -> dict[str, int]:
    """Return the least number of requests of each service's sidecar.

    It is rounded down: the first call for every n-th request may come after any of the first n requests.
    """
    received = {system.calls[0].callee: requests}
    for call in system.calls[1:]:
        received[call.callee] = received[call.caller] // every(system, call)
    return {_through(name): number for name, number in received.items()}


def _prove_delay(entry: Endpoint, hidden_us: int, phase: str) -> Proof:
    """Prove that a request takes at least the delay that is hidden in one of its hops."""
    began = time.monotonic()
    answer = wire.http_get(*entry)
    took_us = (time.monotonic() - began) * 1e6
    passed = answer.status == 200 and took_us >= hidden_us
    return Proof("delay hidden in a hop", phase, passed, f"at least {hidden_us} us", f"{took_us:.0f} us")
