import pytest
from refused import refused
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


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            waiting("ImagePullBackOff", 'Back-off pulling image "nope:1"'),
            'container echo: ImagePullBackOff: Back-off pulling image "nope:1" (check images=NAME=REFERENCE '
            "and the node's access to the registry)",
        ),
        (
            waiting("CrashLoopBackOff"),
            "container echo: CrashLoopBackOff:  (its last log lines follow, where it wrote any)",
        ),
        (
            waiting("ErrImageNeverPull"),
            "container echo: ErrImageNeverPull:  (load the image onto every node, or set "
            "image_pull_policy=IfNotPresent)",
        ),
        (
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            "container echo: CreateContainerConfigError: container has runAsNonRoot and image will run as "
            "root (set runAsUser in its manifest or its chart's values, or take an image that names its user)",
        ),
        (
            waiting("CreateContainerConfigError", 'configmap "x" not found'),
            'container echo: CreateContainerConfigError: configmap "x" not found (a ConfigMap or Secret that '
            "it names is missing)",
        ),
        (
            pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes are available"}]),
            "unschedulable: 0/2 nodes are available",
        ),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), "Evicted: low on memory"),
    ],
)
def test_what_waiting_will_not_mend_is_said(status: dict, words: str):
    assert first_problem([status]) == f"pod echo-1: {words}"


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
    with refused(
        TestbedError, "namespace mesh: 0 of 1 pods ready after 0.1 s; last log lines of agent: no certificate yet"
    ):
        wait.pods_ready(api, "mesh", "", 1, 0.1, settle=("CrashLoopBackOff",))


def test_pods_beyond_those_that_were_asked_for_are_waited_for_and_counted():
    api = FakeApi()
    for name, ready in (("echo", True), ("load", True), ("waypoint", False)):
        api.add(f"/api/v1/namespaces/trial/pods/{name}", fake_pod("trial", name, ready=ready))
    with refused(TestbedError, "namespace trial: 2 of 3 pods ready after 0.1 s"):
        wait.pods_ready(api, "trial", "", 2, 0.1)


def test_ready_is_the_pods_own_condition():
    assert is_ready(pod(conditions=[{"type": "Ready", "status": "True"}]))
    assert not is_ready(pod(conditions=[{"type": "Ready", "status": "False"}]))
    assert not is_ready(pod())


NO_NODE = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes"}])


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
    # One that goes away meanwhile begins anew when it comes back.
    goes, comes = clock.now + patience_s - 1, clock.now + patience_s + 1
    clock.meanwhile = lambda _: api.add(path, pod(phase="Pending") if goes < clock.now < comes else status)
    with refused(TestbedError, names=["echo-1"]):
        wait.pods_ready(api, "trial", "", 1, 60.0)
    assert patience_s < clock.now - comes < patience_s + 1
