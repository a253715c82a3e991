"""Which data planes this backend has, and what each takes: features, programs, loads, restarts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from meshtrial.design.changes import CHANGES
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local import direct, features, node_proxy, relay, sidecar, tcp_pair, xds
from meshtrial.testbed.local.deployment import RESTARTED_ROLES, LocalDeployment


@dataclass(frozen=True)
class DataPlane:
    """How a data plane is built, and what it takes."""

    build: Callable[[LocalDeployment], None]
    features: tuple[str, ...] = ()  # regular expressions
    tools: tuple[str, ...] = ("envoy",)
    check: Callable[[Treatment, Load], None] = lambda treatment, load: None
    restarts: tuple[str, ...] = tuple(RESTARTED_ROLES)
    changes: tuple[str, ...] = ()  # of `design.changes`: what can be changed under load


_DATA_PLANES = {
    "none": DataPlane(direct.build, tools=(), restarts=("app",)),
    # Its counters, by which it shows its delay, begin anew with it.
    "relay": DataPlane(relay.build, (r"delay-\d+us",), ("delay-proxy",), relay.check, ("app",)),
    "sidecar": DataPlane(sidecar.build, ("mtls", *sidecar.ALONE, *features.FEATURES), check=sidecar.check),
    "node-proxy": DataPlane(node_proxy.build),
    "xds": DataPlane(xds.build, xds.FEATURES, ("envoy", "xds-server"), xds.check, ("app",), tuple(CHANGES)),
    "tcp-pair": DataPlane(tcp_pair.build, check=tcp_pair.check),
}


def data_plane(treatment: Treatment) -> DataPlane:
    """A treatment's; UsageError when this backend has none of the name, or it has no such feature."""
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


def check(treatment: Treatment, load: Load) -> None:
    """UsageError for a treatment that this backend cannot build, or not for this load, before anything is deployed."""
    plane = data_plane(treatment)
    if load.unused_services and not plane.changes:
        raise UsageError(
            f"unused_services = {load.unused_services}: here the proxies of the app tiers and of xds alone have a "
            "control plane that tells them of services; on a cluster every application has one"
        )
    if treatment.restart and treatment.restart not in plane.restarts:
        named = ", ".join(f"restart-{part}" for part in plane.restarts)
        raise UsageError(f"treatment {treatment.name}: nothing here is its {treatment.restart}; allowed: {named}")
    if load.changes and not set(load.changes) & set(plane.changes):
        able = ", ".join(name for name, other in _DATA_PLANES.items() if other.changes)
        asked = ", ".join(load.changes)
        raise UsageError(f"treatment {treatment.name}: {asked} cannot be changed there under load; allowed: {able}")
    plane.check(treatment, load)


def tools_of(treatment: Treatment) -> tuple[str, ...]:
    """Programs that a treatment needs, by the names :func:`meshtrial.native.find` knows; checks the treatment too."""
    tools = data_plane(treatment).tools
    policy = any(treatment.has(name) for name in ("opa", "opa-log"))
    return (*tools, "opa-extauthz") if policy else tools
