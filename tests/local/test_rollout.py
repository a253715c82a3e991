"""Restarts under load on real processes: what clients see of them is counted, and the run stays a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshtrial.design.parameters import read_parameters
from meshtrial.design.plan import make_plan
from meshtrial.design.studies import study_module
from meshtrial.design.study import Gates
from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore
from meshtrial.report import figures, tables
from meshtrial.run.runner import execute
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside
SHORT = {"duration_s": 2.4, "warmup_s": 0.1, "rps": 200, "connections": 4}


def recorded(**given: object):
    """One block without the twin; other tests may run beside it, so what they use fails no gate."""
    module = study_module("rollout")
    study = module.build(read_parameters(module.PARAMETERS, {**SHORT, **given}))
    treatments = tuple(treatment for treatment in study.treatments if not treatment.twin)
    gates = Gates(foreign_load=1.0, generator_cpu=1.0, late_ratio=0.9, rate_tolerance=0.2)
    study = replace(study, treatments=treatments, blocks=1, gates=gates)
    store = StudyStore.create(Path(os.environ["MESHTRIAL_DATA"]), make_plan(study), {})
    execute(store, LocalTestbed(), lambda _: None)
    return analyse(store)


def test_restarts_are_counted_proven_and_no_reason_to_drop_a_run():
    treatments = "none,none+restart-app,sidecar+mtls,sidecar+mtls+restart-proxies"
    data = recorded(treatments=treatments)
    disturbed = [run for run in data.runs if "restart" in run.treatment]
    assert len(disturbed) == 2
    for run in disturbed:
        assert run.valid, run.reasons
        restart = run.extra["restart"]
        assert 0.4 < restart["began_s"] < restart["ended_s"] < 2.4
        assert {"rate", "late", "errors", "sockets"}.isdisjoint(gate.name for gate in run.gates)
        done = [proof for proof in run.proofs if proof.phase == "during"]
        assert done
        assert all(proof.passed and "ended" in proof.observed for proof in done)
        # What the ended process had used is not lost: CPU of every component only grows.
        assert all(usage.cpu_s > 0 for usage in run.usage)
    behind = [run for run in disturbed if run.treatment.startswith("none")]
    # Between the end of a process and the start of the next nobody listens; each connection that is refused fails.
    assert all(run.failures.get("refused", 0) + run.failures.get("reset", 0) > 0 for run in behind)
    proxied = [run for run in disturbed if run.treatment.startswith("sidecar")]
    assert {proof.name for proof in proxied[0].proofs if proof.phase == "during"} == {
        "client sidecar restarted",
        "server sidecar restarted",
    }
    calm = [run for run in data.runs if "restart" not in run.treatment]
    assert {run.treatment for run in calm} == {"none", "sidecar+mtls"}
    assert all(run.responses["failed_requests"] == 0 for run in calm)
    gaps = {run.treatment: run.responses["longest_gap_s"] for run in data.runs}
    assert gaps["none+restart-app"] > gaps["none"]
    shown = tables.restarts(data).text
    assert all(run.treatment in shown for run in data.runs)
    assert "around the restart" in figures.course(data).caption


def test_copies_are_restarted_one_after_another():
    data = recorded(treatments="none,sidecar,sidecar+restart-app", replicas=2, generators=2)
    run = next(run for run in data.runs if run.treatment == "sidecar+restart-app")
    assert run.valid, run.reasons
    during = [proof.name for proof in run.proofs if proof.phase == "during"]
    assert during == ["app restarted", "app 2 restarted"]
    # The other copy answers meanwhile: what fails is what goes to the one that is away.
    assert 0 < run.responses["failed_requests"] < 0.5 * run.responses["requests"]


def test_a_restart_that_fails_makes_its_run_invalid_and_leaves_nothing(monkeypatch):
    from meshtrial.testbed.local.processes import Child

    real = Child.again

    def gone(self: Child) -> Child:
        self.argv = ("/nowhere/echo",)
        return real(self)

    monkeypatch.setattr(Child, "again", gone)
    data = recorded(treatments="none,none+restart-app")
    run = next(run for run in data.runs if run.treatment == "none+restart-app")
    assert not run.valid
    assert "app: cannot start /nowhere/echo" in run.reasons[0]
    # What runs beside this test may fail a gate of the others; the restart fails none of theirs.
    assert not any("cannot start" in reason for run in data.runs if run.treatment == "none" for reason in run.reasons)
