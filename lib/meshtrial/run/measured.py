"""Runs, from their deployments to their records: one that stands alone, or several that stand at once.

Deployments that stand at once are stood up, proven and removed beside each other. Their slices go round, one at a time,
in the order that the plan has sealed; meanwhile the others idle, kept warm by a few requests a second. One that fails
stands idle until the end, for its removal would disturb the others.

What fails in a run is recorded as its reason, not raised; an interruption is raised, and leaves nothing behind.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl

from meshtrial.design.load import CapacitySearch
from meshtrial.design.plan import Plan, PlannedRun
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load import ingest
from meshtrial.load.generators import GeneratorOutput
from meshtrial.records.schema import Proof, RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run import capacity, stage
from meshtrial.run.during_load import Restarted
from meshtrial.run.quiet import Waited
from meshtrial.testbed.base import Block, Deployment, Testbed

_LONGEST_LOG = 1_000_000  # characters of a generator's text that a run keeps


def carry_out(
    store: StudyStore, testbed: Testbed, together: Sequence[PlannedRun], attempt: int, waited: Waited | None = None
) -> list[RunRecord]:
    """Make runs of one block whose deployments stand at once, and record them whole, with what they waited for.

    What fails in one of them is recorded as its reason, and the others go on. Interruption (Ctrl-C, a signal) is
    raised: they then leave nothing behind.
    """
    plan, first = store.plan, together[0]
    block = Block(f"{plan.sha256} {plan.block_of(first)}", plan.drawn_for(first))
    with ExitStack() as stack:
        runs: list[_Run] = []
        for planned in together:
            folder = store.begin(planned.run_id, attempt)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            runs.append(_Run(plan, planned, attempt, folder))
            if waited is not None:
                runs[-1].extra["waited"] = waited.to_dict()
        looked = testbed.before_run()
        with _closing(runs):
            try:
                testbed.make_ready([run.treatment for run in runs], plan.load_of(first), plan.study.app, block)
            except MeshtrialError as error:
                for run in runs:
                    run.fail(error)
            names = [run.treatment.name for run in runs]
            _beside(
                runs, lambda run: run.stand(testbed, looked, [name for name in names if name != run.treatment.name])
            )
            _load(runs, testbed, plan.turns(together))
            _beside(runs, _Run.conclude)
        return [run.finish(store, testbed) for run in runs]


@contextmanager
def _closing(runs: Sequence[_Run]) -> Iterator[None]:
    """Remove all that stands at the end, however it comes."""
    try:
        yield
    finally:
        _beside(runs, _Run.close, failed_too=True)


def _beside(runs: Sequence[_Run], work: Callable[[_Run], object], *, failed_too: bool = False) -> None:
    """Do something for all that have not failed at once, each in a thread, and wait for all; for one, right here.

    Whatever was begun has ended when this is left, by an interruption too: what stands is then known, and removed.
    """
    left = [run for run in runs if failed_too or not run.reasons]
    if len(left) == 1:
        left[0].attempt_to(work)
    elif left:
        with ThreadPoolExecutor(len(left)) as pool:
            for begun in [pool.submit(run.attempt_to, work) for run in left]:
                begun.result()


def _load(runs: Sequence[_Run], testbed: Testbed, turns: Sequence[Sequence[int]]) -> None:
    """Warm up and measure: one that stands alone in one go, several slice by slice."""
    if len(runs) == 1:
        _beside(runs, lambda run: run.measure(testbed))
        return
    _beside(runs, lambda run: run.warm_up(testbed, beside=len(runs)))
    _beside(runs, lambda run: run.slices.rest())
    last: _Run | None = None
    testbed.used_between()
    for run in (runs[place] for turn in turns for place in turn):
        _change(last, run, testbed)
        _beside([run], lambda run: run.slices.run())
        last = run
    _change(last, None, testbed)


def _change(last: _Run | None, following: _Run | None, testbed: Testbed) -> None:
    """Read the counters behind one slice and before the next at the same time: a kubelet takes seconds for its own."""

    def turn(run: _Run) -> None:
        if run is last:
            run.slices.end()
        if run is following:
            run.slices.begin()
        else:
            run.slices.rest()

    with ThreadPoolExecutor(1) as aside:
        looked = aside.submit(testbed.used_between)
        _beside([run for run in dict.fromkeys((last, following)) if run is not None], turn)
    used = looked.result()
    if last is not None and not last.reasons:
        last.slices.note(used)


class _Run:
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
        self.sent = 0  # requests that the deployment has seen, or must show in its counters
        self.responses: dict[str, float] = {}
        self.extra: dict[str, object] = {}
        self.reasons: list[str] = []
        self.notes: list[str] = []
        self._deployment: Deployment | None = None
        self._slices: stage.Slices | None = None

    @property
    def deployment(self) -> Deployment:
        assert self._deployment is not None
        return self._deployment

    @property
    def slices(self) -> stage.Slices:
        """What is measured of it, once it is warm."""
        assert self._slices is not None
        return self._slices

    def attempt_to(self, work: Callable[[_Run], object]) -> None:
        """Do something of the run; what fails is its reason."""
        try:
            work(self)
        except MeshtrialError as error:
            self.fail(error)

    def fail(self, error: MeshtrialError) -> None:
        """Keep why it failed, and the evidence."""
        self.reasons.append(str(error))
        for name, text in error.evidence.items():
            (self.folder / "logs" / name).write_text(text)

    def finish(self, store: StudyStore, testbed: Testbed) -> RunRecord:
        record, measured = self.record(testbed), self.stage
        requests, course = (measured.measurement.requests, measured.course) if measured else (None, None)
        store.finish(self.folder, record, requests, course)
        return record

    def stand(self, testbed: Testbed, looked: Mapping[str, float], beside: Sequence[str]) -> None:
        """Deploy it, and prove that it is what its label says."""
        self.responses |= looked
        if beside:
            self.extra["neighbours"] = list(beside)
        began = time.monotonic()
        self._deployment = testbed.deploy(self.treatment, self.load, self.app)
        self.deploy_s = time.monotonic() - began
        self.target = self.deployment.target.url
        self.proofs += self.deployment.prove("before", 0)

    def warm_up(self, testbed: Testbed, beside: int = 1) -> None:
        """Load it without measuring, so that its slices can be taken; so many are loaded at the same moment."""
        self.sent, resolution_s = stage.warm_up(self.deployment, self.load, self.folder, beside)
        gates, restart = self.plan.study.gates, self.treatment.restart
        self._slices = stage.Slices(self.deployment, testbed, self.load, gates, self.folder, resolution_s, restart)

    def measure(self, testbed: Testbed) -> None:
        """Warm it up and take all its slices, or search its capacity: it stands alone."""
        if not isinstance(self.load, CapacitySearch):
            self.warm_up(testbed)
            for _ in range(self.load.parts):
                self.slices.take()
            return
        drawn = np.random.default_rng([self.plan.study.seed, self.planned.sequence, self.attempt]).random()
        gates = self.plan.study.gates
        searched = capacity.find(self.deployment, testbed, self.load, gates, self.folder, float(drawn))
        self._keep(searched.confirmed)
        self.responses |= searched.responses
        self.notes += searched.notes
        self.extra["search"] = searched.to_dict()
        self.sent = searched.sent

    def read(self) -> None:
        """Read what its generators left, and hold it to the gates."""
        if self._slices is None:
            return
        measured = self.slices.finish()
        self._keep(measured)
        self.responses |= measured.responses
        if measured.ramp:
            self.extra["ramp"] = [asdict(step) for step in measured.ramp]
        if measured.changes:
            self.extra["changes"] = [asdict(change) for change in measured.changes]
        # What was refused on purpose, no proxy behind the refusal has to have counted.
        self.sent += (
            measured.sent if not measured.changes else measured.measurement.requests.filter(pl.col("ok")).height
        )
        if measured.restarted is not None:
            self._note_restart(measured.restarted, measured.measurement)

    def conclude(self) -> None:
        """Read what was measured, prove once more what the label says, and ask the deployment for its facts."""
        self.read()
        self.proofs += self.deployment.prove("after", self.sent)
        facts = self.deployment.facts()
        self.extra |= {"deploy": {"ready_s": self.deploy_s}} | facts.to_dict()
        self.responses |= stage.deployment_responses(facts, self.responses, self.deploy_s)

    def close(self) -> None:
        """Keep the logs, and remove the deployment where it stands."""
        if self._deployment is None:
            return
        try:
            self.versions = dict(self.deployment.versions)
            with suppress(OSError, MeshtrialError):
                self.deployment.collect_logs(self.folder / "logs")
        finally:
            self.deployment.close()

    def _note_restart(self, restarted: Restarted, measurement: ingest.Measurement) -> None:
        """Keep when it happened and that it did; what was sent since is what counters must show."""
        start = measurement.start_unix_s
        began_s, ended_s = restarted.began_unix_s - start, restarted.ended_unix_s - start
        self.proofs += restarted.proofs
        self.extra["restart"] = {"part": self.treatment.restart, "began_s": began_s, "ended_s": ended_s}
        self.sent = measurement.requests.filter(pl.col("ok"), pl.col("actual_start_s") > ended_s).height
        if not self.sent:
            raise TestbedError(
                f"restart of {self.treatment.restart}: took {ended_s - began_s:.3g} s, and no request was answered "
                "after it; lengthen duration_s"
            )

    def _keep(self, measured: stage.Stage) -> None:
        self.stage = measured
        self.notes = [*measured.measurement.notes]
        _keep_results(measured.outputs, self.folder)

    def record(self, testbed: Testbed) -> RunRecord:
        measurement = self.stage.measurement if self.stage else None
        gates = self.stage.gates if self.stage else ()
        reasons = [*self.reasons]
        reasons += [gate.reason for gate in gates if not gate.passed]
        reasons += [proof.reason for proof in self.proofs if not proof.passed]
        return RunRecord(
            **asdict(self.planned),
            plan_sha256=self.plan.sha256,
            study=self.plan.study.name,
            backend=testbed.name,
            attempt=self.attempt,
            app=self.app,
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
            failures=measurement.failures if measurement else {},
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
