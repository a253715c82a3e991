"""Whole studies on the cluster as a user runs them: papermill, records, verdicts, and the report as one HTML file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from ground import Ground
from test_backend_support import load_runs, options_for, owned_namespaces
from testcluster import Cluster

from meshtrial.design.generated import generated, systems_of
from meshtrial.design.study import Treatment
from meshtrial.inference import read_study
from meshtrial.inference.scaling import growths
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore
from meshtrial.records.tables import include
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

_PATIENCE_S = 1800
# A run takes half a minute: a namespace made and removed, two kubelet readings; the suite's own limit is per test.
pytestmark = pytest.mark.timeout(_PATIENCE_S + 60, func_only=True)
# A p50 with 100 requests beyond it, at a rate that a machine which also runs the cluster holds.
SHORT = {"connections": 4, "blocks": 2, "duration_s": 5, "warmup_s": 1}


@dataclass(frozen=True)
class Done:
    """The results of a study."""

    code: int
    said: str
    data: StudyData
    html: str

    @property
    def failed_proofs(self) -> list[str]:
        """Runs that reached their proofs."""
        return [f"{r.treatment}: {p.name}: {p.observed}" for r in self.data.runs for p in r.proofs if not p.passed]

    def rows(self, response: str) -> set[tuple[str, str]]:
        """Contrasts that have a row of this response."""
        return {(row.treatment, row.baseline) for row in self.data.verdicts if row.response == response}


def start(
    cluster: Cluster, folder: Path, name: str, options: Mapping[str, Any] | None = None, **given: Any
) -> subprocess.Popen[str]:
    """``meshtrial run`` with this cluster's file."""
    file = folder / "cluster.yaml"
    chosen = options_for(cluster, **{"mesh_reinstall": "once", **(options or {})})
    file.write_text(yaml.safe_dump(chosen["kubernetes"]))
    pairs = {"backend": "kubernetes", "cluster_file": str(file), **given}
    argv = [str(Path(sys.executable).with_name("meshtrial")), "run", name]
    argv += [part for key, value in pairs.items() for part in ("-p", f"{key}={value}")]
    places = {"MESHTRIAL_DATA": str(folder / "studies"), "MESHTRIAL_REPORTS": str(folder / "reports")}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=os.environ | places, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def run_study(
    cluster: Cluster,
    folder: Path,
    name: str,
    during: Callable[[subprocess.Popen[str]], None] = lambda _: None,
    options: Mapping[str, Any] | None = None,
    **given: Any,
) -> Done:
    """A study to its end."""
    child = start(cluster, folder, name, options, **given)
    timer = threading.Timer(_PATIENCE_S, child.terminate)
    timer.start()
    watcher = threading.Thread(target=during, args=(child,))
    watcher.start()
    try:
        said, _ = child.communicate()
    finally:
        if child.poll() is None:  # the test itself was interrupted: the study ends first
            child.terminate()
            child.wait(120)
        timer.cancel()
        watcher.join()
    assert child.returncode in (0, 3), said  # 3: finished, but a shared machine's noise made runs fail
    (study_dir,) = (folder / "studies" / name).iterdir()
    (html,) = (folder / "reports").glob(f"{name}-*.html")
    return Done(child.returncode, said, read_study(StudyStore.open(study_dir)), html.read_text())


def components(done: Done, treatment: str) -> set[tuple[str, str]]:
    """Return role and component of everything metered in a treatment, without the load generator."""
    seen = {(u.role, u.component) for r in done.data.runs if r.treatment == treatment for u in r.usage}
    return {one for one in seen if one[0] != "load generator"}


SIDE_BY_SIDE = {"linkerd": "linkerd", "kuma": "kuma+mtls", "istio-ambient": "istio-ambient", "consul": "consul+l7"}


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.wide)])
def test_meshes_against_each_other(ground: Ground, cluster: Cluster, tmp_path: Path, number: int):
    """These meshes share blocks; a mesh whose folder of images is missing is named."""
    meshes = dict(list(SIDE_BY_SIDE.items())[:number])
    treatments = [treatment for name, treatment in meshes.items() if name in ground.meshes]
    if len(treatments) < len(meshes):
        for name in meshes:
            ground.require(name)
    known = find_meshes(KubernetesOptions())
    with ground.asked_by(*(known[Treatment.parse(treatment).dataplane] for treatment in treatments)):
        done = run_study(
            cluster,
            tmp_path,
            "mesh_comparison",
            options={"meshes_side_by_side": True},
            treatments=",".join(["none", "none-aa", *treatments]),
            rates="50",
            capacity="false",
            **SHORT,
        )
    assert done.failed_proofs == []
    pairs = {(later, earlier) for earlier, later in combinations(treatments, 2)}
    contrasts = {(treatment, "none") for treatment in [*treatments, "none-aa"]} | pairs
    # No mesh has no control plane, so its use is compared only between meshes.
    assert done.rows("control_plane_memory_bytes") == pairs
    assert done.rows("latency_p50_s") == done.rows("path_cpu_s_per_request") == contrasts
    sidecars = {("data plane", "server sidecar"), ("data plane", "client sidecar")}
    wanted = {
        "istio-ambient": {("data plane", "ztunnel"), ("data plane", "istio-cni"), ("control plane", "istiod")},
        "linkerd": sidecars | {("control plane", f"linkerd-{part}") for part in ("destination", "identity")},
        "kuma+mtls": sidecars | {("control plane", "kuma-control-plane")},
        "consul+l7": sidecars | {("control plane", "consul-server")},
    }
    for treatment in treatments:
        assert wanted[treatment] <= components(done, treatment)
    assert "own build" in done.html  # the record names the versions and who built them
    assert owned_namespaces(cluster) == []


@pytest.mark.wide
def test_a_mesh_is_called_where_there_are_blocks_enough(cluster: Cluster, tmp_path: Path):
    done = run_study(
        cluster,
        tmp_path,
        "mesh_comparison",
        treatments="none,none-aa,istio+mtls",
        rates="50",
        capacity="false",
        alpha=0.2,
        **(SHORT | {"blocks": 4}),  # the fewest blocks that can call a contrast at that level
    )
    assert done.failed_proofs == []
    proven = {p.name for r in done.data.runs if r.treatment == "istio+mtls" for p in r.proofs}
    assert {"plaintext from outside the mesh refused", "the generator's identity seen by the app"} <= proven
    assert {("data plane", "server sidecar"), ("control plane", "istiod")} <= {
        (role, name) for role, name in components(done, "istio+mtls")
    }
    contrasts = {("istio+mtls", "none"), ("none-aa", "none")}
    assert done.rows("latency_p50_s") == done.rows("path_cpu_s_per_request") == contrasts
    assert "istiod" in done.html
    called = {(row.treatment, row.verdict) for row in done.data.verdicts if row.response == "path_cpu_s_per_request"}
    if all(run.valid for run in done.data.runs):  # a block lost to noise leaves too few to call a difference
        assert ("istio+mtls", "more") in called
    assert owned_namespaces(cluster) == []


@pytest.mark.wide
def test_features_of_istio(cluster: Cluster, tmp_path: Path):
    done = run_study(
        cluster,
        tmp_path,
        "feature_impact",
        treatments="none,none-aa,istio+mtls,istio+mtls+jwt,istio+mtls+opa",
        rps=50,
        **SHORT,
    )
    assert done.failed_proofs == []
    proven = {(r.treatment, p.name) for r in done.data.runs for p in r.proofs}
    wanted = {
        "istio+mtls+jwt": {
            "JWT without a token",
            "JWT with an expired token",
            "JWT with a forged token",
            "JWT with a good token",
        },
        "istio+mtls+opa": {
            "OPA without a token",
            "OPA with a method that is not allowed",
            "decisions of the policy servers",
        },
    }
    assert {(treatment, name) for treatment, names in wanted.items() for name in names} <= proven
    assert ("istio+mtls+jwt", "istio+mtls") in done.rows("latency_p50_s")
    sidecars = {("data plane", "server sidecar"), ("data plane", "client sidecar")}
    common = {("app", "server"), ("control plane", "istiod")} | sidecars
    assert components(done, "istio+mtls+jwt") == common
    assert components(done, "istio+mtls+opa") == common | {("policy", "server opa")}
    assert owned_namespaces(cluster) == []


@pytest.mark.wide
def test_features_of_kuma(ground: Ground, cluster: Cluster, tmp_path: Path):
    ground.require("kuma")
    treatments = ["kuma+mtls", "kuma+mtls+jwt", "kuma+mtls+opa", "kuma+mtls+observability"]
    given = {"treatments": ",".join(["none", "none-aa", *treatments]), "rps": 50}
    done = run_study(cluster, tmp_path, "feature_impact", **given, **SHORT)
    assert done.failed_proofs == []
    assert {(treatment, "kuma+mtls") for treatment in treatments[1:]} <= done.rows("latency_p50_s")
    assert ("policy", "server opa") in components(done, "kuma+mtls+opa")
    assert owned_namespaces(cluster) == []


@pytest.mark.wide
@pytest.mark.parametrize(
    ("treatment", "namespace", "selector", "words"),
    [
        ("istio+mtls", "istio-system", "app=istiod", "control plane pod istiod"),
        ("istio-ambient", "istio-system", "app=ztunnel", "ztunnel"),
        (
            "linkerd",
            "linkerd",
            "linkerd.io/control-plane-component=destination",
            "control plane pod linkerd-destination",
        ),
        ("kuma+mtls", "kuma-system", "app=kuma-control-plane", "control plane pod kuma-control-plane"),
    ],
)
def test_a_study_goes_on_when_a_part_of_its_mesh_is_killed(
    ground: Ground, cluster: Cluster, tmp_path: Path, treatment: str, namespace: str, selector: str, words: str
):
    """The fault comes in the first run under load; the mesh is installed again for the next run."""
    ground.require(Treatment.parse(treatment).dataplane)

    def fault(child: subprocess.Popen[str]) -> None:
        remove = ("-n", namespace, "delete", "pod", "-l", selector, "--wait=false")
        when_load_runs(child, lambda: cluster.kubectl(*remove))

    given = {"treatments": treatment, "rates": "50", "capacity": "false", "duration_s": 8}
    done = run_study(cluster, tmp_path, "mesh_comparison", during=fault, **(SHORT | given))
    hit = [run for run in done.data.runs if any(words in reason for reason in run.reasons)]
    first = min(done.data.runs, key=lambda run: (run.attempt, run.sequence))
    assert hit == [first], [run.reasons for run in done.data.runs]
    assert sum(run.attempt == 2 for run in done.data.runs) >= 1
    assert done.failed_proofs == []
    assert owned_namespaces(cluster) == []


@pytest.mark.wide  # test_backend_growth.py covers growth, test_backend_unused.py unused services
def test_scale_out_on_istio(cluster: Cluster, tmp_path: Path):
    done = run_study(
        cluster,
        tmp_path,
        "scale_out",
        treatments="none,istio+mtls+scoped",
        sizes="3,6",
        rates="40",
        **(SHORT | {"connections": 16, "duration_s": 6}),
        primary="latency_net_p50_s,path_cpu_s_per_request",
    )
    assert done.failed_proofs == []
    assert {load.generators for load in done.data.plan.study.loads} == {1, 2}
    proven = {(r.treatment, p.name) for r in done.data.runs for p in r.proofs}
    assert ("istio+mtls+scoped", "a tier that is not called is unknown to the proxy") in proven
    grown = growths(done.data, ["total_memory_bytes"])
    assert {one.ladder.treatment for one in grown} == {"none", "istio+mtls+scoped"}
    assert all(one.cost is not None for one in grown)
    beyond = done.data.table.filter(pl.col("response") == "latency_net_p50_s")["value"]
    assert 0 < beyond.min() < beyond.max() < 1  # type: ignore[operator]
    assert owned_namespaces(cluster) == []


@pytest.mark.wide  # one run of a system: test_backend_runs.py
def test_generated_systems_on_istio(cluster: Cluster, tmp_path: Path):
    given = {"treatments": "none,istio+mtls", "systems": "3", "rps": 50}
    done = run_study(cluster, tmp_path, "prediction", **given, **SHORT)
    assert done.failed_proofs == []
    contrasts = {("istio+mtls@system-3", "none@system-3"), ("none-aa@system-3", "none@system-3")}
    assert done.rows("latency_p50_s") == done.rows("path_cpu_s_per_request") == contrasts
    (system,) = systems_of(done.data.plan.study.options).values()
    assert system == generated(3, 50, SHORT["connections"], on_cluster=True)
    assert owned_namespaces(cluster) == []


@pytest.mark.wide  # test_backend_standing.py covers concurrent deployments
def test_a_study_goes_on_after_what_befell_its_runs(cluster: Cluster, tmp_path: Path):
    """In the first run the API server is killed and restarted; in the second the load pod is deleted."""

    def fault(child: subprocess.Popen[str]) -> None:
        for strike in (blink, delete_load_pods):
            when_load_runs(child, lambda strike=strike: strike(cluster))

    done = run_study(
        cluster,
        tmp_path,
        "mesh_comparison",
        during=fault,
        treatments="none,none-aa",
        rates="50",
        capacity="false",
        **(SHORT | {"duration_s": 8}),
    )
    firsts = (run for run in done.data.runs if run.attempt == 1)
    first, second = sorted(firsts, key=lambda run: run.sequence)[:2]
    assert not first.valid
    assert any("gave no answer for" in reason for reason in first.reasons), first.reasons
    assert not second.valid
    assert any("load pod" in reason for reason in second.reasons), second.reasons
    # Each was repeated in its block, and the repeats held except for a shared machine's noise.
    repeated = {(run.repetition, run.treatment) for run in done.data.runs if run.attempt == 2}
    assert {(first.repetition, first.treatment), (second.repetition, second.treatment)} <= repeated
    others = [run for run in done.data.runs if run not in (first, second)]
    noisy = [run for run in others if not run.valid]
    assert all(reason.startswith("check ") for run in noisy for reason in run.reasons), noisy
    assert any(run.valid for run in others)
    taken = include(done.data.plan, done.data.runs, first.load)
    assert done.code == (3 if taken.excluded or taken.excluded_blocks else 0)
    assert owned_namespaces(cluster) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.wide)])
def test_an_interrupted_study_leaves_nothing_on_the_cluster(cluster: Cluster, tmp_path: Path, number: int):
    more = SHORT | {"duration_s": 20}
    child = start(cluster, tmp_path, "mesh_comparison", treatments="none", rates="50", capacity="false", **more)
    try:
        when_load_runs(child, lambda: child.send_signal(number))
        said, _ = child.communicate(timeout=200)
    finally:
        child.kill()
    assert child.returncode == 130, said
    assert "resume with:" in said
    assert owned_namespaces(cluster) == []


def when_load_runs(child: subprocess.Popen[str], strike: Callable[[], None]) -> None:
    """Inject the fault two seconds into a measured load; the machine sees the generators' processes."""
    since = 0.0
    while child.poll() is None:
        if not load_runs():
            since = 0.0
        elif not since:
            since = time.monotonic()
        elif time.monotonic() - since > 2:
            strike()
            while child.poll() is None and load_runs():
                time.sleep(0.1)
            return
        time.sleep(0.1)


def blink(cluster: Cluster) -> None:
    with cluster.api_server_down():
        time.sleep(2)


def delete_load_pods(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", "-A", "-l", "meshtrial.dev/part=load", "--wait=false")


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path):
    file = tmp_path / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "gone",
        "clusters": [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "gone"}}],
        "users": [{"name": "gone", "user": {}}],
    }
    file.write_text(yaml.safe_dump(config))
    argv = [str(Path(sys.executable).with_name("meshtrial")), "run", "mesh_comparison"]
    argv += ["-p", "backend=kubernetes", "-p", f"kubeconfig={file}"]
    places = {"MESHTRIAL_DATA": str(tmp_path / "studies"), "MESHTRIAL_REPORTS": str(tmp_path / "reports")}
    done = subprocess.run(argv, env=os.environ | places, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2 or done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("meshtrial run: ")
    assert "127.0.0.1:1" in last
    assert "Traceback" not in done.stderr
