import copy

import pytest
from refused import as_reviewed
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.pods import Exited, PodRef, live_pods, loss_reason, pod_ref, refusal, versions
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


EVICTED = changed(phase="Failed", reason="Evicted", message="low on memory")
UNREADY = changed(conditions=[{"type": "Ready", "status": "False", "reason": "NodeNotReady"}])
RESTARTED = changed(containerStatuses=[{"name": "fortio", "restartCount": 1}])
DRAINED = changed(conditions=[{"type": "DisruptionTarget", "status": "True", "message": "node drain"}])
DRAINED["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "now",
    [None, EVICTED, UNREADY, RESTARTED, DRAINED],
    ids=["deleted", "evicted", "unready", "restarted", "drained"],
)
def test_what_befell_a_pod_is_said_with_its_node(now: dict | None):
    as_reviewed(loss_reason(POD, now))


def test_a_pod_as_it_was_spoils_nothing_and_since_when_is_said_too():
    assert loss_reason(POD, POD) == ""
    as_reviewed(loss_reason(POD, None, "since its installation"))


WAYPOINT = {"gateway.networking.k8s.io/gateway-name": "waypoint", "meshtrial.dev/part": "app"}


@pytest.mark.parametrize(
    ("name", "namespace", "owner", "labels"),
    [
        ("istiod-1", "istio-system", "ReplicaSet", {}),
        ("ztunnel-1", "istio-system", "DaemonSet", {}),
        ("waypoint-1", "trial", None, WAYPOINT),
    ],
)
def test_pods_of_a_mesh_are_named_by_what_they_are(name, namespace, owner, labels):
    owners = [{"kind": owner}] if owner else []
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners}
    as_reviewed(loss_reason({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {}}, None))


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


@pytest.mark.parametrize(
    ("said", "status", "refused"),
    [
        ("OK", 200, False),
        ("short read", 0, True),  # the runtime's word for both an end and a reset
        ("write tcp 10.0.0.1:1->10.0.0.2:8078: write: broken pipe", 0, True),
        ("dial tcp 10.0.0.2:8078: connect: connection refused", 0, False),
        ("read tcp 10.0.0.1:1->10.0.0.2:8078: i/o timeout", 0, False),
    ],
)
def test_of_bytes_an_echo_is_the_answer(monkeypatch: pytest.MonkeyPatch, said: str, status: int, refused: bool):
    out = f"Sockets used: 1 (for perfect no error run, would be 1)\ntcp {said} : 1 (100.0 %)\nAll done 1 calls\n"
    monkeypatch.setattr(probing, "run", lambda *_, **__: Exited(0, b"", out.encode()))
    answer = probing.request(FakeApi(), PodRef("trial", "load-1", "fortio"), "tcp://echo:8078")
    assert (answer.status, answer.refused) == (status, refused)
    assert answer.detail == ("echoed" if status else said)


def test_a_refused_exec_says_what_the_api_server_said():
    text = 'Handshake status 404 Not Found -+-+- {} -+-+- b\'{"message":"pods \\\\"probe\\\\" not found"}\''
    assert refusal(text) == 'pods "probe" not found'
    assert refusal("something else") == "something else"


def test_a_pod_that_is_being_deleted_is_not_a_live_one(monkeypatch: pytest.MonkeyPatch):
    going = {**POD, "metadata": {**POD["metadata"], "name": "load-0", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    monkeypatch.setattr("meshtrial.testbed.kubernetes.pods.pods_of", lambda *_: [going, POD])
    assert live_pods(None, "trial") == [POD]  # type: ignore[arg-type]
