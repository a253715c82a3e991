import copy

import pytest
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.execs import Exited, PodRef, refusal
from meshtrial.testbed.kubernetes.pods import lost, pod_ref, versions
from meshtrial.testbed.kubernetes.probing import Answer

POD = {
    "metadata": {"name": "load-1", "namespace": "trial", "uid": "u1", "labels": {"meshtrial.dev/part": "load"}},
    "spec": {"nodeName": "n1"},
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "fortio", "restartCount": 0, "image": "fortio:1", "imageID": "docker.io/fortio/fortio@sha256:ab"}
        ],
    },
}


def changed(**status: object) -> dict:
    pod = copy.deepcopy(POD)
    pod["status"].update(status)
    return pod


def test_a_pod_as_it_was_spoils_nothing():
    assert lost(POD, POD) == ""


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (None, " was deleted during the run"),
        (
            changed(phase="Failed", reason="Evicted", message="low on memory"),
            " failed during the run: Evicted low on memory",
        ),
        (
            changed(conditions=[{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]),
            " is not ready any more (NodeNotReady); its node may be gone",
        ),
        (
            changed(containerStatuses=[{"name": "fortio", "restartCount": 1}]),
            ": a container was restarted during the run",
        ),
    ],
)
def test_what_befell_a_pod_is_said_with_its_node(now: dict | None, words: str):
    assert lost(POD, now) == f"load pod load-1 on node n1{words}"


def test_an_eviction_says_why():
    pod = changed(conditions=[{"type": "DisruptionTarget", "status": "True", "message": "node drain"}])
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert lost(POD, pod) == "load pod load-1 on node n1 was evicted or deleted during the run: node drain"


@pytest.mark.parametrize(
    ("metadata", "start"),
    [
        (
            {"name": "istiod-1", "namespace": "istio-system", "ownerReferences": [{"kind": "ReplicaSet"}]},
            "control plane pod istiod-1 in istio-system on node n1 was deleted during the run",
        ),
        (
            {"name": "ztunnel-1", "namespace": "istio-system", "ownerReferences": [{"kind": "DaemonSet"}]},
            "node agent pod ztunnel-1 in istio-system on node n1 was deleted during the run",
        ),
        (
            {
                "name": "waypoint-1",
                "namespace": "trial",
                "labels": {"gateway.networking.k8s.io/gateway-name": "waypoint", "meshtrial.dev/part": "app"},
            },
            "waypoint pod waypoint-1 on node n1 was deleted during the run",
        ),
    ],
)
def test_pods_of_a_mesh_are_named_by_what_they_are(metadata: dict, start: str):
    assert lost({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {}}, None) == start


def test_since_when_is_said_too():
    assert lost(POD, None, "since its installation") == "load pod load-1 on node n1 was deleted since its installation"


def test_versions_carry_the_digest_that_the_node_resolved():
    assert versions([POD]) == {"image fortio": "fortio:1 (sha256:ab)"}
    other = changed(containerStatuses=[{"name": "fortio", "image": "fortio:2", "imageID": ""}])
    # None hides behind another.
    assert versions([other, POD, POD]) == {"image fortio": "fortio:1 (sha256:ab), fortio:2"}
    assert str(pod_ref(POD, "fortio")) == "trial/load-1"


@pytest.mark.parametrize(
    ("status", "detail", "refused"),
    [
        (0, "read tcp 10.0.0.1:1->10.0.0.2:8080: read: connection reset by peer", True),
        (0, "EOF", True),
        (403, "HTTP 403", True),
        (200, "HTTP 200", False),
        # Nobody there proves nothing.
        (0, "dial tcp 10.0.0.2:8080: connect: connection refused", False),
        (0, "lookup nope: no such host", False),
        (0, "dial tcp 10.0.0.2:8080: i/o timeout", False),
    ],
)
def test_only_somebody_who_is_there_can_refuse(status: int, detail: str, refused: bool):
    assert Answer(status, "", detail).refused is refused


def test_fortios_own_words(monkeypatch: pytest.MonkeyPatch):
    log = (
        '{"ts":1.0,"level":"info","msg":"Starting"}\n'
        '{"ts":1.1,"level":"warn","msg":"[E] Read error, err=\\"read tcp: connection reset by peer\\", size=0"}\n'
        '{"ts":1.2,"level":"warn","msg":"[E] Error status -1","src":"std"}\n'
    )
    said = [log, '{"msg":"[E] Unable to lookup \\"x\\": no such host"}\n{"msg":"[E] Error status -1"}']
    monkeypatch.setattr(probing, "run", lambda *_, **__: Exited(1, b"", said.pop(0).encode()))
    answers = [probing.request(FakeApi(), PodRef("trial", "load-1", "fortio"), "http://x/") for _ in range(2)]
    assert [(answer.status, answer.refused) for answer in answers] == [(0, True), (0, False)]
    assert answers[0].detail == "read tcp: connection reset by peer"
    assert answers[1].detail == '{"msg":"[E] Unable to lookup \\"x\\": no such host"}'


def test_a_refused_exec_says_what_the_api_server_said():
    text = 'Handshake status 404 Not Found -+-+- {} -+-+- b\'{"message":"pods \\\\"probe\\\\" not found"}\''
    assert refusal(text) == 'pods "probe" not found'
    assert refusal("something else") == "something else"
