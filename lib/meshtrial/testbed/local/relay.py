"""A TCP relay that adds a known delay to every request: the instrument's own test signal.

The relay stands in every treatment of a calibration study, with delay 0 in the baseline, so that its own cost
cancels; what it really added is read back from it and recorded.
"""

from __future__ import annotations

from meshtrial import native
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.sockets import Endpoint

_PREFIX = "delay-"


def build(deployment: LocalDeployment) -> None:
    """Start the application behind the relay."""
    deployment.note_version("delay-proxy")
    (app,) = deployment.spawn_app()
    entry, admin = deployment.new_endpoint(), deployment.new_endpoint()
    delay_us = asked_delay_us(deployment.treatment.features)
    argv = (
        *(str(native.find("delay-proxy")), "-delay", f"{delay_us}us"),
        *("-listen", f"{entry[0]}:{entry[1]}", "-target", f"{app[0]}:{app[1]}", "-admin", f"{admin[0]}:{admin[1]}"),
    )
    deployment.spawn("relay", "data plane", argv, [entry, admin])
    deployment.set_target([entry])
    deployment.provers.append(_prover(deployment, entry, admin, delay_us))


def check(treatment: Treatment, load: Load) -> None:
    """Refuse a load that goes to more than one target."""
    if load.protocol == "mixed":
        raise UsageError(f"treatment {treatment.name}: the relay has one target, and a mixed load has two")
    if load.protocol == "tcp":
        raise UsageError(f"treatment {treatment.name}: the relay shows by a request that it is there; take http1")
    if load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: the relay has one target; leave replicas out")


def asked_delay_us(features: tuple[str, ...]) -> int:
    """The delay a treatment's features ask for, in microseconds; 0 without."""
    return next((int(f.removeprefix(_PREFIX).removesuffix("us")) for f in features if f.startswith(_PREFIX)), 0)


def _prover(deployment: LocalDeployment, entry: Endpoint, admin: Endpoint, delay_us: int) -> Prover:
    """Requests pass the relay, and each was held at least as long as asked."""
    seen = 0

    def prove(phase: str, requests: int) -> list[Proof]:
        nonlocal seen
        if phase == "before":
            wire.http_get(*entry, deployment.app.path)
            requests = 1
        applied = wire.ask_json("relay", admin, "/stats")["applied"]
        deployment.told.notes["relay"] = applied
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
