"""One run, from its deployment to its record; several at once where their slices take turns.

What fails in a run is recorded as its reason, not raised; an interruption is raised, and leaves nothing behind.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl

from meshtrial.design.plan import Plan, PlannedRun
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load import failures, ingest
from meshtrial.load.generators import GeneratorOutput
from meshtrial.records.schema import Proof, RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run import capacity, stage
from meshtrial.run.restarting import Restarted
from meshtrial.testbed.base import Deployment, Testbed

_LONGEST_LOG = 1_000_000  # characters of a generator's text that a run keeps


def run_once(store: StudyStore, testbed: Testbed, planned: PlannedRun, attempt: int) -> RunRecord:
    """Make one run and record it whole; what fails in it is recorded as its reason, not raised.

    Interruption (Ctrl-C, a signal) is raised: the run then leaves nothing behind.
    """
    temporary = store.begin(planned.run_id, attempt)
    try:
        measured = _Measured(store.plan, planned, attempt, temporary)
        steps = measured.steps(testbed)
        while measured.advance(steps):
            pass
        return measured.finish(store, testbed)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def run_interleaved(store: StudyStore, testbed: Testbed, block: Sequence[PlannedRun]) -> list[RunRecord]:
    """Deploy all runs of a block, take their slices in turn, each turn in a random order, and record them all.

    A treatment that fails on the way is recorded with its reason; the others go on.
    """
    with ExitStack() as stack:
        running: list[tuple[_Measured, Iterator[None]]] = []
        for planned in block:
            temporary = store.begin(planned.run_id, 1)
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            measured = _Measured(store.plan, planned, 1, temporary)
            steps = measured.steps(testbed)
            # Closing a generator that was interrupted runs its finally: the deployment goes.
            stack.callback(steps.close)
            running.append((measured, steps))
        alive = list(range(len(running)))
        rng = np.random.default_rng([store.plan.study.seed, block[0].sequence]) if block else None
        while alive and rng is not None:
            order = [alive[int(i)] for i in rng.permutation(len(alive))]
            ended = {i for i in order if not running[i][0].advance(running[i][1])}
            alive = [i for i in alive if i not in ended]
        return [measured.finish(store, testbed) for measured, _ in running]


class _Measured:
    """What one run has produced so far; a failure on the way leaves the rest empty."""

    def __init__(self, plan: Plan, planned: PlannedRun, attempt: int, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.planned = planned
        self.attempt = attempt
        self.load = plan.load_of(planned)
        self.treatment = plan.treatment_of(planned)
        self.app = self.treatment.app or plan.study.app
        self.started = datetime.datetime.now(datetime.UTC)
        self.start_unix_s = self.started.timestamp()
        self.deploy_s = 0.0
        self.target = ""
        self.versions: dict[str, str] = {}
        self.proofs: list[Proof] = []
        self.stage: stage.Stage | None = None
        self.responses: dict[str, float] = {}
        self.extra: dict[str, object] = {}
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def advance(self, steps: Iterator[None]) -> bool:
        """Take the next step; False when there is none, or when it failed."""
        try:
            next(steps)
        except StopIteration:
            return False
        except MeshtrialError as error:
            self.reasons.append(str(error))
            for name, text in error.evidence.items():
                (self.folder / "logs" / name).write_text(text)
            return False
        return True

    def finish(self, store: StudyStore, testbed: Testbed) -> RunRecord:
        record, measured = self.record(testbed), self.stage
        requests, course = (measured.measurement.requests, measured.course) if measured else (None, None)
        store.finish(self.folder, record, requests, course)
        return record

    def steps(self, testbed: Testbed) -> Generator[None]:
        """The run, pausing before each of its slices; the deployment is closed however it ends."""
        self.responses |= testbed.before_run()
        began = time.monotonic()
        deployment = testbed.deploy(self.treatment, self.load, self.app)
        try:
            self.deploy_s = time.monotonic() - began
            self.target = deployment.target.url
            self.proofs += deployment.prove("before", 0)
            sent = yield from self._load(deployment, testbed)
            self.proofs += deployment.prove("after", sent)
            facts = deployment.facts()
            self.extra |= {"deploy": {"ready_s": self.deploy_s}} | facts.to_dict()
            self.responses |= facts.added_responses(self.responses, self.deploy_s)
        finally:
            self.versions = dict(deployment.versions)
            with suppress(OSError, MeshtrialError):
                deployment.collect_logs(self.folder / "logs")
            deployment.close()

    def _load(self, deployment: Deployment, testbed: Testbed) -> Generator[None, None, int]:
        """Warm up and measure, or search the capacity; how many requests the deployment has seen."""
        limits, folder = self.plan.study.gates, self.folder
        if self.load.search:
            drawn = np.random.default_rng([self.plan.study.seed, self.planned.sequence, self.attempt]).random()
            found = capacity.find(deployment, testbed, self.load, limits, folder, float(drawn))
            self._keep(found.confirmed)
            self.responses |= found.responses
            self.notes += found.notes
            self.extra["search"] = found.to_dict()
            return found.sent
        sent, resolution = stage.warm_up(deployment, self.load, folder)
        slices = stage.Slices(deployment, testbed, self.load, limits, folder, resolution, self.treatment.restart)
        for _ in range(self.load.parts):
            yield
            slices.take()
        measured = slices.finish()
        self._keep(measured)
        self.responses |= measured.responses
        if measured.ramp:
            self.extra["ramp"] = [asdict(step) for step in measured.ramp]
        if measured.restarted is not None:
            return self._restarted(measured.restarted, measured.measurement)
        return sent + measured.sent

    def _restarted(self, restarted: Restarted, measurement: ingest.Measurement) -> int:
        """Keep when it happened and that it did; how many requests were answered since, which counters must show."""
        start = measurement.start_unix_s
        began_s, ended_s = restarted.began_unix_s - start, restarted.ended_unix_s - start
        self.proofs += restarted.proofs
        self.extra["restart"] = {"part": self.treatment.restart, "began_s": began_s, "ended_s": ended_s}
        since = measurement.requests.filter(pl.col("ok"), pl.col("actual_start_s") > ended_s).height
        if not since:
            raise TestbedError(
                f"restart of {self.treatment.restart}: took {ended_s - began_s:.3g} s, and no request was answered "
                "after it; lengthen duration_s"
            )
        return since

    def _keep(self, measured: stage.Stage) -> None:
        self.stage = measured
        self.notes = [*measured.measurement.notes]
        _keep_results(measured.outputs, self.folder)

    def record(self, testbed: Testbed) -> RunRecord:
        measurement = self.stage.measurement if self.stage else None
        gates = self.stage.gates if self.stage else ()
        reasons = [*self.reasons]
        reasons += [f"gate {gate.name}: {gate.message}" for gate in gates if not gate.passed]
        failed = [proof for proof in self.proofs if not proof.passed]
        reasons += [f"proof {p.name} ({p.phase}): expected {p.expected}, saw {p.observed}" for p in failed]
        return RunRecord(
            **asdict(self.planned),
            plan_sha256=self.plan.sha256,
            study=self.plan.study.name,
            backend=testbed.name,
            attempt=self.attempt,
            app=self.app,
            load_spec=asdict(self.load) | {"label": self.load.label},
            options=dict(self.plan.study.options),
            started_at=self.started.isoformat(timespec="milliseconds"),
            finished_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            start_unix_s=self.start_unix_s,
            deploy_s=self.deploy_s,
            target=self.target,
            generators=measurement.generators if measurement else (),
            proofs=tuple(self.proofs),
            gates=gates,
            usage=self.stage.usage if self.stage else (),
            versions=self.versions,
            responses=self.responses,
            bounds={k: v for k, v in measurement.bounds.items() if k in self.responses} if measurement else {},
            valid=not reasons and measurement is not None,
            reasons=tuple(reasons),
            notes=tuple(self.notes),
            failures=failures.count(measurement.requests) if measurement else {},
            extra=self.extra,
        )


def bounded(text: str) -> str:
    """Both ends of a long text: where every request fails there is a line for each, and their kinds are recorded."""
    if len(text) <= _LONGEST_LOG:
        return text
    half = _LONGEST_LOG // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters are left out here ...\n{text[-half:]}"


def _keep_results(outputs: Sequence[GeneratorOutput], folder: Path) -> None:
    """Keep each generator's JSON and text; its access log is ``latency.parquet`` by now, in a tenth of the space."""
    for output in outputs:
        suffix = "" if len(outputs) == 1 else f"-{output.name}"
        output.json_path.rename(folder / f"fortio{suffix}.json")
        (folder / "logs" / f"fortio{suffix}.txt").write_text(bounded(output.text))
        output.access_log_path.unlink(missing_ok=True)
        output.json_path.with_suffix(".txt").unlink(missing_ok=True)
