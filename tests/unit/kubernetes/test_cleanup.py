from pathlib import Path

import pytest
from commandline import meshtrial
from refused import refused
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import cleanup
from meshtrial.testbed.kubernetes.apply import MESH, Applier, Owner
from meshtrial.testbed.kubernetes.cleanup import clean_cluster
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.session import Session, running_sessions

DEAD, ALIVE = Owner("dead study", "dead01"), Owner("live study", "live01")
SPACES, CRDS = "/api/v1/namespaces", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def space(api: FakeApi, name: str, owner: Owner, mesh: str = "") -> None:
    notes = {MESH: mesh} if mesh else {}
    api.add(f"{SPACES}/{name}", {"metadata": {"labels": dict(owner.labels), "annotations": notes}})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Two sessions, one still running, each with an application, a mesh and the mesh's own objects."""
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
    Session(Applier(made, ALIVE), KubernetesOptions(), "istio-app").renew()
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
    assert f"{running_sessions(api)[ALIVE.id]}: left alone; --force removes it" in done.lines
    left = {path for path in api.objects if "istio" in path or path.endswith(("theirs", "shop"))}
    assert left == set(api.objects)


def begin(api: FakeApi, owner: Owner, mesh: str) -> None:
    """A starting study: its Lease first, then its mesh, a custom resource, a role and a CRD of its own."""
    space(api, f"{mesh}-probe", owner)
    Session(Applier(api, owner), KubernetesOptions(), f"{mesh}-probe").renew()
    space(api, f"{mesh}-control", owner, mesh)
    labels = {"meshtrial.dev/owner": owner.id, "meshtrial.dev/study": owner.labels["meshtrial.dev/study"]}
    api.add("/apis/kuma.io/v1/meshes/new", {"metadata": {"labels": dict(owner.labels)}})
    api.add(f"{ROLES}/new-hook", {"metadata": {"labels": labels}})
    spec = {"group": "linkerd.io", "names": {"plural": "news"}, "versions": [{"name": "v1", "served": True}]}
    api.add(f"{CRDS}/news.linkerd.io", {"spec": spec, "metadata": {"labels": labels}})


def test_a_study_that_begins_while_another_is_cleaned_up_keeps_all_it_makes(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
):
    new = Owner("new study", "new001")
    delete = api.delete

    def meanwhile(path: str, **more: object) -> bool:
        if path == f"{SPACES}/kuma-app":
            begin(api, new, "linkerd")
        return delete(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "delete", meanwhile)
    clean_cluster(api, KubernetesOptions())
    left = set(api.objects)
    assert {f"{SPACES}/linkerd-probe", f"{SPACES}/linkerd-control", f"{ROLES}/new-hook"} <= left
    assert {"/apis/kuma.io/v1/meshes/new", f"{CRDS}/news.linkerd.io"} <= left
    assert not {f"{SPACES}/kuma-system", f"{CRDS}/meshes.kuma.io", f"{ROLES}/kuma-hook"} & left


def test_crds_that_a_running_study_s_mesh_needs_stay_whoever_left_them(api: FakeApi):
    begin(api, Owner("new study", "new001"), "kuma")
    clean_cluster(api, KubernetesOptions())
    assert f"{CRDS}/meshes.kuma.io" in api.objects
    assert f"{ROLES}/kuma-hook" not in api.objects


def test_a_namespace_whose_lease_may_still_come_is_left_alone_for_a_minute(api: FakeApi):
    starting = Owner("early study", "early1")
    space(api, "early-probe", starting)
    api.objects[f"{SPACES}/early-probe"]["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"  # now, there
    done = clean_cluster(api, KubernetesOptions())
    assert "early-probe" in done.remaining
    why = "study early-study may just be starting (owner early1, since 2027-01-15T08:00:00Z)"
    assert f"{why}: left alone; --force removes it" in done.lines
    api.now += 61
    assert "early-probe" in clean_cluster(api, KubernetesOptions()).removed


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


def test_nothing_on_this_machine_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "studies"))
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(tmp_path / "reports"))
    for name in ("studies/x/1/runs/.incomplete-01-1-none/run.json", "studies/x/1/.lock", "reports/x.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(cleanup, "Cluster", lambda *_: FakeApi())
    assert meshtrial("clean", "--force")[0] == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_reads_the_studies_own_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[KubernetesOptions] = []

    def cluster(kubeconfig: str, context: str, patience_s: float) -> Cluster:
        assert (kubeconfig, context) == ("/from/the/file", "from-the-flag")
        return FakeApi()

    monkeypatch.setattr(cleanup, "Cluster", cluster)
    monkeypatch.setattr(cleanup, "find_meshes", lambda options: seen.append(options) or {})
    file = tmp_path / "cluster.yaml"
    file.write_text("helm: /opt/helm\nkubeconfig: /from/the/file\ncontext: from-the-file\n")
    said = meshtrial("clean", "--cluster-file", file, "--context", "from-the-flag")
    assert said == (0, "nothing of meshtrial's in context fake\n", "")
    assert seen[0].helm == "/opt/helm"


# --- cluster-wide -----------------------------------------------------------------------------------------------------

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
MUTATING = cleanup.WEBHOOKS[0]
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
OWNER = Owner("study", "abc123")
KUMA = Mesh(
    "kuma",
    "Kuma",
    "2",
    Path("/nowhere"),
    namespaces=("kuma-system",),
    crd_groups=("kuma.io",),
    releases=(Release("kuma", namespace="kuma-system"),),
)


def helms(namespace: str) -> dict:
    return {"metadata": {"annotations": {"meta.helm.sh/release-namespace": namespace}}}


@pytest.mark.parametrize(
    ("path", "body", "ours"),
    [
        (f"{ROLES}/kuma-control-plane", {}, True),
        (f"{ROLES}/kumara", {}, False),
        (f"{ROLES}/reader", {"metadata": {"labels": {"app.kubernetes.io/instance": "kuma"}}}, True),
        (f"{ROLES}/reader", {"metadata": {"labels": {"kuma.io/zone": "a"}}}, True),
        (f"{ROLES}/reader", {"metadata": {"labels": {"notkuma.io/zone": "a"}}}, False),
        (f"{ROLES}/any", helms("kuma-system"), True),
        # Helm's own word that it is of another installation counts more than a name.
        (f"{ROLES}/kuma-control-plane", helms("shop"), False),
        (f"{BINDINGS}/any", {"subjects": [{"kind": "ServiceAccount", "namespace": "kuma-system"}]}, True),
        (f"{BINDINGS}/any", {"subjects": [{"kind": "Group", "name": "people"}]}, False),
        (f"{MUTATING}/any", {"webhooks": [{"clientConfig": {"service": {"namespace": "kuma-system"}}}]}, True),
        (f"{MUTATING}/any", {"webhooks": [{"clientConfig": {"url": "https://x"}}]}, False),
        (f"{CLASSES}/any", {"spec": {"controllerName": "gateways.kuma.io/controller"}}, True),
        (f"{CLASSES}/any", {"spec": {"controllerName": "istio.io/gateway-controller"}}, False),
    ],
)
def test_only_an_objects_own_words_tie_it_to_a_mesh(path: str, body: dict, ours: bool):
    assert cleanup.belongs_to(path, FakeApi().add(path, body), KUMA) is ours


def test_what_helm_does_not_remove_is_labelled_for_a_later_cleaning():
    api = FakeApi()
    before = cleanup.cluster_objects(api)
    api.add(f"{ROLES}/kuma-hook")
    api.add(f"{ROLES}/kuma-cp", helms("kuma-system"))
    api.add(f"{ROLES}/stranger")
    cleanup.label_owned(api, KUMA, OWNER, before)
    labelled = {path for path, item in api.objects.items() if item["metadata"]["labels"]}
    assert labelled == {f"{ROLES}/kuma-hook"}
    assert cleanup.remove_owned(api, "meshtrial.dev/owner", protected=lambda: {"abc123"}) == []
    assert f"{ROLES}/kuma-hook" in api.objects
    assert cleanup.remove_owned(api, "meshtrial.dev/owner") == ["clusterroles kuma-hook removed"]
    assert set(api.objects) == {f"{ROLES}/kuma-cp", f"{ROLES}/stranger"}


def test_what_cannot_be_seen_before_a_mesh_comes_is_not_taken_for_its_own():
    api = FakeApi()
    api.add(f"{ROLES}/kuma-of-somebody", {"metadata": {"labels": {"meshtrial.dev/owner": "gone"}}})
    api.add(f"{MUTATING}/kuma-hook", {"metadata": {"labels": {"meshtrial.dev/owner": "gone"}}})
    api.refused = {"clusterroles"}
    with refused(TestbedError):
        cleanup.cluster_objects(api)
    # Cleaning recognises objects by our own label, and removes those that it may remove.
    gone = ["mutatingwebhookconfigurations kuma-hook removed"]
    assert cleanup.remove_owned(api, "meshtrial.dev/owner") == gone
    assert set(api.objects) == {f"{ROLES}/kuma-of-somebody"}
