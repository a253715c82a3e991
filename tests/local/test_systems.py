"""Generated systems of real services and proxies: every call is made and counted, and a hidden delay is found."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from local.studies import PATIENT
from refused import refused

from meshtrial.design.generated import generated, sealed_systems
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.load.ingest import Measurement
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.run import stage
from meshtrial.testbed.local.testbed import LocalTestbed

LOAD = FixedRate(40, 4, 2, warmup_s=0.5)
SEED = 3  # a system of four services, one of which is called after every fourth answer
DELAY_S = 0.05


@dataclass
class Done:
    proofs: list[Proof]
    usage: dict[str, ComponentUsage]
    measured: Measurement
    sent: int

    @property
    def failed(self) -> list[Proof]:
        return [proof for proof in self.proofs if not proof.passed]


def exercise(treatment: str, folder: Path) -> Done:
    """Deploy, verify, load, verify again and remove a system."""
    folder = folder / treatment
    folder.mkdir()
    bed = LocalTestbed(sealed_systems({f"system-{SEED}": generated(SEED, LOAD.rps, LOAD.connections)}))
    deployment = bed.deploy(Treatment.parse(f"{treatment}@system-{SEED}"), LOAD, "echo")
    try:
        proofs = [*deployment.prove("before", 0)]
        sent, resolution = stage.warm_up(deployment, LOAD, folder)
        found = stage.measure(deployment, bed, LOAD, PATIENT, folder, resolution)
        proofs += deployment.prove("after", sent + found.sent)
    finally:
        deployment.close()
        assert not deployment.folder.exists()
    return Done(proofs, {used.component: used for used in found.usage}, found.measurement, sent + found.sent)


@pytest.mark.parametrize("treatment", ["none", "sidecar", "sidecar+mtls", "node-proxy"])
def test_a_system_end_to_end(treatment, tmp_path):
    done = exercise(treatment, tmp_path)
    assert done.failed == []
    assert done.measured.responses["error_ratio"] == 0
    proxies = {name: used for name, used in done.usage.items() if used.role == "data plane"}
    services = [call.callee for call in generated(SEED, 40, 4).calls]
    assert {name for name, used in done.usage.items() if used.role == "app"} == set(services)
    expected = {
        "none": set(),
        "node-proxy": {"client node proxy", "server node proxy"},
    }.get(treatment, {f"{name} sidecar" for name in ("ingress", *services)})
    assert set(proxies) == expected
    assert all(used.cpu_s > 0 and (used.pss_bytes or 0) > 2**20 for used in proxies.values())
    seen = {proof.name: proof.observed for proof in done.proofs if proof.phase == "after"}
    if treatment.startswith("sidecar"):
        for call in generated(SEED, 40, 4).calls:
            through = int(seen[f"requests through the sidecar, {call.callee}"])
            # One more per connection, whose first request is fortio's trial.
            assert done.sent * call.rps / 40 - 1 <= through <= (done.sent + 2 * LOAD.connections) * call.rps / 40 + 1
    if treatment == "sidecar+mtls":
        assert {f"wrong identity refused, {name}" for name in services} <= {proof.name for proof in done.proofs}


def test_a_hidden_delay_is_in_the_answer_and_nowhere_else(tmp_path):
    plain = exercise("sidecar", tmp_path)
    delayed = exercise(f"sidecar+delay-{DELAY_S * 1e6:.0f}us", tmp_path)
    assert delayed.failed == []
    assert delayed.measured.requests["latency_s"].min() >= DELAY_S
    assert plain.measured.requests["latency_s"].min() < DELAY_S
    assert any(proof.name == "delay hidden in a hop" for proof in delayed.proofs)


@pytest.mark.parametrize(
    "treatment", ["tcp-pair", "sidecar+jwt", "sidecar+delay-10ms", "none+mtls", "sidecar+delay-1us+delay-2us"]
)
def test_what_generated_systems_do_not_have(treatment):
    with refused(UsageError, names=[treatment]):
        LocalTestbed().deploy(Treatment.parse(f"{treatment}@system-1"), LOAD, "echo")


def test_a_system_that_the_plan_does_not_hold():
    with refused(UsageError, names=["system-1", "prediction"]):
        LocalTestbed().deploy(Treatment.parse("none@system-1"), LOAD, "echo")
