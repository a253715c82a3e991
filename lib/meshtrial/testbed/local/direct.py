"""No data plane: the generators call the application itself."""

from __future__ import annotations

from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment
from meshtrial.testbed.local.processes import owns_listener


def build(deployment: LocalDeployment) -> None:
    """The application alone."""
    address, port = deployment.spawn_app()
    deployment.set_target(address, port)
    deployment.provers.append(lambda phase, _: _prove_direct(deployment, address, port, phase))


def _prove_direct(deployment: LocalDeployment, address: str, port: int, phase: str) -> list[Proof]:
    owner = owns_listener(deployment.child("app").pid, address, port)
    owned = "the app's own process" if owner else "another process"
    proofs = [Proof("no proxy in the path", phase, owner, "the app itself listens at the target", owned)]
    if deployment.load.protocol != "grpc":
        answer = wire.http_get(address, port, deployment.app.path)
        traces = sorted(set(answer.headers) & {"via", "x-envoy-upstream-service-time"})
        if answer.headers.get("server", "").lower() == "envoy":
            traces.append("server: envoy")
        passed = answer.status == 200 and not traces
        seen = ", ".join(traces) or answer.detail
        proofs.append(Proof("no proxy headers", phase, passed, "HTTP 200 without a proxy's headers", seen))
    return proofs
