"""Shared by local tests: verified and loaded deployments, short studies, checks that ignore the machine's speed."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from building import built

from meshtrial.design.load import ClosedLoop, Load
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Gates, Study, Treatment
from meshtrial.errors import MissingToolError
from meshtrial.inference import analyse
from meshtrial.load import fortio, ingest
from meshtrial.load.generators import GeneratorOutput
from meshtrial.load.ingest import Measurement
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.records.store import StudyStore
from meshtrial.run.progress import ProgressCallback
from meshtrial.run.runner import execute
from meshtrial.run.stage import requests_sent
from meshtrial.testbed.base import Watch, usage_between
from meshtrial.testbed.local.testbed import LocalTestbed
from meshtrial.testbed.local.versions import read_versions

# The machine's speed and other programs fail none of these, and a short run has enough requests.
PATIENT = Gates(foreign_load=1.0, generator_cpu=1.0, late_ratio=1.0, rate_tolerance=1.0, sample_floor=5)
# How long a test waits for a certain event, also with a tenth of a machine.
PATIENCE_S = 240.0
# One slice: runs follow each other, which tests need that act between two runs.
SHORT = {"rps": 300, "connections": 4, "duration_s": 0.8, "warmup_s": 0.2, "slices": 1}


@dataclass(frozen=True)
class Exercised:
    """A deployment that was verified, loaded and verified again."""

    proofs: tuple[Proof, ...]
    usage: tuple[ComponentUsage, ...]
    measured: Measurement
    outputs: tuple[GeneratorOutput, ...]

    @property
    def names(self) -> set[str]:
        """All proofs."""
        return {proof.name for proof in self.proofs}

    @property
    def failed(self) -> dict[str, Proof]:
        """Return the proofs that failed, by name."""
        return {proof.name: proof for proof in self.proofs if not proof.passed}


def exercise(
    treatment: str, folder: Path, load: Load, testbed: LocalTestbed | None = None, app: str = "echo"
) -> Exercised:
    """Deploy, verify, load, verify again and remove a deployment; nothing of it remains."""
    deployment = (testbed or LocalTestbed()).deploy(Treatment.parse(treatment), load, app)
    try:
        proofs = list(deployment.prove("before", 0))
        before = deployment.snapshot()
        outputs = deployment.generate(fortio.calls(load, "measure"), folder, load.duration_s + PATIENCE_S)
        usage = usage_between(before, deployment.snapshot())
        measured = ingest.ingest(outputs, load, 1)
        proofs += deployment.prove("after", requests_sent(measured, load))
        return Exercised(tuple(proofs), usage, measured, tuple(outputs))
    finally:
        deployment.close()
        assert not deployment.folder.exists()


def closed_loop_rps(study: Study, treatment: str, folder: Path, connections: int) -> float:
    """Return how many requests per second a treatment carries here, each connection waiting for its answer."""
    folder.mkdir()
    done = exercise(treatment, folder, ClosedLoop(connections, 0.5), LocalTestbed(study.options))
    return done.measured.responses["achieved_rps"]


def told(outputs: Iterable[GeneratorOutput]) -> list[int]:
    """Return requests by generator as fortio counted them.

    Their number depends on the machine: a connection that is delayed at the end does not catch up.
    """
    return [json.loads(output.json_path.read_text())["DurationHistogram"]["Count"] for output in outputs]


def study_of(name: str, given: Mapping[str, object], gates: Gates = PATIENT, **changed: object) -> Study:
    """Build a study as a notebook does, with other checks and a test's changes."""
    return replace(built(name, **{"seed": 0} | given), gates=gates, **changed)


def without_twin(study: Study) -> Study:
    """Return the study without the baseline's twin, which decides nothing here."""
    return replace(study, treatments=tuple(treatment for treatment in study.treatments if not treatment.twin))


def executed(
    study: Study,
    testbed: LocalTestbed | None = None,
    tell: ProgressCallback = lambda _: None,
    watch: Watch | None = None,
) -> StudyStore:
    """Run it in the test's folder."""
    testbed = testbed or LocalTestbed(study.options)
    assert testbed.preflight(study) == ()
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, testbed, tell, watch=watch)
    return store


def recorded(study: Study) -> StudyData:
    """Run it in the test's folder and analyse it."""
    return analyse(executed(study))


def need_releases(versions: str) -> None:
    """Skip a test if its Envoy releases cannot be fetched, with the reason; CI has them."""
    try:
        read_versions(versions)
    except MissingToolError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def short(**more: object) -> list[str]:
    """Return the options of a short study for a command."""
    return [part for name, value in (SHORT | more).items() for part in ("-p", f"{name}={value}")]


def only(folder: Path, pattern: str) -> Path:
    """Return the only file of this name."""
    found = list(folder.glob(pattern))
    assert len(found) == 1, (folder, pattern, found)
    return found[0]
