from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from refused import as_reviewed, missing, refused
from unit.kubernetes.fakeapi import FakeApi, pod

from meshtrial.errors import MissingToolError, TestbedError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.apply import Applier, Owner
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, MeshOverride, Release, Selector
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions

PODS = "/api/v1/namespaces/toy-system/pods"
HOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/toy-injector"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.toy.test"


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    """A mesh of one chart, whose control plane is one pod and one webhook."""
    chart = tmp_path / "chart"
    chart.mkdir()
    (chart / "Chart.yaml").write_text(yaml.safe_dump({"name": "toy", "version": "0.1.0"}))
    (chart / "values.yaml").write_text(yaml.safe_dump({"logLevel": "info"}))
    return Mesh(
        "toy",
        "Toy",
        "0.1.0",
        tmp_path,
        namespaces=("toy-system",),
        releases=(Release("toy", "toy", namespace="toy-system", path=str(chart)),),
        crd_groups=("toy.test",),
        control_plane=(Selector("toy", "toy-system", "app=toy"),),
    )


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def stand(api: FakeApi, *containers: dict) -> None:
    """A control plane of one pod with these containers."""
    body = pod("toy-system", "toy-1", containerStatuses=containers)
    body["spec"]["containers"] = containers
    api.add(f"{PODS}/toy-1", body, app="toy")


@pytest.fixture
def helms(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Helm's part: the objects of a release, those that Helm removes, and those that it leaves."""
    done: list[str] = []

    def install(*_: object) -> None:
        done.append("install")
        stand(api, {"name": "cp", "restartCount": 0, "ready": True})
        api.add(HOOK, {"webhooks": [{"clientConfig": {"service": {"namespace": "toy-system"}}}]})
        api.add(f"{ROLES}/toy-left")
        spec = {"group": "toy.test", "names": {"plural": "toys"}, "versions": [{"name": "v1", "served": True}]}
        api.add(CRD, {"spec": spec})

    def uninstall(*_: object) -> None:
        done.append("uninstall")
        for path in (f"{PODS}/toy-1", HOOK):
            api.objects.pop(path, None)

    monkeypatch.setattr(helm, "install_release", install)
    monkeypatch.setattr(helm, "uninstall_release", uninstall)
    monkeypatch.setattr(helm, "program", lambda options: "helm")
    return done


@pytest.fixture
def installer(api: FakeApi) -> MeshInstaller:
    return MeshInstaller(api, KubernetesOptions(), Applier(api, Owner("study", "abc123")))


def test_nothing_of_a_mesh_is_left_and_nothing_of_others_goes(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str]
):
    api.add(f"{ROLES}/toy-of-somebody")
    installer.install(mesh)
    assert api.objects[f"{ROLES}/toy-left"]["metadata"]["labels"]["meshtrial.dev/owner"] == "abc123"
    assert api.objects[CRD]["metadata"]["labels"]["meshtrial.dev/owner"] == "abc123"
    api.add(f"{ROLES}/stranger")
    api.add("/apis/gateway.networking.k8s.io/v1/gatewayclasses/late", {"spec": {"controllerName": "toy.test/gateways"}})
    installer.uninstall("toy")
    assert set(api.objects) == {f"{ROLES}/toy-of-somebody", f"{ROLES}/stranger"}
    assert helms == ["install", "uninstall"]
    assert not installer.installations
    record = installer.policy_record(False)
    assert record["appeared_and_left_alone"] == ["clusterroles stranger"]


def killed(api: FakeApi) -> None:
    del api.objects[f"{PODS}/toy-1"]


def restarted(api: FakeApi) -> None:
    api.objects[f"{PODS}/toy-1"]["status"]["containerStatuses"][0]["restartCount"] = 1


def unready(api: FakeApi) -> None:
    condition = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    api.objects[f"{PODS}/toy-1"]["status"]["conditions"] = [condition]


def without_webhook(api: FakeApi) -> None:
    del api.objects[HOOK]


@pytest.mark.parametrize("befell", [killed, restarted, unready, without_webhook])
def test_a_mesh_that_is_not_as_it_was_installed_is_told_from_one_that_is(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str], befell: Callable[[FakeApi], None]
):
    installer.install(mesh)
    assert installer.broken("toy") == ""
    befell(api)
    as_reviewed(installer.broken("toy"))


def test_an_installation_that_fails_explains_itself_and_leaves_nothing(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str], monkeypatch: pytest.MonkeyPatch
):
    def install(*arguments: object) -> None:
        status = {"name": "patch", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
        hook = pod("toy-system", "hook-1", ready=False, containerStatuses=[status])
        hook["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "hook"}]
        api.add(f"{PODS}/hook-1", hook)
        api.logs["toy-system/hook-1/patch"] = "cannot patch this\n"
        watch = arguments[-1]
        assert callable(watch)
        watch()
        del api.objects[f"{PODS}/hook-1"]  # Helm deletes hooks that fail
        api.add(f"{ROLES}/toy-left")
        raise TestbedError("helm upgrade --install toy: exit 1: timed out waiting for the condition")

    monkeypatch.setattr(helm, "install_release", install)
    with refused(TestbedError) as caught:
        installer.install(mesh)
    assert caught.value.evidence["failed-toy-system-hook-1-patch.log"] == "cannot patch this\n"
    assert api.objects == {}
    assert installer.installed == {}


def test_a_mesh_that_did_not_go_is_remembered(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str], monkeypatch: pytest.MonkeyPatch
):
    installer.install(mesh)
    good = helm.uninstall_release

    def hang(*_: object) -> None:
        raise TestbedError("helm uninstall toy: no end within 330 s")

    monkeypatch.setattr(helm, "uninstall_release", hang)
    with refused(TestbedError):
        installer.uninstall("toy")
    assert (list(installer.installations), installer.installed) == (["toy"], {})
    monkeypatch.setattr(helm, "uninstall_release", good)
    installer.uninstall("toy")
    assert api.objects == {}


def test_a_mesh_beside_it_keeps_its_crds(api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str]):
    installer.install(mesh)
    others = CRD.replace("toy.test", "other.test")
    api.add(others, {"spec": {"group": "other.test"}, "metadata": {"labels": {"meshtrial.dev/owner": "abc123"}}})
    api.objects[others]["metadata"]["labels"]["meshtrial.dev/study"] = "study"
    installer.uninstall("toy")
    assert set(api.objects) == {others}


def test_a_mesh_of_somebody_else_is_used_and_not_touched(api: FakeApi, mesh: Mesh, helms: list[str]):
    installer = MeshInstaller(api, KubernetesOptions(mesh_install="existing"), Applier(api, Owner("study")))
    stand(api)
    installer.install(mesh)
    assert helms == []
    assert not [line for line in api.asked if not line.startswith("GET ")]
    unready(api)
    with refused(TestbedError):
        installer.install(mesh)
    killed(api)
    with refused(TestbedError):
        installer.install(mesh)


def version_of(mesh: Mesh, name: str, **values: object) -> Mesh:
    choice = MeshOverride(f"meshes.toy.versions.{name}", values={"toy": values})
    return replace(mesh, name=f"toy@{name}", declared=ExpectedVersion(name, (name,)), choices=(choice,))


def test_a_version_that_is_not_the_one_that_stands_is_one_line_before_the_study(
    api: FakeApi, mesh: Mesh, helms: list[str]
):
    installer = MeshInstaller(api, KubernetesOptions(mesh_install="existing"), Applier(api, Owner("study")))
    stand(api, {"name": "cp", "image": "r.test/toy:0.2.1"})
    assert installer.problems(version_of(mesh, "0.2")) == []
    as_reviewed(*installer.problems(version_of(mesh, "0.1")))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({}, ["namespace=NAME"]),
        ({"app.kubernetes.io/managed-by": "meshtrial", "meshtrial.dev/owner": "other"}, ["other", "fake"]),
    ],
)
def test_a_mesh_in_somebody_elses_namespace_is_refused_and_stays(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str], labels: dict[str, str], names: list[str]
):
    api.add("/api/v1/namespaces/toy-system", {"metadata": {"labels": labels}})
    api.add(HOOK, {"webhooks": [{"clientConfig": {"service": {"namespace": "toy-system"}}}]})
    stood = set(api.objects)
    with refused(TestbedError, names=["toy-system", *names]):
        installer.install(replace(mesh, namespaces=("toy-first", "toy-system")))
    assert helms == []  # no release of theirs was uninstalled
    assert set(api.objects) == stood
    assert not installer.installations


def test_values_that_a_chart_does_not_have_are_problems_before_the_study(
    installer: MeshInstaller, mesh: Mesh, helms: list[str]
):
    assert installer.problems(mesh) == []
    wrong = replace(mesh, choices=(MeshOverride("meshes.toy", values={"toy": {"loglevel": "debug"}}),))
    as_reviewed(*installer.problems(wrong))
    assert installer.problems(replace(wrong, open_values={"toy": ["loglevel"]})) == []


def test_a_crd_that_is_not_served_as_a_mesh_asks_for_it_is_a_problem_before_the_study(
    api: FakeApi, installer: MeshInstaller, mesh: Mesh, helms: list[str]
):
    asking = replace(mesh, requires=("routes.gw.test/v1alpha2",))
    place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/routes.gw.test"
    as_reviewed(*installer.problems(asking))
    versions = [{"name": "v1", "served": True}, {"name": "v1alpha2", "served": False}]
    crd = api.add(place, {"spec": {"versions": versions}})
    as_reviewed(*installer.problems(asking))
    assert installer.problems(replace(mesh, requires=("routes.gw.test",))) == []
    crd["spec"]["versions"][1]["served"] = True
    assert installer.problems(asking) == []


def test_a_chart_that_cannot_be_had_is_a_problem_before_the_study(
    installer: MeshInstaller, mesh: Mesh, helms: list[str], monkeypatch: pytest.MonkeyPatch
):
    gone = replace(mesh, releases=(replace(mesh.releases[0], path="/nonexistent"),))
    (line,) = installer.problems(gone)
    assert missing(line, ["toy", "/nonexistent", "Helm"]) == []

    def nowhere(options: KubernetesOptions) -> str:
        raise MissingToolError("helm is not on PATH")

    monkeypatch.setattr(helm, "program", nowhere)
    as_reviewed(*installer.problems(mesh))
