import io
from pathlib import Path

import pytest
from unit.kubernetes.fakeapi import FakeApi

from meshtrial import cli
from meshtrial.testbed.kubernetes import cleanup
from meshtrial.testbed.kubernetes.apply import MESH, Owner
from meshtrial.testbed.kubernetes.cleanup import clean_cluster
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.lease import SessionLease
from meshtrial.testbed.kubernetes.options import KubernetesOptions

DEAD, ALIVE = Owner("dead study", "dead01"), Owner("live study", "live01")
SPACES, CRDS = "/api/v1/namespaces", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def space(api: FakeApi, name: str, owner: Owner, mesh: str = "") -> None:
    notes = {MESH: mesh} if mesh else {}
    api.add(f"{SPACES}/{name}", {"metadata": {"labels": dict(owner.labels), "annotations": notes}})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Two sessions, one of which still runs; each has an application, a mesh and what came with it."""
    made = FakeApi()
    for owner, mesh in ((DEAD, "kuma"), (ALIVE, "istio")):
        space(made, f"{mesh}-system", owner, mesh)
        space(made, f"{mesh}-app", owner)
        labels = {"meshtrial.dev/owner": owner.id, "meshtrial.dev/study": owner.labels["meshtrial.dev/study"]}
        made.add(f"{ROLES}/{mesh}-hook", {"metadata": {"labels": labels}})
        group = {"kuma": "kuma.io", "istio": "security.istio.io"}[mesh]
        versions = [{"name": "v0", "served": False}, {"name": "v1", "served": True}]
        spec = {"group": group, "names": {"plural": "meshes"}, "versions": versions}
        made.add(f"{CRDS}/meshes.{group}", {"spec": spec, "metadata": {"labels": labels}})
        made.add(f"/apis/{group}/v1/meshes/ours", {"metadata": {"labels": dict(owner.labels)}})
    made.add("/apis/kuma.io/v1/meshes/theirs")
    made.add(f"{SPACES}/shop")
    session = SessionLease(made, ALIVE, "istio-app")
    session._renew()
    order: list[str] = []
    monkeypatch.setattr(cleanup, "uninstall_release", lambda *args: order.append(f"helm {args[2].name}"))
    delete = made.delete

    def noted(path: str, **more: object) -> bool:
        order.append(path)
        return delete(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(made, "delete", noted)
    made.order = order  # type: ignore[attr-defined]
    return made


def test_what_a_running_study_owns_is_left_alone(api: FakeApi):
    done = clean_cluster(api, KubernetesOptions())
    assert set(done.removed) == {"kuma-system", "kuma-app"}
    assert set(done.remaining) == {"istio-system", "istio-app"}
    (line,) = [line for line in done.lines if "is running" in line]
    assert line.startswith("study live-study is running (owner live01, on host ")
    assert line.endswith("left alone; --force removes it all the same")
    left = {path for path in api.objects if "istio" in path or path.endswith(("theirs", "shop"))}
    assert left == set(api.objects)


def test_a_study_that_is_over_is_cleaned_and_one_by_force_too(api: FakeApi):
    api.now += 3600
    assert clean_cluster(api, KubernetesOptions(), "live study").remaining == ()
    assert not [path for path in api.objects if "istio" in path]
    assert f"{SPACES}/kuma-app" in api.objects


def test_force_takes_all_of_ours_and_nothing_else(api: FakeApi):
    done = clean_cluster(api, KubernetesOptions(), force=True)
    assert done.remaining == ()
    assert set(api.objects) == {"/apis/kuma.io/v1/meshes/theirs", f"{SPACES}/shop"}


def test_applications_go_first_then_what_lies_beside_them_then_the_mesh(api: FakeApi):
    clean_cluster(api, KubernetesOptions())
    assert api.order == [  # type: ignore[attr-defined]
        f"{SPACES}/kuma-app",
        "/apis/kuma.io/v1/meshes/ours",
        "helm kuma",
        f"{SPACES}/kuma-system",
        f"{CRDS}/meshes.kuma.io",
        f"{ROLES}/kuma-hook",
    ]


def test_a_version_is_cleaned_without_the_file_that_declared_it(api: FakeApi):
    api.objects[f"{SPACES}/kuma-system"]["metadata"]["annotations"][MESH] = "kuma@2.13"
    clean_cluster(api, KubernetesOptions())
    assert "helm kuma" in api.order  # type: ignore[attr-defined]
    assert f"{SPACES}/kuma-system" not in api.objects


def test_the_command_reads_the_studies_own_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[KubernetesOptions] = []

    def cluster(kubeconfig: str, context: str, patience_s: float) -> Cluster:
        assert (kubeconfig, context) == ("/from/the/file", "from-the-flag")
        return FakeApi()

    monkeypatch.setattr(cleanup, "Cluster", cluster)
    monkeypatch.setattr(cleanup, "find_meshes", lambda options: seen.append(options) or {})
    file = tmp_path / "cluster.yaml"
    file.write_text("helm: /opt/helm\nkubeconfig: /from/the/file\ncontext: from-the-file\n")
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["clean", "--cluster-file", str(file), "--context", "from-the-flag"], out, err) == 0
    assert seen[0].helm == "/opt/helm"
    assert "nothing of meshtrial's" in out.getvalue()
