from pathlib import Path

import pytest
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.design.study import Treatment
from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.kubernetes import testbed
from meshtrial.testbed.kubernetes.apply import MESH, Owner
from meshtrial.testbed.kubernetes.charts import Chart
from meshtrial.testbed.kubernetes.lease import SessionLease, running
from meshtrial.testbed.kubernetes.meshes import _Standing
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

SPACES = "/api/v1/namespaces"


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> KubernetesTestbed:
    monkeypatch.setattr(testbed, "Cluster", lambda *_: FakeApi())
    monkeypatch.setattr(testbed.helm, "version", lambda options: "v3")
    made = KubernetesTestbed({"namespace": "trial"})
    monkeypatch.setattr(made, "_closed", True)  # nothing to remove at the end of the process
    return made


def test_the_study_goes_before_the_mesh_that_it_leans_on(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    api = bed.cluster
    assert isinstance(api, FakeApi)
    labels = dict(bed.applier.owner.labels)
    for name, phase in (("trial", "Active"), ("trial-probe", "Active"), ("trial-2", "Terminating")):
        api.add(f"{SPACES}/{name}", {"metadata": {"labels": labels}, "status": {"phase": phase}})
    notes = {MESH: "kuma"}
    api.add(f"{SPACES}/kuma-system", {"metadata": {"labels": labels, "annotations": notes}, "status": {}})
    left: list[set[str]] = []
    monkeypatch.setattr(bed.installer, "uninstall", lambda name: left.append(set(api.objects)))
    bed._uninstall("kuma")
    # One that hangs in its deletion is not waited for again.
    assert left == [{f"{SPACES}/{name}" for name in ("trial-probe", "trial-2", "kuma-system")}]


@pytest.fixture
def versioned(monkeypatch: pytest.MonkeyPatch) -> KubernetesTestbed:
    monkeypatch.setattr(testbed, "Cluster", lambda *_: FakeApi())
    said = {"istio": {"versions": {"1.30": {"version": "1.30.4"}, "1.31": {}}}}
    options = {"meshes": said, "meshes_side_by_side": True, "mesh_reinstall": "once"}
    made = KubernetesTestbed({"kubernetes": {"namespace": "trial", **options}})
    monkeypatch.setattr(made, "_closed", True)
    return made


def test_a_treatment_has_the_mesh_of_its_version(versioned: KubernetesTestbed):
    for text, version in (("istio+mtls", "1.31.1"), ("istio@1.30+mtls", "1.30.4"), ("istio@1.31@mine", "1.31.1")):
        mesh = versioned._mesh(Treatment.parse(text))
        assert mesh is not None
        assert mesh.version == version
    assert versioned._mesh(Treatment.parse("none@@mine")) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "istio@1.29",
            "understood as version 1.29 of istio; declared are 1.30, 1.31 (meshes.istio.versions in the cluster_file)",
        ),
        (
            "kuma@mine",
            "version mine of kuma; none is declared (meshes.kuma.versions in the cluster_file); an app",
        ),
        ("none@mine", "version mine of none, which has none on a cluster; an app of yours is written none@@mine"),
        ("none@1.30", "version 1.30 of none, which has none on a cluster"),
        ("sidecar@old+mtls", "version old of sidecar, which has none on a cluster"),
        ("isto@1.30", "known on Kubernetes are none, consul, istio, istio-ambient, kuma, linkerd, sidecar"),
        ("istio@1.30+opb", "istio@1.30 has no feature 'opb'"),
        ("istio@1.30+scoped", "scoped needs mtls; write istio@1.30+mtls+scoped"),
    ],
)
def test_an_unknown_version_says_what_was_understood(versioned: KubernetesTestbed, text: str, words: str):
    with pytest.raises(UsageError) as caught:
        versioned._mesh(Treatment.parse(text))
    assert words in str(caught.value)


def test_two_versions_never_stand_side_by_side(versioned: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    removed: list[str] = []
    monkeypatch.setattr(versioned, "_uninstall", removed.append)
    for name in ("istio@1.30", "kuma"):
        versioned.installer._standing[name] = _Standing(versioned.meshes[name], {})
        versioned.installer.installed[name] = 0.0
    versioned._remove_meshes(versioned.meshes["istio@1.30"], False)
    assert removed == []
    versioned._remove_meshes(versioned.meshes["istio@1.31"], False)
    assert removed == ["istio@1.30"]


def test_a_session_shows_that_it_lives_until_it_is_closed(bed: KubernetesTestbed):
    bed._hold()
    bed._hold()
    owner = bed.applier.owner.id
    assert list(running(bed.cluster)) == [owner]
    bed._let_go()
    assert running(bed.cluster) == {}


def test_the_environment_says_which_charts_were_fetched(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    chart = Chart("istiod", "1.31.1", "1.31.1", "https://charts.test istiod 1.31.1", "ab" * 32, Path("/x.tgz"))
    bed.charts._of["istio", "istiod"] = chart
    api = bed.cluster
    assert isinstance(api, FakeApi)
    api.add("/version", {"gitVersion": "v1.34"})
    found = bed.environment()["charts"]
    assert found == {
        "istio": {
            "istiod": {
                "name": "istiod",
                "version": "1.31.1",
                "app_version": "1.31.1",
                "source": "https://charts.test istiod 1.31.1",
                "sha256": "ab" * 32,
            }
        }
    }


def test_what_befell_the_mesh_is_said_first(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    error = TestbedError("0 of 1 pods ready", {"failed-x.txt": "all of it"})
    istio = bed.meshes["istio"]
    monkeypatch.setattr(bed.installer, "broken", lambda name: "istiod was killed")
    assert bed._with_mesh(error, istio) is error
    assert bed._with_mesh(error, None) is error
    bed.installer.installed["istio"] = 0.0
    told = bed._with_mesh(error, istio)
    assert str(told) == "istiod was killed; 0 of 1 pods ready"
    assert told.evidence == error.evidence


def test_a_mesh_that_is_half_there_goes_before_anything_else_runs(
    bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch
):
    removed: list[str] = []
    monkeypatch.setattr(bed, "_uninstall", removed.append)
    object.__setattr__(bed.options, "mesh_reinstall", "once")
    for name in ("istio", "kuma"):
        bed.installer._standing[name] = _Standing(bed.meshes[name], {})
    bed.installer.installed["istio"] = 0.0
    bed._remove_meshes(None, True)
    assert removed == ["kuma"]


def test_a_broken_mesh_is_removed_before_it_is_used_again(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    removed: list[str] = []
    monkeypatch.setattr(bed, "_uninstall", removed.append)
    monkeypatch.setattr(bed.installer, "broken", lambda name: "istiod was killed")
    istio = bed.meshes["istio"]
    assert (bed._remove_broken(istio), removed) == ("", [])
    bed.installer.installed["istio"] = 0.0
    assert bed._remove_broken(None) == ""
    assert (bed._remove_broken(istio), removed) == ("istiod was killed", ["istio"])


def left_over(api: FakeApi, owner: Owner) -> None:
    labels = dict(owner.labels)
    for name in ("trial", "trial-probe"):
        api.add(f"{SPACES}/{name}", {"metadata": {"labels": labels}, "status": {"phase": "Active"}})
    SessionLease(api, owner, "trial-probe")._renew()


@pytest.fixture
def going_on(monkeypatch: pytest.MonkeyPatch) -> KubernetesTestbed:
    monkeypatch.setattr(testbed, "Cluster", lambda *_: FakeApi())
    made = KubernetesTestbed({"namespace": "trial"}, "0a1b2c3d")
    monkeypatch.setattr(made, "_closed", True)
    return made


def test_a_study_that_goes_on_removes_what_its_dead_session_left(
    going_on: KubernetesTestbed, make_study, monkeypatch: pytest.MonkeyPatch
):
    api = going_on.cluster
    assert isinstance(api, FakeApi)
    asked = make_study(name="mesh_comparison")
    left_over(api, Owner(asked.name, "0a1b2c3d"))
    api.add(f"{SPACES}/shop")
    waited: list[float] = []

    def sleep(seconds: float) -> None:  # the cluster's clock goes on while somebody waits
        waited.append(seconds)
        api.now += 10

    monkeypatch.setattr(testbed.time, "sleep", sleep)
    said: list[str] = []
    going_on.recover(asked, said.append)
    assert len(waited) == 7  # 60 s, and over at 70
    assert [path for path in api.objects if path.startswith(SPACES)] == [f"{SPACES}/shop"]
    assert said == ["left by an earlier session and removed: trial, trial-probe"]
    assert going_on.applier.owner == Owner("mesh_comparison", "0a1b2c3d")
    going_on.recover(asked, said.append)
    assert len(said) == 1


def test_a_session_that_lives_is_waited_for_and_left_alone(
    going_on: KubernetesTestbed, make_study, monkeypatch: pytest.MonkeyPatch
):
    api = going_on.cluster
    assert isinstance(api, FakeApi)
    asked = make_study(name="mesh_comparison")
    left_over(api, Owner(asked.name, "0a1b2c3d"))
    monkeypatch.setattr(testbed, "_AFTER_LEASE_S", -59.9)
    monkeypatch.setattr(testbed.time, "sleep", lambda seconds: None)
    before = set(api.objects)
    with pytest.raises(TestbedError, match=r"study mesh-comparison is running .*: wait for it, or end it"):
        going_on.recover(asked, print)
    assert set(api.objects) == before


def test_a_new_study_removes_nothing(bed: KubernetesTestbed, make_study):
    api = bed.cluster
    assert isinstance(api, FakeApi)
    left_over(api, Owner("mesh_comparison", "0a1b2c3d"))
    before = set(api.objects)
    bed.recover(make_study(name="mesh_comparison"), print)
    assert set(api.objects) == before
