"""Studies inside the cluster: a Job resumes after its pod is killed, and a CronJob runs one session at a time."""

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_backend_support import options_for, owned_namespaces
from testcluster import Cluster, ClusterError

from meshtrial import cli, waiting
from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore
from meshtrial.run.quiet import PATIENCE
from meshtrial.testbed.kubernetes.options import KubernetesOptions

FOLDER = KubernetesOptions().folder
NODE, USER = "n1", 65532
STUDY = {
    "backend": "kubernetes",
    "cluster_file": "/study/cluster.yaml",
    "treatments": "none",
    "blocks": 2,
    "rps": 100,
    "connections": 4,
    "duration_s": 3,
    "warmup_s": 1,
}


def manifest(cluster: Cluster, image: str, **more: object) -> list[dict[str, Any]]:
    """Write ``runner.yaml`` as a user would change it: command, image, node and, with ``more``, sessions."""
    options = options_for(cluster)["kubernetes"]
    told = {key: value for key, value in options.items() if key not in ("kubeconfig", "helm", "meshes")}
    settings, claim, job = yaml.safe_load_all((FOLDER / "runner" / "runner.yaml").read_text())
    settings["data"] = {
        "study": "ambient_vs_no_mesh",
        "parameters.yaml": yaml.safe_dump(STUDY | more),
        "cluster.yaml": yaml.safe_dump(told),
    }
    if more:
        job = yaml.safe_load((FOLDER / "runner" / "sessions.yaml").read_text())
    pod = job["spec"].get("jobTemplate", job)["spec"]["template"]["spec"]
    pod["containers"][0] |= {"image": image, "imagePullPolicy": "Never"}
    pod["containers"][0]["env"].append({"name": PATIENCE, "value": "0"})  # other tests keep this machine busy
    pod["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return [settings, claim, job]


@pytest.fixture
def volume(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The service account with the least rights, and a folder of a node as the volume."""
    folder = tmp_path / "records"
    folder.mkdir()
    os.chown(folder, USER, USER)
    node_volume = yaml.safe_load((FOLDER / "runner" / "node-volume.yaml").read_text())
    node_volume["spec"]["local"]["path"] = str(folder)
    (term,) = node_volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = [NODE]
    cluster.kubectl("apply", "-f", str(FOLDER / "rbac.yaml"))
    cluster.apply(yaml.safe_dump(node_volume))
    yield folder
    cluster.kubectl("-n", "meshtrial", "delete", "cronjobs", "--all", "--cascade=foreground", timeout_s=330)
    cluster.kubectl("-n", "meshtrial", "delete", "jobs", "--all", "--cascade=foreground", timeout_s=330)
    cluster.kubectl("delete", "-f", str(FOLDER / "rbac.yaml"), "--ignore-not-found", timeout_s=120)
    cluster.kubectl("delete", "persistentvolume", "meshtrial-records", "--ignore-not-found")


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float, cluster: Cluster) -> None:
    if not waiting.until(condition, timeout_s, 0.5):
        pytest.fail(f"{what}: not within {timeout_s:g} s\n{said(cluster)}")


def said(cluster: Cluster) -> str:
    """Return the logs of the Job's pods and their end states."""
    lines = cluster.kubectl("-n", "meshtrial", "get", "pods,jobs", "-o", "wide")
    lines += cluster.kubectl("-n", "meshtrial", "get", "events", "--sort-by=.lastTimestamp")
    for pod in cluster.get("-n", "meshtrial", "pods")["items"]:
        name = pod["metadata"]["name"]
        lines += f"\n--- {name}\n"
        with contextlib.suppress(ClusterError):  # a container that has not started has no log
            lines += cluster.kubectl("-n", "meshtrial", "logs", name, "--tail=60")
    return lines


def fetch(cluster: Cluster, root: Path) -> tuple[Path, str]:
    """Fetch the study and return its folder with the command's output."""
    out, err = io.StringIO(), io.StringIO()
    code = cli.main(["fetch", "--kubeconfig", str(cluster.kubeconfig), "--out", str(root)], out, err)
    assert code == 0, err.getvalue()
    (folder,) = root.glob("*/*")
    assert cli.main(["verify", str(folder)], io.StringIO(), err) == 0, err.getvalue()
    return folder, out.getvalue()


def digests(folder: Path) -> dict[str, str]:
    runs = folder / "runs"
    return {
        str(p.relative_to(runs)): hashlib.sha256(p.read_bytes()).hexdigest() for p in runs.rglob("*") if p.is_file()
    }


def runner_processes() -> list[int]:
    """Return the first process of the runner's container as this machine sees it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"\0run\0ambient_vs_no_mesh\0-f\0/study/parameters.yaml\0" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def pods(cluster: Cluster) -> list[str]:
    return cluster.kubectl("-n", "meshtrial", "get", "pods", "-o", "name").split()


def ended(cluster: Cluster) -> bool:
    conditions = cluster.get("-n", "meshtrial", "job", "meshtrial-study").get("status", {}).get("conditions") or []
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def test_a_job_that_is_killed_goes_on_and_its_records_verify_here(cluster: Cluster, volume: Path, tmp_path: Path):
    image = cluster.import_runner(NODE)
    cluster.apply(yaml.safe_dump_all(manifest(cluster, image)))
    wait_for("a whole run", lambda: any(volume.glob("studies/*/*/runs/[!.]*")), 180, cluster)

    half, told = fetch(cluster, tmp_path / "here")
    assert "provisional, 0 of 2 blocks" in told
    before, fetched = digests(half), {folder.name for folder in (half / "runs").iterdir()}
    assert before

    first = pods(cluster)
    wait_for("the next run", lambda: any(volume.glob("studies/*/*/runs/.incomplete-*")), 60, cluster)
    (process,) = runner_processes()
    os.kill(process, signal.SIGKILL)
    left = set(owned_namespaces(cluster))
    assert "meshtrial-ambient-vs-no-mesh-probe" in left

    wait_for("the end of the Job", lambda: ended(cluster), 400, cluster)
    (second,) = set(pods(cluster)) - set(first)
    log = cluster.kubectl("-n", "meshtrial", "logs", second)
    assert "removed what an earlier session left: " in log
    whole, told = fetch(cluster, tmp_path / "here")
    assert whole == half
    assert "whole" in told
    new = {folder.name for folder in (whole / "runs").iterdir()} - fetched
    assert len(new) >= 2
    assert told.rstrip().endswith(f", {len(new)} new")
    assert before.items() <= digests(whole).items()
    data = read_study(StudyStore.open(whole))
    assert {run.run_id for run in data.runs} == {run.run_id for run in data.plan.runs}
    assert not [p for run in data.runs for p in run.proofs if not p.passed]
    assert json.loads((whole / "environment.json").read_text())["testbed"]["context"] == ""
    # The Job ended like the study; 3 means that a shared machine's noise made runs fail.
    state = cluster.get("-n", "meshtrial", "job", "meshtrial-study")["status"]
    assert state.get("succeeded") == 1 or "exit code 3" in json.dumps(state["conditions"])
    # Only the runner's namespace remains of the study, and the volume's reader is gone.
    assert owned_namespaces(cluster) == []
    assert cluster.get("namespace", "meshtrial")["status"]["phase"] == "Active"
    assert not [name for name in pods(cluster) if "reader" in name]
    assert fetch(cluster, tmp_path / "here")[1].endswith(", 0 new\n")


def test_a_cronjob_makes_one_session_at_a_time_on_nodes_of_its_own(cluster: Cluster, volume: Path, tmp_path: Path):
    # This seed gives the two sessions' blocks opposite orders of the two nodes.
    objects = manifest(cluster, cluster.import_runner(NODE), sessions=2, session_gap="20s", seed=1)
    objects[-1]["spec"]["schedule"] = "* * * * *"
    cluster.apply(yaml.safe_dump_all(objects))

    def ended_jobs() -> list[str]:
        listed = cluster.get("-n", "meshtrial", "jobs")["items"]
        return [one["metadata"]["name"] for one in listed if (one.get("status") or {}).get("conditions")]

    wait_for("two sessions and a time when none is due", lambda: len(ended_jobs()) > 2, 500, cluster)
    cluster.kubectl("-n", "meshtrial", "patch", "cronjob", "meshtrial-study", "-p", '{"spec": {"suspend": true}}')
    logs = [cluster.kubectl("-n", "meshtrial", "logs", f"job/{name}") for name in sorted(ended_jobs())]
    assert "session 2 of 2 begins at" in logs[0]
    assert "all sessions are recorded" in logs[-1]
    whole, told = fetch(cluster, tmp_path / "here")
    assert "whole" in told
    data = read_study(StudyStore.open(whole))
    assert {run.run_id for run in data.runs} == {run.run_id for run in data.plan.runs}
    spans = [[run for run in data.runs if run.repetition in session] for session in data.plan.sessions]
    assert min(run.start_unix_s for run in spans[1]) > max(run.finished_unix_s for run in spans[0]) + 20
    nodes = [{json.dumps(run.extra["nodes"], sort_keys=True) for run in session} for session in spans]
    assert [len(found) for found in nodes] == [1, 1]
    assert nodes[0] != nodes[1]
    assert owned_namespaces(cluster) == []


@pytest.mark.wide  # the first test covers the Job; tests/faults covers a full disk
def test_a_volume_that_is_full_is_said_and_the_job_goes_on_once_there_is_room(
    cluster: Cluster, volume: Path, tmp_path: Path
):
    # In the node's view of the machine's files, where the kubelet finds the volume.
    node = ("nsenter", "-t", str(cluster.state().procs[NODE].pid), "-m", "--")

    def sized(size: str, *more: str) -> None:
        options = ",".join((*more, f"size={size}", f"uid={USER}", f"gid={USER}"))
        subprocess.run([*node, "mount", "-t", "tmpfs", "-o", options, "records", str(volume)], check=True)

    sized("256k")
    try:
        cluster.apply(yaml.safe_dump_all(manifest(cluster, cluster.import_runner(NODE))))
        wait_for("a line on the volume", lambda: "No space left on device" in said(cluster), 300, cluster)
        assert "Traceback" not in said(cluster)
        sized("256m", "remount")
        wait_for("the end of the Job", lambda: ended(cluster), 400, cluster)
        whole, told = fetch(cluster, tmp_path / "here")
        assert "whole" in told
        data = read_study(StudyStore.open(whole))
        assert {run.run_id for run in data.runs} == {run.run_id for run in data.plan.runs}
        assert owned_namespaces(cluster) == []
    finally:
        cluster.kubectl("-n", "meshtrial", "delete", "jobs", "--all", "--cascade=foreground", timeout_s=330)
        subprocess.run([*node, "umount", "--lazy", str(volume)], check=False)
