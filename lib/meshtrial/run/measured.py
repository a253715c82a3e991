"""Make runs, from deployment to record: a single one, or several with concurrent deployments.

Concurrent deployments are started, verified and removed in parallel. Their slices are measured one at a time, in the
sealed order; meanwhile the other deployments receive a few requests per second, which keeps them warm. A deployment
that fails stays idle until the end, because its removal would disturb the others.

A failure is recorded as the reason of its run. An interruption is raised and leaves no files or deployments behind.
"""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
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
from meshtrial.run.quiet import Waited
from meshtrial.testbed.base import Block, Deployment, Testbed

_LONGEST_LOG = 1_000_000  # characters of a load generator's output that a run keeps


def carry_out(
    store: StudyStore, testbed: Testbed, group: Sequence[PlannedRun], attempt: int, waited: Waited | None = None
) -> list[RunRecord]:
    """Make and record the runs of one block with concurrent deployments; ``waited`` is recorded with them.

    A failure of one run does not end the others. An interruption (Ctrl-C, a signal) is raised, and nothing is recorded.
    """
    plan, first = store.plan, group[0]
    block = Block(f"{plan.sha256} {plan.block_of(first)}", plan.drawn_for(first))
    with ExitStack() as stack:
        runs: list[_Run] = []
        for planned in group:
            folder = store.begin(planned.run_id, attempt)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            runs.append(_Run(plan, planned, attempt, folder))
            if waited is not None:
                runs[-1].extra["waited"] = waited.to_dict()
        before = testbed.before_run()
        try:
            try:
                testbed.make_ready([run.treatment for run in runs], plan.load_of(first), plan.study.app, block)
            except MeshtrialError as error:
                for run in runs:
                    run.fail(error)
            names = [run.treatment.name for run in runs]
            _for_each(
                runs, lambda run: run.deploy(testbed, before, [name for name in names if name != run.treatment.name])
            )
            _load(runs, testbed, plan.turns(group))
            _for_each(runs, _Run.conclude)
        finally:
            _for_each(runs, _Run.close, include_failed=True)
        return [run.finish(store, testbed) for run in runs]


def _for_each(runs: Sequence[_Run], work: Callable[[_Run], object], *, include_failed: bool = False) -> None:
    """Do something for all runs that have not failed, in parallel, and wait for all of them.

    Everything started has ended when this returns, also after an interruption, so that all deployments are known.
    """
    chosen = [run for run in runs if include_failed or not run.reasons]
    if len(chosen) == 1:
        chosen[0].attempt_to(work)
    elif chosen:
        with ThreadPoolExecutor(len(chosen)) as pool:
            for future in [pool.submit(run.attempt_to, work) for run in chosen]:
                future.result()


def _load(runs: Sequence[_Run], testbed: Testbed, turns: Sequence[Sequence[int]]) -> None:
    """Warm up and measure, several runs slice by slice."""
    if len(runs) == 1:
        _for_each(runs, lambda run: run.measure(testbed))
        return
    _for_each(runs, lambda run: run.warm_up(testbed, concurrent=len(runs)))
    _for_each(runs, lambda run: run.slices.rest())
    last: _Run | None = None
    testbed.used_between()
    for run in (runs[index] for turn in turns for index in turn):
        _switch(last, run, testbed)
        _for_each([run], lambda run: run.slices.run())
        last = run
    _switch(last, None, testbed)


def _switch(last: _Run | None, following: _Run | None, testbed: Testbed) -> None:
    """Read the counters after one slice and before the next in parallel, because a kubelet takes seconds to answer."""

    def turn(run: _Run) -> None:
        if run is last:
            run.slices.end()
        if run is following:
            run.slices.begin()
        else:
            run.slices.rest()

    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(testbed.used_between)
        _for_each([run for run in dict.fromkeys((last, following)) if run is not None], turn)
    used = machine.result()
    if last is not None and not last.reasons:
        last.slices.note(used)


class _Run:
    """The results of one run so far; after a failure the rest stays empty."""

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
        self.sent = 0  # requests that the counters of the deployment must show
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
        assert self._slices is not None
        return self._slices

    def attempt_to(self, work: Callable[[_Run], object]) -> None:
        """Do a part of the run; an error becomes a reason of its failure."""
        try:
            work(self)
        except MeshtrialError as error:
            self.fail(error)

    def fail(self, error: MeshtrialError) -> None:
        self.reasons.append(str(error))
        for name, text in error.evidence.items():
            (self.folder / "logs" / name).write_text(text)

    def finish(self, store: StudyStore, testbed: Testbed) -> RunRecord:
        record, measured = self.record(testbed), self.stage
        requests, course = (measured.measurement.requests, measured.course) if measured else (None, None)
        store.finish(self.folder, record, requests, course)
        return record

    def deploy(self, testbed: Testbed, before: Mapping[str, float], neighbours: Sequence[str]) -> None:
        """Deploy the treatment and verify that it is what its label says."""
        self.responses |= before
        if neighbours:
            self.extra["neighbours"] = list(neighbours)
        began = time.monotonic()
        self._deployment = testbed.deploy(self.treatment, self.load, self.app)
        self.deploy_s = time.monotonic() - began
        self.target = self.deployment.target.url
        self.proofs += self.deployment.prove("before", 0)

    def warm_up(self, testbed: Testbed, concurrent: int = 1) -> None:
        """Load the deployment without measuring; ``concurrent`` deployments are warmed up at the same time."""
        self.sent, resolution_s = stage.warm_up(self.deployment, self.load, self.folder, concurrent)
        gates, restart = self.plan.study.gates, self.treatment.restart
        self._slices = stage.Slices(self.deployment, testbed, self.load, gates, self.folder, resolution_s, restart)

    def measure(self, testbed: Testbed) -> None:
        """Warm up and measure all slices of a single deployment, or search its capacity."""
        if not isinstance(self.load, CapacitySearch):
            self.warm_up(testbed)
            for _ in range(self.load.parts):
                self.slices.take()
            self.slices.read_after()
            return
        dither = float(np.random.default_rng([self.plan.study.seed, self.planned.sequence, self.attempt]).random())
        gates = self.plan.study.gates
        found = capacity.Search(self.deployment, testbed, self.load, gates, self.folder, dither).run()
        self._keep(found.confirmed)
        self.responses |= found.responses
        self.notes += found.notes
        self.extra["search"] = found.to_dict()
        self.sent = found.sent

    def read(self) -> None:
        """Read the results of the load generators and apply the run checks."""
        if self._slices is None:
            return
        measured = self.slices.finish()
        self._keep(measured)
        self.responses |= measured.responses
        if measured.ramp:
            self.extra["ramp"] = [asdict(step) for step in measured.ramp]
        if measured.changes:
            self.extra["changes"] = [asdict(change) for change in measured.changes]
        # A proxy behind a denial has not counted the requests that were refused on purpose.
        self.sent += (
            measured.sent if not measured.changes else measured.measurement.requests.filter(pl.col("ok")).height
        )
        if measured.restarted is not None:
            self._note_restart(measured.restarted, measured.measurement)

    def conclude(self) -> None:
        """Read the results, verify the treatment again, and read the facts of the deployment."""
        self.read()
        self.proofs += self.deployment.prove("after", self.sent)
        facts = self.deployment.facts()
        self.extra |= {"deploy": {"ready_s": self.deploy_s}} | facts.to_dict()
        self.responses |= stage.deployment_responses(facts, self.responses, self.deploy_s)

    def close(self) -> None:
        """Keep the logs and remove the deployment, if there is one."""
        if self._deployment is None:
            return
        try:
            self.versions = dict(self.deployment.versions)
            with suppress(OSError, MeshtrialError):
                self.deployment.collect_logs(self.folder / "logs")
        finally:
            self.deployment.close()

    def _note_restart(self, restarted: stage.Restarted, measurement: ingest.Measurement) -> None:
        """Record a restart; from now on counters must show only the requests sent after it."""
        start = measurement.start_unix_s
        began_s, ended_s = restarted.began_unix_s - start, restarted.ended_unix_s - start
        self.proofs += restarted.proofs
        self.extra["restart"] = {"part": self.treatment.restart, "began_s": began_s, "ended_s": ended_s}
        self.sent = measurement.requests.filter(pl.col("ok"), pl.col("actual_start_s") > ended_s).height
        if not self.sent:
            raise TestbedError(
                f"restart of {self.treatment.restart}: no request was answered after its {ended_s - began_s:.3g} s; "
                "lengthen duration_s"
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
    """Return both ends of a long text: where every request fails, the output has a line for each."""
    if len(text) <= _LONGEST_LOG:
        return text
    half = _LONGEST_LOG // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters omitted ...\n{text[-half:]}"


def _keep_results(outputs: Sequence[GeneratorOutput], folder: Path) -> None:
    """Keep JSON and text of each generator; its access log has become ``latency.parquet``, a tenth of the size."""
    for output in outputs:
        suffix = "" if len(outputs) == 1 else f"-{output.name}"
        output.json_path.rename(folder / f"fortio{suffix}.json")
        (folder / "logs" / f"fortio{suffix}.txt").write_text(bounded(output.text))
        output.access_log_path.unlink(missing_ok=True)
        output.json_path.with_suffix(".txt").unlink(missing_ok=True)
