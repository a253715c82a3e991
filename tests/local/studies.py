"""What the local tests share: deployments loaded and proven, short studies, gates that ask nothing of the machine."""

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

# How fast this machine is and what else runs on it fails none of these, and a short run has requests enough.
PATIENT = Gates(foreign_load=1.0, generator_cpu=1.0, late_ratio=1.0, rate_tolerance=1.0, sample_floor=5)
# How long a test waits for what is sure to come: on a machine of which it gets a tenth, too.
PATIENCE_S = 240.0
# Of one slice: its runs come one after the other, which what is done to a study between two of them needs.
SHORT = {"rps": 300, "connections": 4, "duration_s": 0.8, "warmup_s": 0.2, "slices": 1}


@dataclass(frozen=True)
class Exercised:
    """A deployment that was proven, loaded and proven again."""

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
        """The proofs that did not hold, by name."""
        return {proof.name: proof for proof in self.proofs if not proof.passed}


def exercise(
    treatment: str, folder: Path, load: Load, testbed: LocalTestbed | None = None, app: str = "echo"
) -> Exercised:
    """Deploy, prove, load, prove again, and take it down; nothing of it stays."""
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
        assert not deployment.fleet.folder.exists()


def closed_loop_rps(study: Study, treatment: str, folder: Path, connections: int) -> float:
    """What a study's treatment carries here and now, each connection waiting for its answer."""
    folder.mkdir()
    done = exercise(treatment, folder, ClosedLoop(connections, 0.5), LocalTestbed(study.options))
    return done.measured.responses["achieved_rps"]


def told(outputs: Iterable[GeneratorOutput]) -> list[int]:
    """Requests by generator as fortio itself counted them.

    How many of the asked ones that is, is the machine's business: a connection that is held up at the end of the time
    does not make up for what it did not send.
    """
    return [json.loads(output.json_path.read_text())["DurationHistogram"]["Count"] for output in outputs]


def study_of(name: str, given: Mapping[str, object], gates: Gates = PATIENT, **changed: object) -> Study:
    """A study of parameters as a notebook has them, with its gates and what else is changed."""
    return replace(built(name, **{"seed": 0} | given), gates=gates, **changed)


def without_twin(study: Study) -> Study:
    """The same without the baseline's twin, where nothing is decided by it."""
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
    """Skip a test whose releases of Envoy cannot be fetched here, with the reason; CI has them."""
    try:
        read_versions(versions)
    except MissingToolError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def short(**more: object) -> list[str]:
    """Parameters of a short study as a command takes them."""
    return [part for name, value in (SHORT | more).items() for part in ("-p", f"{name}={value}")]


def only(folder: Path, pattern: str) -> Path:
    """The one file that is called so."""
    found = list(folder.glob(pattern))
    assert len(found) == 1, (folder, pattern, found)
    return found[0]
