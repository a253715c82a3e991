import pytest
from refused import as_reviewed, refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi
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
