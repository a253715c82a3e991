"""The data planes of the local backend: how each is started, and which features, loads and restarts it accepts.

A data plane is a function that starts its processes on a :class:`Fleet` and returns the target of the load and the
proofs. This module holds the simple ones: none, a relay with a known delay, two TCP proxies, two node proxies. Those
with features or a control plane have a module each.
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
# The fewest bytes that a request takes on the wire. fortio's GET is longer than 60 bytes of text. In HTTP/2 repeated
# headers are one byte each after a 9-byte frame header. A gRPC message adds a second frame and a prefix.
_BYTES = {"http1": 60, "h2": 10, "grpc": 24, "sse": 60, "grpc-stream": 24}


def start_none(spec: Spec, fleet: Fleet) -> Started:
    """Start the application without a data plane: the generators call it directly."""
    first, *others = copies = spec.start_apps(fleet)
    provers = [direct_prover(spec, fleet, numbered("app", copy), endpoints) for copy, endpoints in enumerate(copies)]
    return Started(spec.target(first, copies=others), provers)


def start_relay(spec: Spec, fleet: Fleet) -> Started:
    """Start the application behind a TCP relay that adds a known delay to every request: a test of the instrument.

    In a calibration study every treatment has the relay, the baseline with delay 0, so that the relay's own cost
    cancels. The delay that it really added is read from it and recorded.
    """
    fleet.note_version("delay-proxy")
    (app,) = spec.start_app(fleet)
    entry, admin = fleet.new_endpoint(), fleet.new_endpoint()
    delay_us = requested_delay_us(spec.treatment.features)
    argv = (
        *(str(native.find("delay-proxy")), "-delay", f"{delay_us}us"),
        *("-listen", host_port(entry), "-target", host_port(app), "-admin", host_port(admin)),
    )
    fleet.start("relay", "data plane", argv, [entry, admin])
    prover = _relay_prover(spec, entry, admin, delay_us)
    return Started(spec.target([entry]), [prover], facts=lambda: Facts(notes={"relay": _applied(admin)}))


def requested_delay_us(features: tuple[str, ...]) -> int:
    """Return the delay that a treatment's features request, in microseconds; 0 if none."""
    return next((int(f.removeprefix(_DELAY).removesuffix("us")) for f in features if f.startswith(_DELAY)), 0)


def _applied(admin: Endpoint) -> Json:
    applied: Json = wire.ask_json("relay", admin, "/stats")["applied"]
    return applied


def _relay_prover(spec: Spec, entry: Endpoint, admin: Endpoint, delay_us: int) -> Prover:
    """Prove that requests pass the relay, and that it held each at least as long as requested."""
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
            # The relay spins until the delay is over, so a mean below the delay means that it was not applied.
            mean_us = float(applied["mean_ns"]) / 1e3
            expected = f"at least {delay_us} us"
            proofs.append(Proof("delay added", phase, mean_us >= delay_us, expected, f"mean {mean_us:.1f} us"))
        return proofs

    return prove


def check_relay(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for a load with more than one target, or without HTTP requests to prove the relay by."""
    if load.protocol == "mixed":
        raise UsageError(f"treatment {treatment.name}: the relay has one target, and a mixed load has two")
    if load.protocol == "tcp":
        raise UsageError(f"treatment {treatment.name}: the relay is proven by HTTP requests; set protocol=http1")
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: the relay has one target; leave out replicas")


def start_tcp_pair(spec: Spec, fleet: Fleet) -> Started:
    """Start the application behind two TCP proxies in a row: more processes in the path, and no request is parsed."""
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
    """Raise UsageError for several copies of the application: TCP proxies do not balance by request."""
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: it has one target for each protocol; leave out replicas")


def start_node_proxies(spec: Spec, fleet: Fleet) -> Started:
    """Start two node proxies, as in ambient meshes: TCP in, HTTP/2 CONNECT over mutual TLS between them, TCP out."""
    keys = make_keys(fleet)
    copies = spec.start_apps(fleet)
    apps = copies[0]
    entries, tunnel = [fleet.new_endpoint() for _ in apps], fleet.new_endpoint()
    names = ("app", "app-grpc")[: len(apps)]
    server = Proxy("server node proxy", fleet.new_endpoint())
    # Several copies are balanced by connection: this architecture carries bytes.
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
    # Bytes that bypassed the tunnel would be missing from these counters.
    least = _BYTES | {"tcp": spec.load.payload_bytes or _BYTES["http1"]}
    provers: list[Prover] = [lambda phase, _: prove_mtls(keys, tunnel, phase)]
    if len(copies) > 1:
        provers.append(connections_prover(server, names[0]))
    provers.append(counter_prover(counters, per_request=min(least[protocol] for protocol in spec.load.protocols)))
    return Started(spec.target(entries), provers)


@dataclass(frozen=True)
class DataPlane:
    """How a data plane is started, and what it accepts."""

    start: Callable[[Spec, Fleet], Started]
    features: tuple[str, ...] = ()  # accepted ones, as regular expressions
    tools: tuple[str, ...] = ("envoy",)
    check: Callable[[Treatment, Load], None] = lambda treatment, load: None
    restarts: tuple[str, ...] = tuple(RESTARTED_ROLES)
    changes: tuple[str, ...] = ()  # those of `design.changes` that can be applied under load
    has_control_plane: bool = False  # True if a control plane can announce unused services to its proxies


_DATA_PLANES = {
    "none": DataPlane(start_none, tools=(), restarts=("app",)),
    # The relay itself is not restarted: that would reset the counters that prove its delay.
    "relay": DataPlane(start_relay, (rf"{_DELAY}\d+us",), ("delay-proxy",), check_relay, ("app",)),
    "sidecar": DataPlane(sidecar.start, (*FEATURES, *sidecar.ALONE), check=sidecar.check),
    "node-proxy": DataPlane(start_node_proxies),
    "xds": DataPlane(xds.start, xds.FEATURES, ("envoy", "xds-server"), xds.check, ("app",), tuple(CHANGES), True),
    "tcp-pair": DataPlane(start_tcp_pair, check=check_tcp_pair),
}
# The application `tiers` has a data plane of its own: every tier has it.
_TIERS = DataPlane(
    tiers.start,
    tools=("envoy", "xds-server"),
    check=tiers.check,
    restarts=("app",),
    has_control_plane=True,
)


def data_plane(treatment: Treatment, app: str = "") -> DataPlane:
    """Return a treatment's data plane; UsageError if this backend has none of that name, or it lacks a feature."""
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
    """Raise UsageError for a treatment that this backend cannot build, in general or for this load."""
    plane = data_plane(treatment, app)
    if load.unused_services and not plane.has_control_plane:
        raise UsageError(
            f"unused_services = {load.unused_services}: of the local data planes only xds and those of the app tiers "
            "have a control plane that tells proxies of services; on a cluster every application has one"
        )
    if treatment.restart and treatment.restart not in plane.restarts:
        allowed = ", ".join(f"restart-{part}" for part in plane.restarts)
        raise UsageError(f"treatment {treatment.name}: it has no {treatment.restart} to restart; use {allowed}")
    if isinstance(load, ChangesUnderLoad) and not set(load.changes) & set(plane.changes):
        allowed = ", ".join(name for name, other in _DATA_PLANES.items() if other.changes)
        requested = ", ".join(load.changes)
        raise UsageError(f"treatment {treatment.name}: {requested} cannot be changed under load; use {allowed}")
    plane.check(treatment, load)


def tools_of(treatment: Treatment, app: str = "") -> tuple[str, ...]:
    """Return the programs that a treatment needs, as :func:`meshtrial.native.find` names them; checks it too."""
    tools = data_plane(treatment, app).tools
    return (*tools, "opa-extauthz") if treatment.has("opa") or treatment.has("opa-log") else tools
