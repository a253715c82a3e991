"""Which data planes this backend has, how each is started, and what each takes: features, programs, loads, restarts.

A data plane is a function that starts its processes on a :class:`Fleet`, and returns what is called and its proofs.
The plain ones are here: none at all, a relay that adds a known delay, two proxies that pass bytes on, two node proxies.
Those that have features or a control plane have a module each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from meshtrial import native
from meshtrial.design.changes import CHANGES
from meshtrial.design.load import ChangesUnderLoad, Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import sidecar, tiers, wire, xds
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.features import FEATURES
from meshtrial.testbed.local.fleet import RESTARTED_ROLES, Fleet, host_port, numbered
from meshtrial.testbed.local.proofs import connections_prover, counter_prover, direct_prover, make_keys, prove_mtls
from meshtrial.testbed.local.sockets import Endpoint

_DELAY = "delay-"
# The least that a request takes on the wire: fortio's GET is above 60 bytes of text. In HTTP/2 repeated
# headers are a byte each behind the 9 bytes of their frame; a gRPC message has a second frame and a prefix.
_BYTES = {"http1": 60, "h2": 10, "grpc": 24}


def start_none(spec: Spec, fleet: Fleet) -> Started:
    """No data plane: the generators call the application itself."""
    first, *others = copies = spec.start_apps(fleet)
    provers = [direct_prover(spec, fleet, numbered("app", copy), endpoints) for copy, endpoints in enumerate(copies)]
    return Started(spec.target(first, copies=others), provers)


def start_relay(spec: Spec, fleet: Fleet) -> Started:
    """The application behind a TCP relay that adds a known delay to every request: the instrument's own test signal.

    The relay stands in every treatment of a calibration study, with delay 0 in the baseline, so that its own cost
    cancels; what it really added is read back from it and recorded.
    """
    fleet.note_version("delay-proxy")
    (app,) = spec.start_app(fleet)
    entry, admin = fleet.new_endpoint(), fleet.new_endpoint()
    delay_us = asked_delay_us(spec.treatment.features)
    argv = (
        *(str(native.find("delay-proxy")), "-delay", f"{delay_us}us"),
        *("-listen", host_port(entry), "-target", host_port(app), "-admin", host_port(admin)),
    )
    fleet.start("relay", "data plane", argv, [entry, admin])
    prover = _relay_prover(spec, entry, admin, delay_us)
    return Started(spec.target([entry]), [prover], facts=lambda: Facts(notes={"relay": _applied(admin)}))


def asked_delay_us(features: tuple[str, ...]) -> int:
    """The delay a treatment's features ask for, in microseconds; 0 without."""
    return next((int(f.removeprefix(_DELAY).removesuffix("us")) for f in features if f.startswith(_DELAY)), 0)


def _applied(admin: Endpoint) -> Json:
    applied: Json = wire.ask_json("relay", admin, "/stats")["applied"]
    return applied


def _relay_prover(spec: Spec, entry: Endpoint, admin: Endpoint, delay_us: int) -> Prover:
    """Requests pass the relay, and each was held at least as long as asked."""
    seen = 0

    def prove(phase: str, requests: int) -> list[Proof]:
        nonlocal seen
        if phase == "before":
            wire.http_get(*entry, spec.app.path)
            requests = 1
        applied = _applied(admin)
        grown, seen = int(applied["count"]) - seen, int(applied["count"])
        passed = grown >= requests > 0
        proofs = [Proof("requests through the relay", phase, passed, f"at least {requests}", str(grown))]
        if delay_us > 0:
            # The delay is a floor that the relay spins up to; a mean below it is a delay that was not applied.
            mean_us = float(applied["mean_ns"]) / 1e3
            expected = f"at least {delay_us} us"
            proofs.append(Proof("delay added", phase, mean_us >= delay_us, expected, f"mean {mean_us:.1f} us"))
        return proofs

    return prove


def check_relay(treatment: Treatment, load: Load) -> None:
    """Refuse a load that goes to more than one target."""
    if load.protocol == "mixed":
        raise UsageError(f"treatment {treatment.name}: the relay has one target, and a mixed load has two")
    if load.protocol == "tcp":
        raise UsageError(f"treatment {treatment.name}: the relay shows by a request that it is there; take http1")
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: the relay has one target; leave replicas out")


def start_tcp_pair(spec: Spec, fleet: Fleet) -> Started:
    """The application behind two TCP proxies, one after the other: more processes in the path, and nothing is read."""
    apps = spec.start_app(fleet)
    client = Proxy("client TCP proxy", fleet.new_endpoint())
    server = Proxy("server TCP proxy", fleet.new_endpoint())
    entries = []
    for number, app in enumerate(apps):
        entry, between, name = fleet.new_endpoint(), fleet.new_endpoint(), f"bytes-{number}"
        entries.append(entry)
        for proxy, at, onward in ((client, entry, between), (server, between, app)):
            proxy.clusters.append(envoy.cluster(name, *onward))
            proxy.listeners.append(envoy.listener(name, *at, [envoy.tcp_proxy(name, name)]))
    fleet.start_proxy(server)
    fleet.start_proxy(client)
    sent = [f"cluster.bytes-{number}.upstream_cx_tx_bytes_total" for number in range(len(apps))]
    counters = {"bytes through the client": ([client], sent), "bytes through the server": ([server], sent)}
    return Started(spec.target(entries), [counter_prover(counters, per_request=min(_BYTES.values()))])


def check_tcp_pair(treatment: Treatment, load: Load) -> None:
    """Refuse several copies of the application: bytes are not balanced by request."""
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: it has one target for each protocol; leave replicas out")


def start_node_proxies(spec: Spec, fleet: Fleet) -> Started:
    """Two node proxies: TCP in, HTTP/2 CONNECT over mutual TLS between them, TCP out (the ambient architecture)."""
    keys = make_keys(fleet)
    copies = spec.start_apps(fleet)
    apps = copies[0]
    entries, tunnel = [fleet.new_endpoint() for _ in apps], fleet.new_endpoint()
    names = ("app", "app-grpc")[: len(apps)]
    server = Proxy("server node proxy", fleet.new_endpoint())
    # Of several copies each takes whole connections: this architecture carries bytes.
    for name, (first, *others) in zip(names, zip(*copies, strict=True), strict=True):
        server.clusters.append(envoy.cluster(name, *first, *others))
    server_tls = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
    tunnel_end = envoy.connect_manager("tunnel", dict(zip(map(host_port, apps), names, strict=True)))
    server.listeners.append(envoy.listener("tunnel", *tunnel, [tunnel_end], server_tls))
    client = Proxy("client node proxy", fleet.new_endpoint())
    client_tls = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
    client.clusters.append(envoy.cluster("tunnel", *tunnel, http2=True, tls=client_tls))
    for name, entry, app in zip(names, entries, apps, strict=True):
        tunnel_start = envoy.connect_tunnel(f"to-{name}", "tunnel", host_port(app))
        client.listeners.append(envoy.listener(f"to-{name}", *entry, [tunnel_start]))
    fleet.start_proxy(server)
    fleet.start_proxy(client)
    counters = {
        "bytes into the tunnel": ([client], ["cluster.tunnel.upstream_cx_tx_bytes_total"]),
        "bytes out of the tunnel": ([server], [f"cluster.{name}.upstream_cx_tx_bytes_total" for name in names]),
    }
    # What did not go through the tunnel would be missing here.
    least = _BYTES | {"tcp": spec.load.payload_bytes or _BYTES["http1"]}
    provers: list[Prover] = [lambda phase, _: prove_mtls(keys, tunnel, phase)]
    if len(copies) > 1:
        provers.append(connections_prover(server, names[0]))
    provers.append(counter_prover(counters, per_request=min(least[protocol] for protocol in spec.load.protocols)))
    return Started(spec.target(entries), provers)


@dataclass(frozen=True)
class DataPlane:
    """How a data plane is started, and what it takes."""

    start: Callable[[Spec, Fleet], Started]
    features: tuple[str, ...] = ()  # regular expressions
    tools: tuple[str, ...] = ("envoy",)
    check: Callable[[Treatment, Load], None] = lambda treatment, load: None
    restarts: tuple[str, ...] = tuple(RESTARTED_ROLES)
    changes: tuple[str, ...] = ()  # of `design.changes`: what can be changed under load
    has_control_plane: bool = False  # so that its proxies can be told of services that nobody calls


_DATA_PLANES = {
    "none": DataPlane(start_none, tools=(), restarts=("app",)),
    # Its counters, by which it shows its delay, begin anew with it.
    "relay": DataPlane(start_relay, (rf"{_DELAY}\d+us",), ("delay-proxy",), check_relay, ("app",)),
    "sidecar": DataPlane(sidecar.start, (*FEATURES, *sidecar.ALONE), check=sidecar.check),
    "node-proxy": DataPlane(start_node_proxies),
    "xds": DataPlane(xds.start, xds.FEATURES, ("envoy", "xds-server"), xds.check, ("app",), tuple(CHANGES), True),
    "tcp-pair": DataPlane(start_tcp_pair, check=check_tcp_pair),
}
# With this application a data plane is another one: all of its tiers have it.
_TIERS = DataPlane(
    tiers.start,
    tools=("envoy", "xds-server"),
    check=tiers.check,
    restarts=("app",),
    has_control_plane=True,
)


def data_plane(treatment: Treatment, app: str = "") -> DataPlane:
    """A treatment's; UsageError when this backend has none of the name, or it has no such feature."""
    if (treatment.app or app) == tiers.APP:
        tiers.has_sidecars(treatment)
        return _TIERS
    if treatment.dataplane not in _DATA_PLANES:
        known = ", ".join(_DATA_PLANES)
        raise UsageError(
            f"treatment {treatment.name!r}: the local backend has no data plane {treatment.dataplane!r}; "
            f"must be one of {known}; real meshes need backend=kubernetes"
        )
    plane = _DATA_PLANES[treatment.dataplane]
    for feature in treatment.features:
        if not any(re.fullmatch(pattern, feature) for pattern in plane.features):
            allowed = ", ".join(plane.features) or "none"
            raise UsageError(
                f"treatment {treatment.name!r}: {treatment.dataplane} has no feature {feature!r}; allowed: {allowed}"
            )
    return plane


def check(treatment: Treatment, load: Load, app: str = "") -> None:
    """UsageError for a treatment that this backend cannot build, or not for this load, before anything is deployed."""
    plane = data_plane(treatment, app)
    if load.unused_services and not plane.has_control_plane:
        raise UsageError(
            f"unused_services = {load.unused_services}: here the proxies of the app tiers and of xds alone have a "
            "control plane that tells them of services; on a cluster every application has one"
        )
    if treatment.restart and treatment.restart not in plane.restarts:
        named = ", ".join(f"restart-{part}" for part in plane.restarts)
        raise UsageError(f"treatment {treatment.name}: nothing here is its {treatment.restart}; allowed: {named}")
    if isinstance(load, ChangesUnderLoad) and not set(load.changes) & set(plane.changes):
        able = ", ".join(name for name, other in _DATA_PLANES.items() if other.changes)
        asked = ", ".join(load.changes)
        raise UsageError(f"treatment {treatment.name}: {asked} cannot be changed there under load; allowed: {able}")
    plane.check(treatment, load)


def tools_of(treatment: Treatment, app: str = "") -> tuple[str, ...]:
    """Programs that a treatment needs, by the names :func:`meshtrial.native.find` knows; checks the treatment too."""
    tools = data_plane(treatment, app).tools
    policy = any(treatment.has(name) for name in ("opa", "opa-log"))
    return (*tools, "opa-extauthz") if policy else tools
