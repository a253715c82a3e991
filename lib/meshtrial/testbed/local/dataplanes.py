"""The data planes of the local backend: how each is started, and which features, loads and restarts it accepts.

A data plane is a function that starts its processes on a :class:`Fleet` and returns the target of the load and the
proofs. This module holds the simple ones: none, a relay with a known delay, two TCP proxies. The others have a module
each.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from meshtrial import native
from meshtrial.design.changes import CHANGES
from meshtrial.design.load import ChangesUnderLoad, Load
from meshtrial.design.study import Treatment, is_system
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import nodeproxies, sidecar, systems, tiers, wire, xds
from meshtrial.testbed.local.deployment import DELAY, Prover, Spec, Started
from meshtrial.testbed.local.fleet import RESTARTED_ROLES, Fleet, host_port, numbered
from meshtrial.testbed.local.nodeproxies import LEAST_BYTES
from meshtrial.testbed.local.proofs import counter_prover, direct_prover
from meshtrial.testbed.local.sockets import Endpoint


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
    argv = (
        *(str(native.find("delay-proxy")), "-delay", f"{spec.delay_us}us"),
        *("-listen", host_port(entry), "-target", host_port(app), "-admin", host_port(admin)),
    )
    fleet.start("relay", "data plane", argv, [entry, admin])
    return Started(
        spec.target([entry]), [_relay_prover(spec, entry, admin)], facts=lambda: Facts(notes={"relay": _applied(admin)})
    )


def _applied(admin: Endpoint) -> Json:
    applied: Json = wire.ask_json("relay", admin, "/stats")["applied"]
    return applied


def _relay_prover(spec: Spec, entry: Endpoint, admin: Endpoint) -> Prover:
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
        if spec.delay_us:
            # The relay spins until the delay is over, so a mean below the delay means that it was not applied.
            mean_us = float(applied["mean_ns"]) / 1e3
            expected = f"at least {spec.delay_us} us"
            proofs.append(Proof("delay added", phase, mean_us >= spec.delay_us, expected, f"mean {mean_us:.1f} us"))
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
    return Started(spec.target(entries), [counter_prover(counters, per_request=min(LEAST_BYTES.values()))])


def check_tcp_pair(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for several copies of the application: TCP proxies do not balance by request."""
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: it has one target for each protocol; leave out replicas")


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
    has_fan_out: bool = False  # True if the generators call one address in front of several proxies


_DATA_PLANES = {
    "none": DataPlane(start_none, tools=(), restarts=("app",)),
    # The relay itself is not restarted: that would reset the counters that prove its delay.
    "relay": DataPlane(start_relay, (rf"{DELAY}\d+us",), ("delay-proxy",), check_relay, ("app",)),
    "sidecar": DataPlane(sidecar.start, (*sidecar.FEATURES, *sidecar.ALONE), check=sidecar.check),
    "node-proxy": DataPlane(nodeproxies.start),
    "xds": DataPlane(
        xds.start,
        xds.FEATURES,
        ("envoy", "xds-server"),
        xds.check,
        restarts=("app",),
        changes=tuple(CHANGES),
        has_control_plane=True,
        has_fan_out=True,
    ),
    "tcp-pair": DataPlane(start_tcp_pair, check=check_tcp_pair),
}
# The application `tiers` has a data plane of its own: every tier has it.
_TIERS = DataPlane(
    tiers.start,
    tools=("envoy", "xds-server"),
    check=tiers.check,
    restarts=("app",),
    has_control_plane=True,
    has_fan_out=True,
)
# Generated systems have one too: every service has a proxy.
_SYSTEM = DataPlane(systems.start, tools=("envoy", "call-tree"), check=systems.check, restarts=("app",))


def data_plane(treatment: Treatment, app: str = "") -> DataPlane:
    """Return a treatment's data plane; UsageError if this backend has none of that name, or it lacks a feature."""
    if (treatment.app or app) == tiers.APP:
        tiers.has_sidecars(treatment)
        return _TIERS
    if is_system(treatment.app or app):
        systems.check_treatment(treatment)
        return _SYSTEM
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
    if load.idle_connections and plane.has_fan_out:
        raise UsageError(
            f"idle_connections = {load.idle_connections}: are counted by the one proxy that the generators call, and "
            f"treatment {treatment.name} has several; use sidecar, node-proxy or tcp-pair"
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
