"""No data plane: the generators call the application itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import Endpoint, LocalDeployment, numbered
from meshtrial.testbed.local.processes import owns_listener


def build(deployment: LocalDeployment) -> None:
    """The application alone."""
    first, *others = copies = deployment.spawn_apps()
    deployment.set_target(first, copies=others)
    deployment.provers += [functools.partial(_prove_copy, deployment, of, n) for n, of in enumerate(copies)]


def _prove_copy(
    deployment: LocalDeployment, endpoints: Sequence[Endpoint], copy: int, phase: str, _: int
) -> list[Proof]:
    return prove_direct(deployment, endpoints, phase, copy)


def prove_direct(deployment: LocalDeployment, endpoints: Sequence[Endpoint], phase: str, copy: int = 0) -> list[Proof]:
    """Hold the addresses that are called against the application itself: nothing listens or answers in its place."""
    owner = all(owns_listener(deployment.child(numbered("app", copy)).pid, *endpoint) for endpoint in endpoints)
    owned = "the app's own process" if owner else "another process"
    proofs = [Proof("no proxy in the path", phase, owner, "the app itself listens at the target", owned)]
    if deployment.load.protocol not in ("grpc", "tcp"):
        answer = wire.http_get(*endpoints[0], deployment.app.path)
        traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
        if answer.headers.get("server", "").lower() == "envoy":
            traces.append("server: envoy")
        passed = answer.status == 200 and not traces
        seen = ", ".join(traces) or answer.detail
        proofs.append(Proof("no proxy headers", phase, passed, "HTTP 200 without a proxy's headers", seen))
    return proofs
