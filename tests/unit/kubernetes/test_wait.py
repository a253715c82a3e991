import pytest

from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.wait import first_problem, is_ready


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
            'ImagePullBackOff: Back-off pulling image "nope:1"',
        ),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff"),
        (waiting("ErrImageNeverPull"), "load the image onto every node"),
        (
            pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/2 nodes are available"}]),
            "unschedulable: 0/2 nodes are available",
        ),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), "Evicted: low on memory"),
    ],
)
def test_what_waiting_will_not_mend_is_said(status: dict, words: str):
    problem = first_problem([status])
    assert words in problem
    assert problem.startswith("pod echo-1")


def test_what_waiting_will_mend_is_waited_for():
    assert first_problem([waiting("ContainerCreating"), waiting("PodInitializing"), pod(phase="Running")]) == ""
    assert first_problem([waiting("CrashLoopBackOff")], settle=("CrashLoopBackOff",)) == ""


def test_ready_is_the_pods_own_condition():
    assert is_ready(pod(conditions=[{"type": "Ready", "status": "True"}]))
    assert not is_ready(pod(conditions=[{"type": "Ready", "status": "False"}]))
    assert not is_ready(pod())


def test_a_problem_is_final_when_it_has_stood_for_long_enough(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(wait.time, "monotonic", lambda: now)
    standing = wait._Standing()
    image, nodes = "pod a: container c: ErrImagePull", f"pod a: {wait._UNSCHEDULABLE}0/2 nodes"
    assert not standing.final(image)
    now += 3
    assert standing.final(image)
    # The scheduler's view lags behind pods that were just deleted.
    assert not standing.final(nodes)
    now += 10
    assert not standing.final(nodes)
    assert not standing.final("")
    assert not standing.final(nodes)
    now += 16
    assert standing.final(nodes)
