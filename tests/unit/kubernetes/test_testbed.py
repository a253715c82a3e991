from pathlib import Path

import pytest
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.design.study import Treatment
from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.kubernetes import testbed
from meshtrial.testbed.kubernetes.apply import MESH
from meshtrial.testbed.kubernetes.charts import Chart
from meshtrial.testbed.kubernetes.lease import running
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
