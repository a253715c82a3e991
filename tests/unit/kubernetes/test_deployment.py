"""What a run on a cluster keeps of what crashed in it, and what it changes while it is called."""

import time
from pathlib import Path

import pytest
from refused import missing, refused
from unit.kubernetes.fakeapi import FakeApi, pod
from unit.kubernetes.rendering import render

from meshtrial.design.study import Load
from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.kubernetes import clocks, workload
from meshtrial.testbed.kubernetes.apply import Applier, Owner
from meshtrial.testbed.kubernetes.deployment import KubernetesDeployment
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
    """A deployment that was looked at when it was well."""
    made = KubernetesDeployment(Applier(api, Owner("study")), render("none"), None)  # type: ignore[arg-type]
    made.look()
    return made


def test_a_run_in_which_nothing_crashed_keeps_its_logs_alone(standing: KubernetesDeployment, tmp_path: Path):
    standing.collect_logs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"app-1-app.log"}


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


def test_counters_of_what_is_gone_are_not_waited_for(api: FakeApi, standing: KubernetesDeployment):
    del api.objects[f"{PODS}/app-1"]
    with refused(TestbedError, "app pod app-1 on node node-1 was deleted during the run"):
        standing.snapshot()
    assert not any("metrics" in path for path in api.asked)


SERVICE = "/api/v1/namespaces/trial/services"
POLICY = "/apis/security.istio.io/v1/namespaces/trial/authorizationpolicies/denial"
CHANGED = Load(
    rps=100, connections=4, duration_s=5, changes=("authorization", "endpoints"), change_every_s=1, change_cycles=1
)


@pytest.fixture
def in_two_versions(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> KubernetesDeployment:
    """One behind Istio, with its two Services in place and clocks that are told."""
    monkeypatch.setattr(clocks, "behind", lambda *_: clocks.Behind(100.0, 0.002))
    kind = {"name": "authorizationpolicies", "kind": "AuthorizationPolicy", "namespaced": True}
    api.add("/apis/security.istio.io/v1", {"resources": [kind]})
    rendered = render("istio", "two-versions", CHANGED)
    for item in rendered.objects:
        if item["kind"] == "Service":
            api.add(f"{SERVICE}/{item['metadata']['name']}", item)
    made = KubernetesDeployment(Applier(api, Owner("study")), rendered, None)  # type: ignore[arg-type]
    made.look()
    return made


def test_endpoints_are_exchanged_and_given_back_by_the_selector_of_the_entry_service(
    api: FakeApi, in_two_versions: KubernetesDeployment
):
    assert in_two_versions.changes() == ("endpoints", "authorization")
    began = time.time()
    taken = in_two_versions.change("endpoints", on=True)
    selector = api.objects[f"{SERVICE}/two-versions"]["spec"]["selector"]
    assert selector == {"app": "two-versions", "version": "second"}
    # By the generators' clock, which is behind by 100 s; within half of the answer and what is unknown of the clocks.
    assert abs(taken.unix_s + 100 - began) < 60
    assert 0.002 <= taken.error_s < 60
    in_two_versions.change("endpoints", on=False)
    assert selector == {"app": "two-versions", "version": "first"}


def test_a_deployment_that_is_kept_is_left_as_it_was_found(api: FakeApi, in_two_versions: KubernetesDeployment):
    in_two_versions.keep = True
    in_two_versions.changes()
    in_two_versions.change("authorization", on=True)
    assert api.objects[POLICY]["spec"]["selector"]["matchLabels"] == {PART: "app"}
    in_two_versions.close()
    assert POLICY not in api.objects


def test_the_bystander_comes_and_goes_and_the_entry_stays(api: FakeApi, in_two_versions: KubernetesDeployment):
    seen = []
    for number in range(3):
        in_two_versions.churn(number)
        seen.append(dict(api.objects[f"{SERVICE}/bystander"]["spec"]["selector"]))
    assert seen == [
        {"app": "bystander", "version": "away"},
        {"app": "bystander"},
        {"app": "bystander", "version": "away"},
    ]
    assert api.objects[f"{SERVICE}/two-versions"]["spec"]["selector"]["version"] == "first"


@pytest.mark.parametrize(
    ("treatment", "possible"),
    [
        ("none", ("endpoints",)),
        ("istio", ("endpoints", "authorization")),
        ("istio-ambient", ("endpoints", "authorization")),
        ("linkerd", ("endpoints", "authorization")),
        ("kuma", ("endpoints",)),  # without identities nobody can be denied
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
