"""Sidecars that a control plane configures while they are called: what it is told is obeyed some time later.

    load generator -> fan-out -> [2 clients' sidecars] -> [a sidecar before each of two versions of the application]

The control plane is our own (``xds-server``), so a delay of known size can be put into it, and a change that changes
nothing: the first is to be found again, of the second nothing is to be found. Limits: no debouncing and no admission,
as real control planes have them, so this shows what the instrument and Envoy add to those, and is no mesh's number.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtrial.design.changes import CHANGES, SECOND_STATUS
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import TestbedError, UsageError
from meshtrial.load.obeyed import ChangeTime
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import controlplane, wire
from meshtrial.testbed.local.controlplane import UNUSED_ENDPOINTS, ControlPlane, prove_known
from meshtrial.testbed.local.deployment import Spec, Started
from meshtrial.testbed.local.fleet import Fleet, envoy_command, host_port
from meshtrial.testbed.local.proofs import Keys, counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint, wait_listening

UNCHANGED = "unchanged"  # the control plane is told what it knows, and pushes it
DELAY = "push-delay-"
FEATURES = (rf"{DELAY}[1-9]\d{{0,3}}ms", UNCHANGED)
CLIENTS = 2
_VERSIONS = ("first", "second")
_ROLES = ("client", *_VERSIONS, "other")
_CONFIGURE_S = 60.0
# Documentation addresses (RFC 5737) of a service that nobody calls: what churn changes.
_OTHERS = ("192.0.2.1:80", "192.0.2.2:80")


def check(treatment: Treatment, load: Load) -> None:
    """Refuse what the two versions are not made for."""
    if load.protocol != "http1" or load.replicas > 1 or treatment.app not in ("", "echo"):
        raise UsageError(f"treatment {treatment.name}: has two versions of the app echo over http1, and no copies")
    if load.response_bytes:
        raise UsageError(f"treatment {treatment.name}: its versions answer as they do; leave response_bytes out")


def start(spec: Spec, fleet: Fleet) -> Started:
    """The application in two versions, the control plane, its sidecars, and one address in front of the clients'."""
    if spec.app.name != "echo":
        raise UsageError(f"treatment {spec.treatment.name}: has two versions of the app echo, no other")
    keys = make_keys(fleet)
    second = ("-echo-server-default-params", f"status={SECOND_STATUS}")
    versions = [spec.start_app(fleet)[0], spec.start_app(fleet, 1, second)[0]]
    inbound = [fleet.new_endpoint() for _ in versions]
    outbound = [fleet.new_endpoint() for _ in range(CLIENTS)]
    clients = [Proxy(f"client-{number}", fleet.new_endpoint()) for number, _ in enumerate(outbound, start=1)]
    servers = [Proxy(f"{name}-1", fleet.new_endpoint()) for name in _VERSIONS]
    calling = zip(clients, outbound, strict=True)
    called = zip(servers, _VERSIONS, inbound, versions, strict=True)
    nodes = [_node(proxy, "client", outbound=at) for proxy, at in calling]
    nodes += [_node(proxy, role, inbound=at, application=app) for proxy, role, at, app in called]
    nodes.append(_other(0))
    unused = {"extra_services": spec.load.unused_services, "extra_endpoints": UNUSED_ENDPOINTS}
    plane = _start_plane(spec, fleet, {"roles": _roles(keys), "nodes": nodes, **unused}, [*clients, *servers])
    wait_listening(fleet.child(clients[0].name), [*inbound, *outbound], itself=False)
    entry = fleet.start_fan_out(outbound)
    counters = {
        "requests through the clients' sidecars": (clients, ["http.outbound.downstream_rq_total"]),
        "requests through the servers' sidecars": (servers, ["http.inbound.downstream_rq_total"]),
    }
    services = len(_ROLES) + spec.load.unused_services
    # Beside them a client's has the control plane, and a server's the application too.
    known = {proxy.name: (proxy.admin, own + services) for own, side in ((1, clients), (2, servers)) for proxy in side}
    return Started(
        spec.target([entry]),
        [
            lambda phase, _: [proof for at in inbound for proof in prove_mtls(keys, at, phase)],
            lambda phase, _: _prove_versions(spec, entry, versions, phase),
            lambda phase, _: prove_known(known, phase),
            counter_prover(counters, per_request=1),
        ],
        _Changes(plane, nodes, unchanged=spec.treatment.has(UNCHANGED)),
        lambda: Facts(notes={"pushed": {kind: sent["pushes"] for kind, sent in plane.stats()["by_type"].items()}}),
    )


class _Changes:
    """What the control plane is told under load."""

    def __init__(self, plane: ControlPlane, nodes: Sequence[Json], *, unchanged: bool) -> None:
        self._plane = plane
        self._unchanged = unchanged
        by_role = {node["role"]: node for node in nodes}
        # Of one identity, so that the second version may stand in for the first.
        self._endpoints = [by_role["first"], by_role["second"] | {"id": "moved", "role": "first"}]

    def changes(self) -> tuple[str, ...]:
        """All that there are."""
        return tuple(CHANGES)

    def change(self, change: str, on: bool) -> ChangeTime:
        """Tell it; the moment at which it took that is its own, by the same clock as everything here."""
        on = on and not self._unchanged
        path: str
        body: Json | list[Json] | None = None
        if change == "weight":
            path, body = "/routes?role=client", {"first": 0 if on else 100, "second": 100 if on else 0}
        elif change == "endpoints":
            path, body = "/endpoints?service=first", [self._endpoints[on]]
        else:
            path = f"/authorization?role=first&allowed={'false' if on else 'true'}"
        return ChangeTime(self._plane.change(path, body), 0.0)

    def churn(self, number: int) -> None:
        """Exchange the endpoint of the service that nobody calls; every sidecar is told."""
        self._plane.change("/endpoints?service=other", [_other(number)])


def _start_plane(spec: Spec, fleet: Fleet, topology: Json, proxies: Sequence[Proxy]) -> ControlPlane:
    """The control plane and its sidecars, configured."""
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


def _roles(keys: Keys) -> Json:
    # One identity of all that is called: the second version may stand in for the first.
    called = {name: controlplane.role(keys.server, "", guarded=name in _VERSIONS) for name in _ROLES[1:]}
    return called | {"client": controlplane.role(keys.client, "first", guarded=False)}


def _node(proxy: Proxy, role: str, **listens: Endpoint) -> Json:
    at = {name: host_port(where) for name, where in listens.items()}
    return {"id": proxy.name, "role": role, "admin": host_port(proxy.admin), **at}


def _other(number: int) -> Json:
    return {"id": "other-1", "role": "other", "inbound": _OTHERS[number % 2], "no_traffic": True}


def _prove_versions(spec: Spec, entry: Endpoint, versions: Sequence[Endpoint], phase: str) -> list[Proof]:
    """Each version answers with its own status, and the first of them is what is called now."""
    asked = {"first version": (versions[0], 200), "second version": (versions[1], int(SECOND_STATUS))}
    asked["version that is called"] = (entry, 200)
    answers = {name: (wire.http_get(*at, spec.app.path), status) for name, (at, status) in asked.items()}
    return [
        Proof(name, phase, answer.status == status, f"HTTP {status}", answer.detail)
        for name, (answer, status) in answers.items()
    ]
