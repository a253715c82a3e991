import pytest

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
