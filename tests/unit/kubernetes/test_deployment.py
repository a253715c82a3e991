"""A run on a cluster records crashes, and applies changes when called."""

from pathlib import Path

import pytest
from refused import missing, refused
from unit.kubernetes.fakeapi import FakeApi, pod
from unit.kubernetes.rendering import our_meshes, render

from meshtrial.design.load import ChangesUnderLoad
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apply import Applier, Owner
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment, restartable
from meshtrial.testbed.kubernetes.pods import PART

PODS = "/api/v1/namespaces/trial/pods"


def app(restarts: int) -> dict:
    died = {"terminated": {"exitCode": 139, "reason": "Error"}}
    container = {"name": "app", "image": "i:1", "ready": True, "restartCount": restarts}
    made = pod("trial", "app-1", containerStatuses=[container | ({"lastState": died} if restarts else {})])
    made["spec"]["containers"] = [{"name": "app"}]
    made["metadata"]["labels"] = {PART: "app"}
    return made


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.add(f"{PODS}/app-1", app(0))
    load = made.add(f"{PODS}/load-1", pod("trial", "load-1"))
    load["metadata"]["labels"] = {PART: "load"}
    load["spec"]["containers"] = [{"name": "fortio"}]
    about = {"kind": "Pod", "name": "app-1"}
    made.add(
        "/api/v1/namespaces/trial/events/one",
        {"type": "Warning", "reason": "BackOff", "message": "restarting", "involvedObject": about},
    )
    made.logs = {"trial/app-1/app": "serving again\n", "trial/app-1/app previous": "segmentation fault\n"}
    return made


@pytest.fixture
def standing(api: FakeApi) -> KubernetesDeployment:
    """A deployment whose snapshot was taken while it was healthy."""
    made = KubernetesDeployment(Applier(api, Owner("study")), render("none"), None)  # type: ignore[arg-type]
    made.refresh()
    return made


def test_of_a_container_that_was_restarted_the_log_before_and_the_events_are_kept(
    api: FakeApi, standing: KubernetesDeployment, tmp_path: Path
):
    uid = api.objects[f"{PODS}/app-1"]["metadata"]["uid"]
    api.add(f"{PODS}/app-1", app(1))["metadata"]["uid"] = uid
    standing.collect_logs(tmp_path)
    assert (tmp_path / "failed-trial-app-1-app-previous.log").read_text() == "segmentation fault\n"
    assert (tmp_path / "failed-trial-events.txt").read_text() == " Warning BackOff Pod/app-1: restarting\n"
    assert missing((tmp_path / "failed-trial-pods.txt").read_text(), ["app-1", 139, 1]) == []
    assert (tmp_path / "app-1-app.log").read_text() == "serving again\n"


CHANGED = ChangesUnderLoad(
    rps=100, connections=4, duration_s=5, changes=("authorization", "endpoints"), change_every_s=1, change_cycles=1
)


@pytest.mark.parametrize(
    ("treatment", "possible"),
    [
        ("none", ("endpoints",)),
        ("istio", ("endpoints", "authorization")),
        ("istio-ambient", ("endpoints", "authorization")),
        ("linkerd", ("endpoints", "authorization")),
        ("kuma", ("endpoints",)),  # without identities no caller can be denied
        ("kuma+mtls", ("endpoints", "authorization")),
    ],
)
def test_what_each_mesh_can_change_under_load(treatment: str, possible: tuple[str, ...]):
    setup = render(treatment, "two-versions", CHANGED).setup
    assert workload.changes_of(setup) == possible
    denials = workload.denial_of(setup)
    assert bool(denials) == ("authorization" in possible)
    assert all(item["metadata"]["namespace"] == "trial" for item in denials)


@pytest.mark.parametrize(("treatment", "app"), [("istio", "echo"), ("consul", "two-versions")])
def test_what_has_one_version_or_one_service_a_pod_has_nothing_to_change(treatment: str, app: str):
    with refused(UsageError, names=[app, treatment]):
        render(treatment, app, CHANGED)


def test_which_parts_of_a_mesh_can_be_restarted():
    meshes = our_meshes()
    assert restartable(None, "app") == ("app",)
    assert restartable(None, "proxies") == ()
    assert restartable(meshes["istio"], "control-plane") == ("istiod",)
    # Sidecars live in the application's pods.
    assert restartable(meshes["istio"], "proxies") == ()
    assert "ztunnel" in restartable(meshes["istio-ambient"], "proxies")
    assert "waypoint" in restartable(meshes["istio-ambient"], "proxies")
