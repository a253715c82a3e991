from typing import Any

import pytest
from refused import as_reviewed, missing, refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi, Json
from unit.kubernetes.fakeapi import pod as fake_pod

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.pods import is_ready
from meshtrial.testbed.kubernetes.wait import first_problem

pytestmark = pytest.mark.usefixtures("clock")  # nobody waits for real


def pod(**status: object) -> dict:
    return {"metadata": {"name": "echo-1"}, "status": status}


def waiting(reason: str, message: str = "") -> dict:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(phase="Pending", containerStatuses=[{"name": "echo", "state": state}])


ROOT = "container has runAsNonRoot and image will run as root"
NO_NODE = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes"}])


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ImagePullBackOff", 'Back-off pulling image "nope:1"'),
        ("CrashLoopBackOff", ""),
        ("ErrImageNeverPull", ""),
        ("CreateContainerConfigError", ROOT),
        ("CreateContainerConfigError", 'configmap "x" not found'),
    ],
)
def test_what_waiting_will_not_mend_is_said(reason: str, message: str):
    as_reviewed(first_problem([waiting(reason, message)]))


def test_what_waiting_will_mend_is_waited_for():
    assert first_problem([waiting("ContainerCreating"), waiting("PodInitializing"), pod(phase="Running")]) == ""
    assert first_problem([waiting("CrashLoopBackOff")], settle=("CrashLoopBackOff",)) == ""


def test_a_crash_that_was_waited_out_speaks_at_the_time_out():
    api = FakeApi()
    crashed = {
        "name": "agent",
        "restartCount": 3,
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}},
    }
    api.add(
        "/api/v1/namespaces/mesh/pods/cni-1", fake_pod("mesh", "cni-1", ready=False, initContainerStatuses=[crashed])
    )
    api.logs["mesh/cni-1/agent previous"] = "no certificate yet\n"
    with refused(TestbedError):
        wait.pods_ready(api, "mesh", "", 1, 0.1, settle=("CrashLoopBackOff",))


def test_pods_beyond_those_that_were_asked_for_are_waited_for_and_counted():
    api = FakeApi()
    for name, ready in (("echo", True), ("load", True), ("waypoint", False)):
        api.add(f"/api/v1/namespaces/trial/pods/{name}", fake_pod("trial", name, ready=ready))
    with refused(TestbedError):
        wait.pods_ready(api, "trial", "", 2, 0.1)


@pytest.mark.parametrize(
    ("status", "patience_s"),
    # The scheduler's view lags behind pods that were just deleted.
    [(waiting("ErrImagePull"), 2), (NO_NODE, 15)],
)
def test_a_problem_is_final_when_it_has_stood_for_long_enough(clock: Clock, status: dict, patience_s: float):
    api, path = FakeApi(), "/api/v1/namespaces/trial/pods/echo-1"
    api.add(path, status)
    began = clock.now
    with refused(TestbedError, names=["echo-1"]):
        wait.pods_ready(api, "trial", "", 1, 60.0)
    assert patience_s < clock.now - began < patience_s + 1
    # If one disappears meanwhile, its wait restarts when it returns.
    goes, comes = clock.now + patience_s - 1, clock.now + patience_s + 1
    clock.meanwhile = lambda _: api.add(path, pod(phase="Pending") if goes < clock.now < comes else status)
    with refused(TestbedError, names=["echo-1"]):
        wait.pods_ready(api, "trial", "", 1, 60.0)
    assert patience_s < clock.now - comes < patience_s + 1


def node(ready: str, **spec: object) -> dict:
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("one", "patience_s"),
    [
        (node("Unknown"), 90),
        # Waiting cannot bring back a cordoned or tainted node.
        (node("True", unschedulable=True), 15),
        (node("True", taints=[{"key": "dedicated", "effect": "NoSchedule"}]), 15),
    ],
)
def test_a_node_that_is_not_ready_is_waited_for(clock: Clock, one: dict, patience_s: float):
    api = FakeApi()
    api.add("/api/v1/namespaces/trial/pods/echo-1", NO_NODE)
    api.add("/api/v1/nodes/n1", one)
    began = clock.now
    with refused(TestbedError):
        wait.pods_ready(api, "trial", "", 1, 200.0)
    assert patience_s < clock.now - began < patience_s + 1


def test_a_pod_that_gets_its_node_back_comes_up(clock: Clock):
    api, path = FakeApi(), "/api/v1/namespaces/trial/pods/echo-1"
    api.add(path, NO_NODE)
    api.add("/api/v1/nodes/n1", node("Unknown"))
    ready = pod(conditions=[{"type": "Ready", "status": "True"}])
    clock.meanwhile = lambda _: api.add(path, ready) if clock.now > 180 else None
    (came,) = wait.pods_ready(api, "trial", "", 1, 200.0)
    assert is_ready(came)


# --- evidence ---------------------------------------------------------------------------------------------------------


def container(name: str, *, restarts: int = 0, ready: bool = False, **states: Any) -> dict[str, Any]:
    return {"name": name, "image": "i:1", "restartCount": restarts, "ready": ready, **states}


def event(kind: str, why: str, message: str, when: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    about = {"kind": "Pod", "name": "hook-1"}
    return {"type": kind, "reason": why, "message": message, "lastTimestamp": when, "involvedObject": about}


@pytest.fixture
def api() -> FakeApi:
    """A control plane that waits, a hook that cannot start, and one that crashed."""
    made = FakeApi()
    at = "/api/v1/namespaces/kuma-system"
    made.add(f"{at}/pods/cp-1", fake_pod("kuma-system", "cp-1", containerStatuses=[container("cp", ready=True)]))
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": ROOT}}
    hook = fake_pod("kuma-system", "hook-1", ready=False, containerStatuses=[container("patch", state=waiting)])
    hook["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "hook"}]
    made.add(f"{at}/pods/hook-1", hook)
    died = {"terminated": {"exitCode": 3, "reason": "Error"}}
    backoff = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    crashed = container("dp", restarts=2, state=backoff, lastState=died)
    made.add(f"{at}/pods/app-1", fake_pod("kuma-system", "app-1", ready=False, containerStatuses=[crashed]))
    made.add(f"{at}/events/late", event("Warning", "Failed", f"Error: {ROOT}", "2026-01-01T00:00:09Z"))
    made.add(f"{at}/events/early", event("Normal", "Scheduled", "assigned to node-1"))
    made.logs = {
        "kuma-system/cp-1/cp": "I am well\n",
        "kuma-system/app-1/dp": "starting\n",
        "kuma-system/app-1/dp previous": "could not retrieve service account\ntoken from disk\n",
    }
    return made


def test_events_and_logs_are_kept_whole(api: FakeApi):
    found = wait.gather_evidence(api, ["kuma-system", "kuma-system", "elsewhere"])
    assert set(found) == {
        "failed-kuma-system-pods.txt",
        "failed-kuma-system-events.txt",
        "failed-kuma-system-cp-1-cp.log",
        "failed-kuma-system-app-1-dp.log",
        "failed-kuma-system-app-1-dp-previous.log",
    }
    assert found["failed-kuma-system-app-1-dp-previous.log"].endswith("token from disk\n")
    events = found["failed-kuma-system-events.txt"].splitlines()
    assert [line.split()[2] for line in events] == ["Scheduled", "Failed"]
    assert events[1].endswith(f"Pod/hook-1: Error: {ROOT}")
    assert missing(found["failed-kuma-system-pods.txt"], ["patch", "i:1", 2, '"CrashLoopBackOff"', 3]) == []


def test_a_hook_speaks_first(api: FakeApi):
    as_reviewed(wait.failure_reason(api, ["kuma-system"]))


def test_a_crash_comes_with_its_last_words(api: FakeApi):
    del api.objects["/api/v1/namespaces/kuma-system/pods/hook-1"]
    as_reviewed(wait.failure_reason(api, ["kuma-system"]))


def test_who_runs_and_is_not_ready_speaks_after_who_crashed():
    api = FakeApi()
    sidecar = container("proxy", state={"running": {}})
    waiting = fake_pod("x", "app-1", ready=False, initContainerStatuses=[sidecar], containerStatuses=[container("app")])
    api.logs = {"x/app-1/proxy": "cannot resolve istiod\n", "x/app-1/app": "bye\n"}
    as_reviewed(wait.last_log_lines(api, waiting))
    waiting["status"]["containerStatuses"] = [container("app", state={"terminated": {"exitCode": 1}})]
    as_reviewed(wait.last_log_lines(api, waiting))
    sidecar["ready"] = True
    waiting["status"]["containerStatuses"] = []
    assert wait.last_log_lines(api, waiting) == ""


def test_without_a_bad_pod_the_newest_warning_speaks(api: FakeApi):
    for name in ("hook-1", "app-1"):
        del api.objects[f"/api/v1/namespaces/kuma-system/pods/{name}"]
    api.add("/api/v1/namespaces/x/events/old", event("Warning", "Old", "o", "2020-01-01T00:00:00Z"))
    as_reviewed(wait.failure_reason(api, ["x", "kuma-system"]))
    assert wait.failure_reason(api, ["nowhere"]) == ""


def test_an_error_carries_it_on_its_way_out(api: FakeApi):
    with refused(TestbedError) as caught, wait.with_evidence(api, ["kuma-system"]):
        raise TestbedError("it failed", {"failed-kuma-system-events.txt": "seen earlier"})
    assert caught.value.evidence["failed-kuma-system-events.txt"] == "seen earlier"
    assert "failed-kuma-system-app-1-dp.log" in caught.value.evidence


def test_a_silent_server_is_asked_once_and_hides_nothing(api: FakeApi, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()  # a clock that stands still never passes the moment after which nothing is asked again
    api.silent = True
    with refused(TestbedError) as caught, wait.with_evidence(api, ["kuma-system"]):
        raise TestbedError("it failed")
    assert caught.value.evidence == {}
    assert len(api.asked) == 1


# --- restarts ---------------------------------------------------------------------------------------------------------

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def owned_pod(api: FakeApi, name: str, kind: str = "ReplicaSet", owner: str = "app-77f", ready: bool = True) -> Json:
    body = {"metadata": {"ownerReferences": [{"kind": kind, "name": owner}]}, "status": READY if ready else {}}
    hashed = {"pod-template-hash": owner.rpartition("-")[2]} if kind == "ReplicaSet" else {}
    return api.add(f"/api/v1/namespaces/trial/pods/{name}", body, **hashed)


def test_what_a_pod_belongs_to():
    api = FakeApi()
    assert wait.workload_of(owned_pod(api, "a")) == ("trial", "deployments", "app")
    assert wait.workload_of(owned_pod(api, "b", "DaemonSet", "ztunnel")) == ("trial", "daemonsets", "ztunnel")
    assert wait.workload_of(owned_pod(api, "c", "StatefulSet", "server")) == ("trial", "statefulsets", "server")
    with refused(TestbedError):
        wait.workload_of(api.add("/api/v1/namespaces/trial/pods/lone"))


def test_a_restart_that_does_not_end_says_what_is_missing():
    api, path = FakeApi(), "/apis/apps/v1/namespaces/trial/deployments/app"
    workload = api.add(path)
    with refused(TestbedError):
        wait.restart_pods(api, [owned_pod(api, "app-old")], 0.3)
    assert set(workload["spec"]["template"]["metadata"]["annotations"]) == {"kubectl.kubernetes.io/restartedAt"}
