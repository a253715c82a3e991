"""No data plane: the generators call the application itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from meshtrial.records.schema import Proof
from meshtrial.testbed.local import sockets, wire
from meshtrial.testbed.local.deployment import LocalDeployment, numbered
from meshtrial.testbed.local.sockets import Endpoint


def build(deployment: LocalDeployment) -> None:
    """The application alone."""
    first, *others = copies = deployment.spawn_apps()
    deployment.set_target(first, copies=others)
    for copy, endpoints in enumerate(copies):
        deployment.provers.append(functools.partial(prove_direct, deployment, endpoints, copy))


def prove_direct(
    deployment: LocalDeployment, endpoints: Sequence[Endpoint], copy: int, phase: str, _: int = 0
) -> list[Proof]:
    """Hold the addresses that are called against the application itself: nothing listens or answers in its place."""
    proofs = [prove_own(deployment, "no proxy in the path", "at the target", endpoints, phase, copy)]
    if deployment.load.protocol not in ("grpc", "tcp"):
        answer = wire.http_get(*endpoints[0], deployment.app.path)
        traces = proxy_traces(answer)
        seen = ", ".join(traces) or answer.detail
        passed = answer.status == 200 and not traces
        proofs.append(Proof("no proxy headers", phase, passed, "HTTP 200 without a proxy's headers", seen))
    return proofs


def prove_own(
    deployment: LocalDeployment, name: str, where: str, endpoints: Sequence[Endpoint], phase: str, copy: int = 0
) -> Proof:
    """A copy of the application listens itself."""
    owned = not sockets.foreign(deployment.child(numbered("app", copy)).pid, endpoints)
    seen = "the app's own process" if owned else "another process"
    return Proof(name, phase, owned, f"the app itself listens {where}", seen)


def proxy_traces(answer: wire.HttpAnswer) -> list[str]:
    """What in an answer tells of a proxy."""
    traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
    return [*traces, "server: envoy"] if answer.headers.get("server", "").lower() == "envoy" else traces
