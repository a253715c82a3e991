"""Sidecars that a control plane configures while they are called: what it is told is obeyed some time later.

    load generator -> fan-out -> [2 clients' sidecars] -> [a sidecar before each of two versions of the application]

The control plane is our own (``xds-server``), so a delay of known size can be put into it, and a change that changes
nothing: the first is to be found again, of the second nothing is to be found. Limits: no debouncing and no admission,
as real control planes have them, so this shows what the instrument and Envoy add to those, and is no mesh's number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from meshtrial import native
from meshtrial.design.changes import CHANGES, SECOND_STATUS
from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import TestbedError, UsageError
from meshtrial.load.obeyed import Taken
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.proofs import Keys, counter_prover, make_keys, prove_mtls
from meshtrial.testbed.local.scaleout.app import fan_out
from meshtrial.testbed.local.scaleout.controlplane import ControlPlane
from meshtrial.testbed.local.scaleout.fleet import envoy_command
from meshtrial.testbed.local.scaleout.topology import UNUSED_ENDPOINTS
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


def build(deployment: LocalDeployment) -> None:
    """The application in two versions, the control plane, its sidecars, and one address in front of the clients'."""
    if deployment.app.name != "echo":
        raise UsageError(f"treatment {deployment.treatment.name}: has two versions of the app echo, no other")
    keys = make_keys(deployment)
    second = ("-echo-server-default-params", f"status={SECOND_STATUS}")
    versions = [deployment.spawn_app(0)[0], deployment.spawn_app(1, second)[0]]
    inbound = [deployment.new_endpoint() for _ in versions]
    outbound = [deployment.new_endpoint() for _ in range(CLIENTS)]
    clients = [Proxy(f"client-{number}", deployment.new_endpoint()) for number, _ in enumerate(outbound, start=1)]
    servers = [Proxy(f"{name}-1", deployment.new_endpoint()) for name in _VERSIONS]
    calling = zip(clients, outbound, strict=True)
    called = zip(servers, _VERSIONS, inbound, versions, strict=True)
    nodes = [_node(proxy, "client", outbound=at) for proxy, at in calling]
    nodes += [_node(proxy, role, inbound=at, application=app) for proxy, role, at, app in called]
    nodes.append(_other(0))
    unused = {"extra_services": deployment.load.unused_services, "extra_endpoints": UNUSED_ENDPOINTS}
    plane = _start(deployment, {"roles": _roles(keys), "nodes": nodes, **unused}, [*clients, *servers])
    wait_listening(deployment.child(clients[0].name), [*inbound, *outbound], itself=False)
    entry = deployment.new_endpoint()
    deployment.spawn_proxy(fan_out(deployment.new_endpoint(), entry, outbound), role="load generator")
    deployment.set_target([entry])
    deployment.changer = _Changes(plane, nodes, unchanged=deployment.treatment.has(UNCHANGED))
    counters = {
        "requests through the clients' sidecars": (clients, ["http.outbound.downstream_rq_total"]),
        "requests through the servers' sidecars": (servers, ["http.inbound.downstream_rq_total"]),
    }
    deployment.provers += [
        lambda phase, _: [proof for at in inbound for proof in prove_mtls(keys, at, phase)],
        lambda phase, _: _prove_versions(deployment, entry, versions, phase),
        lambda phase, _: [*_prove_known(clients, 1, deployment, phase), *_prove_known(servers, 2, deployment, phase)],
        counter_prover(counters, per_request=1),
        lambda phase, _: _note_pushes(deployment, plane, phase),
    ]


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

    def change(self, change: str, on: bool) -> Taken:
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
        return Taken(self._plane.change(path, body), 0.0)

    def churn(self, number: int) -> None:
        """Exchange the endpoint of the service that nobody calls; every sidecar is told."""
        self._plane.change("/endpoints?service=other", [_other(number)])


def _start(deployment: LocalDeployment, topology: Json, proxies: Sequence[Proxy]) -> ControlPlane:
    """The control plane and its sidecars, configured."""
    file, bootstraps = deployment.folder / "topology.json", deployment.folder / "bootstraps"
    file.write_text(json.dumps(topology))
    for tool in ("xds-server", "envoy"):
        deployment.note_version(tool)
    discovery, admin = deployment.new_endpoint(), deployment.new_endpoint()
    argv = [str(native.find("xds-server")), "-topology", str(file), "-bootstraps", str(bootstraps)]
    argv += ["-grpc", _at(discovery), "-admin", _at(admin)]
    for feature in deployment.treatment.features:
        if feature.startswith(DELAY):
            argv += ["-push-delay", feature.removeprefix(DELAY)]
    deployment.spawn("control-plane", "control plane", argv, [discovery, admin])
    plane = ControlPlane(admin)
    plane.stats()  # it listens early and answers late: when all bootstraps are written
    for proxy in proxies:
        _, *command = envoy_command(proxy.name, bootstraps / f"{proxy.name}.json")
        deployment.spawn(proxy.name, "data plane", command, [proxy.admin], proxy=proxy)

    def alive() -> None:
        for proxy in proxies:
            child = deployment.child(proxy.name)
            if not child.alive():
                raise TestbedError(f"{proxy.name}: {child.why()}")

    plane.wait_configured(alive, _CONFIGURE_S)
    return plane


def _roles(keys: Keys) -> Json:
    # One identity of all that is called: the second version may stand in for the first.
    called = dict.fromkeys(_ROLES, keys.server) | {"client": keys.client}
    return {
        name: {
            "spiffe": identity.spiffe,
            "certificate": str(identity.certificate),
            "key": str(identity.key),
            "authority": str(identity.authority),
            "calls": "first" if name == "client" else "",
            "guarded": name in _VERSIONS,
        }
        for name, identity in called.items()
    }


def _node(proxy: Proxy, role: str, **listens: Endpoint) -> Json:
    at = {name: _at(where) for name, where in listens.items()}
    return {"id": proxy.name, "role": role, "admin": _at(proxy.admin), **at}


def _other(number: int) -> Json:
    return {"id": "other-1", "role": "other", "inbound": _OTHERS[number % 2], "no_traffic": True}


def _at(endpoint: Endpoint) -> str:
    return "{}:{}".format(*endpoint)


def _prove_known(proxies: Sequence[Proxy], own: int, deployment: LocalDeployment, phase: str) -> list[Proof]:
    """Each sidecar knows every service, those that nobody calls too, by its clusters beside so many of its own."""
    known = str(own + len(_ROLES) + deployment.load.unused_services)
    counts = [str(sum(proxy.stats(r"^cluster_manager\.active_clusters$").values())) for proxy in proxies]
    return [
        Proof(f"services known to {proxy.name}", phase, seen == known, f"{known} clusters", seen)
        for proxy, seen in zip(proxies, counts, strict=True)
    ]


def _note_pushes(deployment: LocalDeployment, plane: ControlPlane, phase: str) -> list[Proof]:
    """Keep how much was pushed in the run's life; that is no proof."""
    if phase == "after":
        deployment.told.notes["pushed"] = {kind: sent["pushes"] for kind, sent in plane.stats()["by_type"].items()}
    return []


def _prove_versions(
    deployment: LocalDeployment, entry: Endpoint, versions: Sequence[Endpoint], phase: str
) -> list[Proof]:
    """Each version answers with its own status, and the first of them is what is called now."""
    asked = {"first version": (versions[0], 200), "second version": (versions[1], int(SECOND_STATUS))}
    asked["version that is called"] = (entry, 200)
    answers = {name: (wire.http_get(*at, deployment.app.path), status) for name, (at, status) in asked.items()}
    return [
        Proof(name, phase, answer.status == status, f"HTTP {status}", answer.detail)
        for name, (answer, status) in answers.items()
    ]
