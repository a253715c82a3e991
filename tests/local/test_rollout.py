"""Restarts under load on real processes: failed requests are counted, and the run stays valid."""

import time

import polars as pl
import pytest
from local.studies import executed, study_of, without_twin

from meshtrial.inference import analyse
from meshtrial.report import figures, tables
from meshtrial.testbed.local.processes import Child

# Long compared with a restart on a tenth of a machine.
# Long enough for part of a machine: a restart took 3.9 s while three other test processes ran.
SHORT = {"duration_s": 10, "warmup_s": 0.1, "rps": 200, "connections": 4}
# Between the end of a process and the start of the next, so even a fast machine shows it.
AWAY_S = 0.3


@pytest.fixture(autouse=True)
def away_for_a_while(monkeypatch):
    really = Child.again

    def later(self: Child) -> Child:
        time.sleep(AWAY_S)
        return really(self)

    monkeypatch.setattr(Child, "again", later)


def executed_one_block(**given: object):
    return executed(without_twin(study_of("rollout", {**SHORT, **given}, blocks=1)))


def test_restarts_are_counted_proven_and_no_reason_to_drop_a_run():
    treatments = "none,none+restart-app,sidecar+mtls,sidecar+mtls+restart-proxies"
    store = executed_one_block(treatments=treatments)
    data = analyse(store)
    disturbed = [run for run in data.runs if "restart" in run.treatment]
    assert len(disturbed) == 2
    for run in disturbed:
        assert run.valid, run.reasons
        restart = run.extra["restart"]
        assert 0 < restart["began_s"] < restart["ended_s"] - AWAY_S
        assert {"rate", "late", "errors", "sockets"}.isdisjoint(gate.name for gate in run.gates)
        done = [proof for proof in run.proofs if proof.phase == "during"]
        assert done
        assert all(proof.passed and "ended" in proof.observed for proof in done)
        # The CPU use of ended processes is kept: CPU of every component only grows.
        assert all(usage.cpu_s > 0 for usage in run.usage)
        # Nobody listened in the requests' path, so each refused connection fails.
        assert run.responses["failed_requests"] > 0
    (behind,) = [run for run in disturbed if run.treatment.startswith("none")]
    assert behind.failures.get("refused", 0) + behind.failures.get("reset", 0) > 0
    # No request is answered from the first failure to the last.
    requests = pl.read_parquet(store.folder(behind.run_id, behind.attempt) / "latency.parquet")
    failed = requests.filter(~pl.col("ok"))["actual_start_s"]
    assert behind.responses["longest_gap_s"] >= 0.9 * (failed.max() - failed.min()) > 0
    (proxied,) = [run for run in disturbed if run.treatment.startswith("sidecar")]
    assert {proof.name for proof in proxied.proofs if proof.phase == "during"} == {
        "client sidecar restarted",
        "server sidecar restarted",
    }
    calm = [run for run in data.runs if "restart" not in run.treatment]
    assert {run.treatment for run in calm} == {"none", "sidecar+mtls"}
    assert all(run.responses["failed_requests"] == 0 for run in calm)
    shown = tables.restarts(data).text
    assert all(run.treatment in shown for run in data.runs)
    assert "around the restart" in figures.course(data).caption


def test_copies_are_restarted_one_after_another():
    data = analyse(executed_one_block(treatments="none,sidecar,sidecar+restart-app", replicas=2, generators=2))
    run = next(run for run in data.runs if run.treatment == "sidecar+restart-app")
    assert run.valid, run.reasons
    during = [proof.name for proof in run.proofs if proof.phase == "during"]
    assert during == ["app restarted", "app 2 restarted"]
    # The other copy answers meanwhile: only requests to the restarted one fail.
    assert 0 < run.responses["failed_requests"] < 0.6 * run.responses["requests"]


def test_a_restart_that_fails_makes_its_run_invalid_and_leaves_nothing(monkeypatch):
    really = Child.again

    def gone(self: Child) -> Child:
        self.argv = ("/nowhere/echo",)
        return really(self)

    monkeypatch.setattr(Child, "again", gone)
    data = analyse(executed_one_block(treatments="none,none+restart-app"))
    validity = {run.treatment: run.valid for run in data.runs}
    assert validity == {"none": True, "none+restart-app": False}
    (run,) = [run for run in data.runs if run.attempt == 1 and not run.valid]
    assert "app: cannot start /nowhere/echo" in run.reasons[0]
