"""Which data planes this backend has, and which features each can carry."""

from __future__ import annotations

import re
from collections.abc import Callable

from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local import direct, features, node_proxy, relay, sidecar, tcp_pair
from meshtrial.testbed.local.deployment import RESTARTED_ROLES, LocalDeployment

Builder = Callable[[LocalDeployment], None]
_BUILDERS: dict[str, tuple[Builder, tuple[str, ...]]] = {
    "none": (direct.build, ()),
    "relay": (relay.build, (r"delay-\d+us",)),
    "sidecar": (sidecar.build, ("mtls", *sidecar.ALONE, *features.FEATURES)),
    "node-proxy": (node_proxy.build, ()),
    "tcp-pair": (tcp_pair.build, ()),
}


def builder(treatment: Treatment) -> Builder:
    """The function that builds a treatment's data plane.

    Raises
    ------
    UsageError
        When this backend has no such data plane or the data plane no such feature.
    """
    if treatment.dataplane not in _BUILDERS:
        known = ", ".join(_BUILDERS)
        raise UsageError(
            f"treatment {treatment.name!r}: the local backend has no data plane {treatment.dataplane!r}; "
            f"allowed are {known}; real meshes need backend=kubernetes"
        )
    build, patterns = _BUILDERS[treatment.dataplane]
    for feature in treatment.features:
        if not any(re.fullmatch(pattern, feature) for pattern in patterns):
            allowed = ", ".join(patterns) or "none"
            raise UsageError(
                f"treatment {treatment.name!r}: {treatment.dataplane} has no feature {feature!r}; allowed: {allowed}"
            )
    return build


def check(treatment: Treatment, load: Load) -> None:
    """Refuse a treatment that this backend cannot build, or not for this load, before anything is deployed.

    Raises
    ------
    UsageError
        Naming the treatment and what is in its way.
    """
    builder(treatment)
    # A relay's counters, by which it shows its delay, begin anew with it.
    allowed = ("app",) if treatment.dataplane in ("none", "relay") else tuple(RESTARTED_ROLES)
    if treatment.restart and treatment.restart not in allowed:
        named = ", ".join(f"restart-{part}" for part in allowed)
        raise UsageError(f"treatment {treatment.name}: nothing here is its {treatment.restart}; allowed: {named}")
    checks = {"sidecar": sidecar.check, "relay": relay.check, "tcp-pair": tcp_pair.check}
    if treatment.dataplane in checks:
        checks[treatment.dataplane](treatment, load)


def tools_of(treatment: Treatment) -> tuple[str, ...]:
    """Programs that a treatment needs, by the names :func:`meshtrial.native.find` knows; checks the treatment too."""
    builder(treatment)
    tools = {"relay": ("delay-proxy",), "none": ()}.get(treatment.dataplane, ("envoy",))
    policy = any(treatment.has(name) for name in ("opa", "opa-log"))
    return (*tools, "opa-extauthz") if policy else tools
