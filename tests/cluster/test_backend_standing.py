"""Blocks of concurrent deployments: slices alternate on the same nodes, and failures are reported."""

import subprocess
import time
from itertools import groupby
from pathlib import Path

import pytest
from test_backend_studies import Done, blink, delete_load_pods, run_study, when_load_runs
from test_backend_support import owned_namespaces
from testcluster import Cluster

from meshtrial.records.schema import RunRecord

pytestmark = pytest.mark.timeout(1200, func_only=True)
TREATMENTS = ["none", "none-aa", "istio+mtls"]
# Slices of six seconds, the first of them discarded: long enough for a fault, at a rate that this machine holds.
SLICED = {"treatments": ",".join(TREATMENTS), "rps": 50, "connections": 4, "blocks": 2, "warmup_s": 1}
SLICED |= {"slices": 2, "duration_s": 10}


def attempts(runs: list[RunRecord]) -> list[list[RunRecord]]:
    """Return the concurrent deployments in their order."""
    ordered = sorted(runs, key=lambda run: (run.repetition, run.attempt, run.sequence))
    return [list(found) for _, found in groupby(ordered, key=lambda run: (run.repetition, run.attempt))]


def went_round(done: Done, block: list[RunRecord]) -> None:
    """All treatments of a block ran concurrently on the same nodes, and their slices alternated."""
    assert {run.treatment for run in block} == set(TREATMENTS)
    assert len({run.extra["nodes"]["generators"][0] for run in block}) == 1
    assert all(set(run.extra["neighbours"]) == set(TREATMENTS) - {run.treatment} for run in block)
    for run in block:
        placed = run.extra["placement"]
        apart = {run.extra["nodes"][side][0] for side in ("generators", "application")}
        assert set(placed.values()) == apart == {"n1", "n2"}
    # Each deployment's two slices enclose a slice of another deployment.
    turns = sorted((g.start_unix_s, run.treatment) for run in block for g in run.generators)
    assert {name for _, name in turns[: len(block)]} == {name for _, name in turns[len(block) :]}
    assert len({run.deploy_s for run in block}) == len(block)
    # Of six seconds at 50 requests per second, requests of the first second are counted and not judged.
    valid = [run for run in block if run.valid]  # a stalled machine sends fewer, which its checks report
    assert valid
    for run in valid:
        assert run.responses["requests"] == pytest.approx(600, abs=16)
        assert done.data.latency(run).height == pytest.approx(500, abs=16)


@pytest.mark.wide  # the last block of the test below shows this too
def test_slices_go_round_among_deployments_on_the_same_nodes(cluster: Cluster, tmp_path: Path):
    done = run_study(cluster, tmp_path, "feature_impact", **SLICED)
    assert done.failed_proofs == []
    blocks = [block for block in attempts(done.data.runs) if block[0].attempt == 1]
    assert len(blocks) == 2
    for block in blocks:
        went_round(done, block)
    assert owned_namespaces(cluster) == []


def test_what_befalls_deployments_that_stand_at_once_is_said_and_the_study_goes_on(cluster: Cluster, tmp_path: Path):
    def fault(child: subprocess.Popen[str]) -> None:
        remove = ("-n", "istio-system", "delete", "pod", "-l", "app=istiod", "--wait=false")
        when_load_runs(child, lambda: cluster.kubectl(*remove))
        folder = tmp_path / "studies" / "feature_impact"
        while child.poll() is None and len(list(folder.glob("*/runs/[0-9]*"))) <= len(TREATMENTS):
            time.sleep(0.2)  # the run that depends on it is repeated
        when_load_runs(child, lambda: blink(cluster))
        when_load_runs(child, lambda: delete_load_pods(cluster))

    done = run_study(cluster, tmp_path, "feature_impact", during=fault, **SLICED)
    killed, repeated, struck, again = attempts(done.data.runs)
    said = {run.treatment: "; ".join(run.reasons) for run in killed}
    for name, reason in said.items():
        assert ("control plane pod istiod" in reason) == name.startswith("istio"), said
    assert "istio+mtls" in {run.treatment for run in repeated}
    reasons = ["; ".join(run.reasons) for run in struck]
    assert sum("gave no answer for" in reason for reason in reasons) == 1, reasons
    assert sum("load pod" in reason for reason in reasons) == len(TREATMENTS) - 1, reasons
    went_round(done, again)
    others = [run for run in (*repeated, *again) if not run.valid]
    assert all(reason.startswith("check ") for run in others for reason in run.reasons), others
    assert owned_namespaces(cluster) == []
