import re
from dataclasses import replace

import pytest
from unit.kubernetes.conftest import Clock
from unit.kubernetes.rendering import carrying, render

from meshtrial.design.study import Treatment
from meshtrial.testbed.kubernetes import probing, proofs
from meshtrial.testbed.kubernetes.meshdata import PROOFS, Counter, Feature, Lines, Mesh, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PodRef

OPTIONS = KubernetesOptions()
POD = PodRef("trial", "load-1", "fortio", "uid", "n1", "10.0.0.1")
TINY = Mesh("tiny", "A mesh of a test", "1", OPTIONS.folder, proxy_containers=("tiny-proxy",))
POLICY = {"path": "/closed", "denied": [403]}


def subject_of(mesh: Mesh | None, *features: Feature, app: str = "echo") -> proofs.ProofContext:
    rendered = render("none", app)
    treatment = Treatment("tiny", tuple(feature.name for feature in features))
    setup = replace(rendered.setup, mesh=mesh, treatment=treatment)
    return proofs.ProofContext(None, replace(rendered, setup=setup), {}, POD, POD)  # type: ignore[arg-type]


def answers(monkeypatch: pytest.MonkeyPatch, status: int, body: str = "") -> list[str]:
    asked: list[str] = []

    def request(cluster, pod, url, headers=(), method="") -> probing.Answer:
        asked.append(url)
        return probing.Answer(status, body, f"HTTP {status}")

    monkeypatch.setattr(probing, "request", request)
    return asked


def test_every_proof_that_a_mesh_may_name_is_made():
    assert set(proofs.MAKERS) == set(PROOFS)


def test_a_proof_that_needs_an_echo_is_not_asked_of_an_app_without_one_and_that_is_told():
    istio = find_meshes(OPTIONS)["istio"]
    on = istio.check(Treatment.parse("istio+mtls"))
    asked, unasked = proofs.applicable_proofs(subject_of(istio, *on).setup)
    assert [name for name, _ in asked] == ["proxied", "plaintext-refused", "peer-identity"]
    assert "peer-identity" not in unasked
    asked, unasked = proofs.applicable_proofs(subject_of(istio, *on, app="bookinfo").setup)
    assert [name for name, _ in asked] == ["proxied", "plaintext-refused"]
    assert "peer-identity" in unasked


def test_two_features_that_ask_one_thing_with_other_expectations_are_both_asked():
    one = Feature("one", proofs=("denied",), expect=POLICY)
    two = Feature("two", proofs=("denied",), expect={**POLICY, "path": "/also"})
    mesh = replace(TINY, proofs=(), features={"one": one, "two": two})
    asked, _ = proofs.applicable_proofs(subject_of(mesh, one, two).setup)
    assert [expect["path"] for _, expect in asked] == ["/closed", "/also"]


@pytest.mark.parametrize(("status", "denied", "allowed"), [(403, True, False), (200, False, True), (503, False, False)])
def test_a_closed_path_is_denied_or_the_proof_fails(
    monkeypatch: pytest.MonkeyPatch, status: int, denied: bool, allowed: bool
):
    asked = answers(monkeypatch, status)
    closed = Feature("closed", proofs=("denied",), expect=POLICY)
    mesh = replace(TINY, proofs=(), features={"closed": closed})
    (proof,) = proofs.prove(subject_of(mesh, closed), "before", 0)
    assert proof.passed is denied
    assert asked == ["http://echo.trial.svc.cluster.local:8080/closed"]
    opened = replace(closed, proofs=(), absent_proofs=("allowed",))
    mesh = replace(TINY, proofs=(), features={"closed": opened})
    (proof,) = proofs.prove(subject_of(mesh), "before", 0)
    assert proof.passed is allowed
    assert proof.observed == f"HTTP {status}"


def test_an_identity_is_looked_for_in_what_the_app_echoes(monkeypatch: pytest.MonkeyPatch):
    header = re.escape("l5d-client-id: load")
    feature = Feature("mtls", proofs=("peer-identity",), expect={"header": header})
    mesh = replace(TINY, proofs=(), features={"mtls": feature})
    answers(monkeypatch, 200, "GET /debug\nl5d-client-id: load\n")
    (proof,) = proofs.prove(subject_of(mesh, feature), "before", 0)
    assert proof.passed
    answers(monkeypatch, 200, "GET /debug\n")
    (proof,) = proofs.prove(subject_of(mesh, feature), "before", 0)
    assert not proof.passed


@pytest.mark.parametrize(
    ("protocol", "counted", "passed"), [("http1", 400, True), ("tcp", 400, False), ("tcp", 400 * 4096, True)]
)
def test_of_a_load_of_bytes_a_counter_must_have_seen_the_bytes(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, protocol: str, counted: int, passed: bool
):
    mesh = replace(TINY, proofs=(), counters=(Counter("carried", "app", "1/metrics", "x"),))
    subject = subject_of(mesh)
    setup = replace(subject.setup, load=carrying(protocol))
    subject.rendered = replace(subject.rendered, setup=setup)
    pages = iter([0])
    monkeypatch.setattr(probing, "total", lambda *_: next(pages, counted))
    assert proofs.prove(subject, "before", 0) == ()
    (proof,) = proofs.prove(subject, "after", 400)
    assert (proof.passed, proof.observed) == (passed, f"{counted:g}")


class Logs:
    """A cluster whose pods' log grows between readings, like that of a proxy that writes every 10 s."""

    def __init__(self, *lines: int) -> None:
        self.lines = list(lines)

    def text(self, path: str, once_s: float | None = None, **more: object) -> str:
        assert path == "/api/v1/namespaces/trial/pods/echo-1/log"
        return 'GET /echo "200"\n' * (self.lines.pop(0) if len(self.lines) > 1 else self.lines[0])


@pytest.mark.parametrize(("written", "passed"), [((400,), True), ((370, 390, 400), True), ((370, 390), False)])
def test_a_log_that_is_written_late_is_waited_for(clock: Clock, written: tuple[int, ...], passed: bool):
    logged = Feature("logged", logs=(Lines("access log", "app", "tiny-proxy", "GET /"),))
    subject = subject_of(replace(TINY, proofs=(), features={"logged": logged}), logged)
    subject.cluster = Logs(*written)  # type: ignore[assignment]
    subject.pods = {"app": [{"metadata": {"namespace": "trial", "name": "echo-1"}}]}
    assert proofs.prove(subject, "before", 0) == ()
    began = clock.now
    (proof,) = proofs.prove(subject, "after", 400)
    assert (proof.passed, proof.observed) == (passed, f"{written[-1]} lines")
    assert (clock.now - began > 10) is not passed  # as long as Envoy may buffer its log
