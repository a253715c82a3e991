"""Sidecars whose control plane changes their configuration under load: how long a change takes to reach requests.

    load generator -> fan-out -> [2 clients' sidecars] -> [a sidecar before each of two versions of the application]

The control plane is the project's own (``xds-server``). A known delay can be added to its pushes, which the measurement
must find, or a change can be empty, of which it must find nothing. Limits: unlike real control planes it neither
debounces changes nor checks them, so its times describe the instrument and Envoy, not a mesh.
"""

from collections.abc import Callable, Sequence

from meshtrial.design.changes import CHANGES, SECOND_STATUS
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import TestbedError, UsageError
from meshtrial.load.propagation import ChangeTime
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import controlplane, wire
from meshtrial.testbed.local.controlplane import UNUSED_ENDPOINTS, ControlPlane, prove_known
from meshtrial.testbed.local.deployment import Spec, Started
from meshtrial.testbed.local.fleet import Fleet, envoy_command, host_port
from meshtrial.testbed.local.proofs import counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint, wait_listening

UNCHANGED = "unchanged"  # the control plane pushes its present configuration again
DELAY = "push-delay-"
FEATURES = (rf"{DELAY}[1-9]\d{{0,3}}ms", UNCHANGED)
CLIENTS = 2
_VERSIONS = ("first", "second")
_ROLES = ("client", *_VERSIONS, "other")
_CONFIGURE_S = 60.0
# Documentation addresses (RFC 5737) of an unused service, which background changes exchange.
_OTHERS = ("192.0.2.1:80", "192.0.2.2:80")


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for applications, protocols and sizes that the two versions do not support."""
    if load.protocol != "http1" or load.replicas > 1 or treatment.app not in ("", "echo"):
        raise UsageError(f"treatment {treatment.name}: it runs two versions of the app echo; use http1 and no replicas")
    if load.response_bytes:
        raise UsageError(f"treatment {treatment.name}: the size of its answers is fixed; leave out response_bytes")


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start two versions of the application, the control plane, the sidecars, and a fan-out before the clients."""
    if spec.app.name != "echo":
        raise UsageError(f"treatment {spec.treatment.name}: it runs two versions of the app echo; set app=echo")
    keys = make_keys(fleet)
    second = ("-echo-server-default-params", f"status={SECOND_STATUS}")
    versions = [spec.start_app(fleet)[0], spec.start_app(fleet, 1, second)[0]]
    inbound = [fleet.new_endpoint() for _ in versions]
    outbound = [fleet.new_endpoint() for _ in range(CLIENTS)]
    clients = [Proxy(f"client-{number}", fleet.new_endpoint()) for number, _ in enumerate(outbound, start=1)]
    servers = [Proxy(f"{name}-1", fleet.new_endpoint()) for name in _VERSIONS]
    nodes = [_node(proxy, "client", outbound=at) for proxy, at in zip(clients, outbound, strict=True)]
    nodes += [
        _node(proxy, role, inbound=at, application=app)
        for proxy, role, at, app in zip(servers, _VERSIONS, inbound, versions, strict=True)
    ]
    nodes.append(_other(0))
    unused = {"extra_services": spec.load.unused_services, "extra_endpoints": UNUSED_ENDPOINTS}
    # All called roles have one identity, so that the second version can replace the first.
    roles = {name: controlplane.role(keys.server, "", guarded=name in _VERSIONS) for name in _ROLES[1:]}
    roles["client"] = controlplane.role(keys.client, "first", guarded=False)
    plane = _start_plane(spec, fleet, {"roles": roles, "nodes": nodes, **unused}, [*clients, *servers])
    wait_listening(fleet.child(clients[0].name), [*inbound, *outbound], itself=False)
    entry = fleet.start_fan_out(outbound)
    counters = {
        "requests through the clients' sidecars": (clients, ["http.outbound.downstream_rq_total"]),
        "requests through the servers' sidecars": (servers, ["http.inbound.downstream_rq_total"]),
    }
    services = len(_ROLES) + spec.load.unused_services
    # A client's sidecar has one more cluster, of the control plane; a server's has that and the application's.
    known = {proxy.name: (proxy.admin, services + 1) for proxy in clients}
    known |= {proxy.name: (proxy.admin, services + 2) for proxy in servers}
    return Started(
        spec.target([entry]),
        [
            lambda phase, _: [proof for at in inbound for proof in prove_mtls(keys, at, phase)],
            lambda phase, _: _prove_versions(spec, entry, versions, phase),
            lambda phase, _: prove_known(known, phase),
            counter_prover(counters, per_request=1),
        ],
        changes=tuple(CHANGES),
        change=_change_maker(plane, nodes, unchanged=spec.treatment.has(UNCHANGED)),
        # The unused service's endpoint is exchanged, which the control plane announces to every sidecar.
        background_change=lambda number: plane.change("/endpoints?service=other", [_other(number)]),
        facts=lambda: Facts(
            notes={"pushed": {kind: sent["pushes"] for kind, sent in plane.stats()["by_type"].items()}}
        ),
    )


def _change_maker(plane: ControlPlane, nodes: Sequence[Json], *, unchanged: bool) -> Callable[[str, bool], ChangeTime]:
    """Return what makes a change; its time is the control plane's own, by the clock that all processes here share."""
    by_role = {node["role"]: node for node in nodes}
    # Both have one identity, so that the second version can replace the first.
    endpoints = [by_role["first"], by_role["second"] | {"id": "moved", "role": "first"}]

    def change(change: str, on: bool) -> ChangeTime:
        on = on and not unchanged
        path: str
        body: Json | list[Json] | None = None
        if change == "weight":
            path, body = "/routes?role=client", {"first": 0 if on else 100, "second": 100 if on else 0}
        elif change == "endpoints":
            path, body = "/endpoints?service=first", [endpoints[on]]
        else:
            path = f"/authorization?role=first&allowed={'false' if on else 'true'}"
        return ChangeTime(plane.change(path, body), 0.0)

    return change


def _start_plane(spec: Spec, fleet: Fleet, topology: Json, proxies: Sequence[Proxy]) -> ControlPlane:
    """Start the control plane and its sidecars, and wait until they are configured."""
    delays = [name.removeprefix(DELAY) for name in spec.treatment.features if name.startswith(DELAY)]
    more = [part for delay in delays for part in ("-push-delay", delay)]
    plane, bootstraps = controlplane.start(fleet, topology, *more)
    for proxy in proxies:
        _, *command = envoy_command(proxy.name, bootstraps / f"{proxy.name}.json")
        fleet.start(proxy.name, "data plane", command, [proxy.admin], proxy=proxy)

    def require_alive() -> None:
        for proxy in proxies:
            child = fleet.child(proxy.name)
            if not child.alive():
                raise TestbedError(f"{proxy.name}: {child.why()}")

    plane.wait_configured(require_alive, _CONFIGURE_S)
    return plane


def _node(proxy: Proxy, role: str, **listens: Endpoint) -> Json:
    at = {name: host_port(where) for name, where in listens.items()}
    return {"id": proxy.name, "role": role, "admin": host_port(proxy.admin), **at}


def _other(number: int) -> Json:
    return {"id": "other-1", "role": "other", "inbound": _OTHERS[number % 2], "no_traffic": True}


def _prove_versions(spec: Spec, entry: Endpoint, versions: Sequence[Endpoint], phase: str) -> list[Proof]:
    """Prove that each version answers with its own status, and that requests now go to the first."""
    probes = {"first version": (versions[0], 200), "second version": (versions[1], int(SECOND_STATUS))}
    probes["version that is called"] = (entry, 200)
    proofs = []
    for name, (at, status) in probes.items():
        answer = wire.http_get(*at, spec.app.path)
        proofs.append(Proof(name, phase, answer.status == status, f"HTTP {status}", answer.detail))
    return proofs
