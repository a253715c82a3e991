from typing import Any

import pytest
from refused import as_reviewed, missing, refused
from unit.kubernetes.fakeapi import FakeApi, pod

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import wait

ROOT = "container has runAsNonRoot and image will run as root"


def container(name: str, *, restarts: int = 0, ready: bool = False, **states: Any) -> dict[str, Any]:
    return {"name": name, "image": "i:1", "restartCount": restarts, "ready": ready, **states}


def event(kind: str, why: str, message: str, when: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    about = {"kind": "Pod", "name": "hook-1"}
    return {"type": kind, "reason": why, "message": message, "lastTimestamp": when, "involvedObject": about}


@pytest.fixture
def api() -> FakeApi:
    """A control plane that waits, a hook that cannot start, and a container that crashed."""
    made = FakeApi()
    at = "/api/v1/namespaces/kuma-system"
    made.add(f"{at}/pods/cp-1", pod("kuma-system", "cp-1", containerStatuses=[container("cp", ready=True)]))
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": ROOT}}
    hook = pod("kuma-system", "hook-1", ready=False, containerStatuses=[container("patch", state=waiting)])
    hook["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "hook"}]
    made.add(f"{at}/pods/hook-1", hook)
    died = {"terminated": {"exitCode": 3, "reason": "Error"}}
    backoff = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    crashed = container("dp", restarts=2, state=backoff, lastState=died)
    made.add(f"{at}/pods/app-1", pod("kuma-system", "app-1", ready=False, containerStatuses=[crashed]))
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
    waiting = pod("x", "app-1", ready=False, initContainerStatuses=[sidecar], containerStatuses=[container("app")])
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


def test_a_silent_server_is_asked_once_and_hides_nothing(api: FakeApi):
    api.silent = True
    with refused(TestbedError) as caught, wait.with_evidence(api, ["kuma-system"]):
        raise TestbedError("it failed")
    assert caught.value.evidence == {}
    assert len(api.asked) == 1
