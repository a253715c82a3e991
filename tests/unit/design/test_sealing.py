"""A plan contains a cluster file's options, and no path of the machine on which it was sealed."""

import hashlib
import json
from pathlib import Path

import pytest
from building import built
from refused import refused

from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.sealing import at_hand, local_of, published
from meshtrial.errors import UsageError

GIVEN = {"backend": "kubernetes", "treatments": "none", "blocks": 2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "alice" / "cluster.yaml"
    made.parent.mkdir()
    made.write_text(
        "context: alice@work\nhelm: /home/alice/helm\napp_cpu: 500m\nmanifests: /home/alice/manifests\n"
        "mesh_folders: /home/alice/mine,/home/alice/other\n"
        "meshes: {istio: {values: {istiod: {license: secret}}, charts: {istiod: {path: /home/alice/istiod.tgz}}}}\n"
    )
    return made


def plan_of(**given: object) -> Plan:
    return make_plan(built("ambient_vs_no_mesh", **GIVEN | given))


def test_the_content_of_a_cluster_file_is_sealed_without_paths_and_secrets(file: Path):
    plan = plan_of(cluster_file=str(file), kubeconfig="/home/alice/.kube/config", context="alice@work")
    sealed = plan.to_dict()
    text = json.dumps(sealed)
    assert "alice" not in text
    assert "secret" not in text
    digest = hashlib.sha256(b'{"license": "secret"}').hexdigest()
    assert sealed["study"]["options"]["cluster"] == {
        "app_cpu": "500m",
        "manifests": "manifests",
        "mesh_folders": ["mine", "other"],
        "meshes": {"istio": {"values": {"istiod": f"sha256:{digest}"}, "charts": {"istiod": {"path": "istiod.tgz"}}}},
    }
    parameters = sealed["study"]["options"]["parameters"]
    assert [parameters[name] for name in ("cluster_file", "kubeconfig", "context")] == ["cluster.yaml", "", ""]
    assert Plan.from_dict(sealed).sha256 == plan.sha256
    # The study that runs has the paths of its files.
    assert plan.study.parameters["cluster_file"] == str(file)


def test_a_plan_is_the_same_wherever_its_cluster_file_lies_and_whatever_it_reaches(file: Path, tmp_path: Path):
    other = tmp_path / "cluster.yaml"
    other.write_text(file.read_text().replace("alice@work", "bob@work"))
    assert plan_of(cluster_file=str(file)).sha256 == plan_of(cluster_file=str(other)).sha256
    other.write_text("app_cpu: 250m")
    assert plan_of(cluster_file=str(file)).sha256 != plan_of(cluster_file=str(other)).sha256


def test_of_versions_a_plan_holds_the_last_names():
    plan = plan_of(backend="local", versions="old=/opt/alice/envoy-1.37, slow=slow.yaml")
    assert Plan.from_dict(plan.to_dict()).study.parameters["versions"] == "old=envoy-1.37,slow=slow.yaml"


def test_a_session_that_goes_on_finds_its_files_again(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(file.parent)
    given = {"cluster_file": "cluster.yaml", "context": "here", "versions": "a=x,b=/y", "rps": 5}
    local = local_of(given)
    assert local == {"cluster_file": str(file), "context": "here", "versions": f"a={file.parent / 'x'},b=/y"}
    sealed = Plan.from_dict(plan_of(cluster_file=str(file)).to_dict()).study.options
    assert at_hand(sealed, local)["parameters"]["cluster_file"] == str(file)
    assert at_hand(sealed, local)["cluster"] == sealed["cluster"]


def test_a_cluster_file_that_was_changed_or_is_not_known_ends_a_session_that_would_go_on(file: Path):
    sealed = Plan.from_dict(plan_of(cluster_file=str(file)).to_dict()).study.options
    with refused(UsageError):
        at_hand(sealed, {})
    file.write_text(file.read_text().replace("500m", "1") + "proxy_cpu: 1\n")
    with refused(UsageError):
        at_hand(sealed, {"cluster_file": str(file)})


def test_a_plan_of_before_goes_on_with_the_path_that_it_holds(file: Path):
    before = {"parameters": {"cluster_file": str(file)}}
    assert at_hand(before, {})["parameters"] == before["parameters"]
    assert at_hand({}, {"context": "x"}) == {}


@pytest.mark.parametrize(
    "content", [None, "app_cpu: .nan", "meshes: nowhere.yaml", "a: &a [*a]"], ids=["away", "nan", "other", "endless"]
)
def test_a_cluster_file_that_cannot_be_sealed_is_refused_before_anything_starts(tmp_path: Path, content: str | None):
    file = tmp_path / "cluster.yaml"
    if content is not None:
        file.write_text(content)
    with refused(UsageError, names=["cluster_file"]):
        plan_of(cluster_file=str(file))


def test_what_a_record_tells_of_options_names_no_folder():
    assert published({"kubeconfig": "/a/b", "helm": "helm", "manifests": "", "mesh_folders": (), "keep": False}) == {
        "kubeconfig": "b",
        "helm": "helm",
        "manifests": "",
        "mesh_folders": (),
        "keep": False,
    }
