from pathlib import Path

import pytest
import yaml
from refused import refused

from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.meshdata import Declared
from meshtrial.testbed.kubernetes.meshread import find_meshes, read_mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

MESHES = find_meshes(KubernetesOptions())


def write(folder: Path, **changed: object) -> Path:
    data = {
        "schema": "meshtrial.mesh/1",
        "name": "tiny",
        "title": "A mesh of a test",
        "version": "1.0.0",
        "namespaces": ["tiny-system"],
        "releases": [
            {"name": "tiny", "chart": "tiny", "repository": "https://charts.test", "namespace": "tiny-system"}
        ],
        "proxy_containers": ["tiny-proxy"],
        "features": {"mtls": {"manifests": ["features/mtls.yaml"], "proofs": ["plaintext-refused"]}},
        "not_toggles": {"jwt": "it has none"},
        "parameters": {"image_tag": {"tiny": ["tag"]}},
    }
    data.update(changed)
    (folder / "features").mkdir(parents=True, exist_ok=True)
    (folder / "mesh.yaml").write_text(yaml.safe_dump(data))
    (folder / "features" / "mtls.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tiny}\n")
    return folder


def test_all_meshes_are_there():
    assert set(MESHES) == {"istio", "istio-ambient", "linkerd", "kuma", "consul", "sidecar"}


@pytest.mark.parametrize("name", sorted(MESHES))
def test_a_mesh_says_what_a_study_needs_of_it(name: str):
    mesh = MESHES[name]
    assert mesh.title
    assert mesh.version
    assert mesh.proofs
    assert mesh.reference or mesh.control_plane
    assert mesh.reference or mesh.namespaces
    for feature in mesh.features.values():
        assert feature.title, f"{name}+{feature.name} has no title"
    if not mesh.reference:
        assert {"proxy_cpu", "image_pull_policy"} <= set(mesh.parameters)


def test_a_mesh_is_added_by_adding_a_folder(tmp_path: Path):
    options = KubernetesOptions(mesh_folders=(str(write(tmp_path / "tiny")),), meshes={"tiny": {"version": "2.0.0"}})
    mesh = find_meshes(options)["tiny"]
    assert mesh.version == "2.0.0"
    assert mesh.releases[0].version == "2.0.0"
    assert [f.name for f in mesh.check(Treatment.parse("tiny+mtls"))] == ["mtls"]


def test_a_build_of_ones_own_is_named_beside_the_version(tmp_path: Path):
    folders = (str(write(tmp_path / "tiny")),)
    assert find_meshes(KubernetesOptions(mesh_folders=folders))["tiny"].called == "1.0.0"
    chosen = KubernetesOptions(mesh_folders=folders, meshes={"tiny": {"build": "own build"}})
    assert find_meshes(chosen)["tiny"].called == "1.0.0 (own build)"


def test_a_version_is_the_mesh_with_its_own_on_top(tmp_path: Path):
    said = {
        "version": "2.0.0",
        "build": "own build",
        "charts": {"tiny": {"path": "/charts/tiny-2"}},
        "parameters": {"image_tag": "two"},
        "versions": {
            "1.30": {"version": "1.30.4", "build": "", "charts": {"tiny": {"path": ""}}},
            "slow": {"values": {"tiny": {"delay": 1}}, "runs": {"tiny-proxy": "sha256:ab"}},
            "tagged": {"parameters": {"image_tag": "three"}},
        },
    }
    options = KubernetesOptions(mesh_folders=(str(write(tmp_path / "tiny")),), meshes={"tiny": said})
    found = find_meshes(options)
    tiny, old, slow, tagged = (found[f"tiny{version}"] for version in ("", "@1.30", "@slow", "@tagged"))
    assert (tiny.name, tiny.called, tiny.declared, tiny.releases[0].path) == (
        *("tiny", "2.0.0 (own build)", None),
        "/charts/tiny-2",
    )
    assert (old.name, old.called, old.releases[0].version, old.releases[0].path) == (
        *("tiny@1.30", "1.30.4", "1.30.4"),
        "",
    )
    # Whoever said last what runs is believed.
    assert old.declared == Declared("1.30", ("1.30.4",))
    assert slow.declared == Declared("slow", ("2.0.0", "two"), {"tiny-proxy": "sha256:ab"})
    assert tagged.declared == Declared("tagged", ("three",))
    assert (slow.called, tagged.called) == ("2.0.0 (own build)", "three (own build)")
    assert [old.chosen, tagged.chosen] == [{"image_tag": "two"}, {"image_tag": "three"}]
    assert old.namespaces == tiny.namespaces
    with refused(UsageError, "treatment tiny@1.30+opa: tiny@1.30 has no feature 'opa'; it has mtls"):
        old.check(Treatment.parse("tiny@1.30+opa"))


def test_without_a_word_a_version_is_what_the_folder_says(tmp_path: Path):
    said = {"versions": {"a": {}}}
    options = KubernetesOptions(mesh_folders=(str(write(tmp_path / "tiny")),), meshes={"tiny": said})
    assert find_meshes(options)["tiny@a"].declared == Declared("a", ("1.0.0",))


def test_a_feature_that_is_shown_by_its_counters_alone_is_proven(tmp_path: Path):
    counter = {"name": "bytes", "pods": "app", "url": "1/metrics", "pattern": "(x)"}
    mesh = read_mesh(write(tmp_path, features={"wide": {"counters": [counter]}}))
    assert mesh.features["wide"].proofs == ()


@pytest.mark.parametrize(
    ("treatment", "words"),
    [
        ("linkerd+mtls", "mtls is not a toggle of linkerd"),
        ("istio-ambient+mtls", "mtls is not a toggle of istio-ambient"),
        ("consul+mtls", "mtls is not a toggle of consul"),
        ("linkerd+jwt", "it has no JWT authentication"),
        ("istio+mlts", "has no feature 'mlts'; it has mtls"),
        ("istio-ambient+jwt", "jwt needs waypoint; write istio-ambient+waypoint+jwt"),
        ("istio+mtls+jwt+jwt-filter", "exclude each other"),
    ],
)
def test_what_cannot_be_toggled_is_said_and_never_faked(treatment: str, words: str):
    parsed = Treatment.parse(treatment)
    with pytest.raises(UsageError) as caught:
        MESHES[parsed.dataplane].check(parsed)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"proxy_container": ["x"]}, "'proxy_container' is not known"),
        ({"proxy_containers": []}, "must name its proxy_containers"),
        ({"features": {"mtls": {"proofs": ["trust me"]}}}, "proof 'trust me' is not known"),
        (
            {"features": {"mtls": {"manifests": ["gone.yaml"], "proofs": ["jwt"]}}},
            "file gone.yaml is not in the folder",
        ),
        ({"features": {"mtls": {}}}, "has no proof"),
        ({"not_toggles": {"mtls": "no"}}, "both a feature and not a toggle"),
        ({"parameters": {"image_tag": {"other": ["tag"]}}}, "release 'other' is not among the releases"),
        ({"protocols": ["http3"]}, "protocol 'http3': allowed are http1, h2, grpc, mixed"),
        ({"app_protocols": {"http3": "x"}}, "app_protocols: 'http3' is not among http1, h2, grpc"),
        (
            {"tells": [{"name": "x", "pods": "nobody", "url": "1/m", "pattern": "(x)"}]},
            "x: pods 'nobody' is not among app,",
        ),
        ({"open_values": {"other": ["x"]}}, "release 'other' is not among the releases"),
        ({"releases": []}, "neither releases (Helm) nor install"),
        ({"schema": "meshtrial.mesh/9"}, "must begin with"),
        ({"title": None, "name": None, "releases": [{"chart": "x"}]}, "name"),
    ],
)
def test_a_wrong_folder_is_refused_with_the_reason(tmp_path: Path, changed: dict, words: str):
    with pytest.raises(UsageError) as caught:
        read_mesh(write(tmp_path, **changed))
    assert words in str(caught.value)
    assert "mesh.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"linkrd": {}}, "'linkrd' is not known"),
        ({"istio": {"tag": "x"}}, "allowed are version"),
        ({"istio": {"charts": "x"}}, "meshes.istio.charts: allowed is a mapping, not 'x'"),
        ({"istio": {"version": 1.30}}, "meshes.istio.version = 1.3: allowed is a text; in quotes, for YAML reads 1.30"),
        ({"istio": {"version": None}}, "meshes.istio.version = None: allowed is a text"),
        ({"istio": {"parameters": {"image_tag": 1.30}}}, "meshes.istio.parameters.image_tag = 1.3: allowed is a text"),
        ({"istio": {"versions": {"x": {"runs": {"istiod": 1.30}}}}}, "versions.x.runs.istiod = 1.3: allowed is a text"),
        ({"istio": {"versions": ["1.30"]}}, "meshes.istio.versions: allowed is a mapping, not ['1.30']"),
        (
            {"istio": {"versions": {1.30: {}}}},
            "meshes.istio.versions: 1.3 is no text to YAML; write the name",
        ),
        ({"istio": {"versions": {"1 30": {}}}}, "meshes.istio.versions: '1 30': allowed are letters, digits and . _ -"),
        ({"istio": {"versions": {"x-aa": {}}}}, "not -aa at the end"),
        ({"istio": {"versions": {"details": {}}}}, "details is what an application is called"),
        ({"istio": {"versions": {"1.30": None}}}, "meshes.istio.versions.1.30: allowed is a mapping"),
        (
            {"istio": {"versions": {"1.30": {"verson": "1"}}}},
            "versions.1.30: 'verson' is not known; allowed are version",
        ),
        ({"istio": {"versions": {"1.30": {"versions": {}}}}}, "meshes.istio.versions.1.30: 'versions' is not known"),
        ({"istio": {"versions": {"1.30": {"charts": {"istoid": {}}}}}}, "versions.1.30: release 'istoid' is not known"),
        ({"istio": {"versions": {"1.30": {"runs": {"discovery": ""}}}}}, "runs: an empty text is in every image"),
        ({"sidecar": {"versions": {"1.30": {}}}}, "sidecar is this project's reference and has no versions"),
        (
            {"istio": {"charts": {"istiod": {"path": "/charts/new"}}, "versions": {"1.30": {"version": "1.30.4"}}}},
            "meshes.istio.versions.1.30: says version 1.30.4, but its chart istiod is /charts/new, as for all; "
            "say charts.istiod.path",
        ),
        ({"istio": {"charts": {"istiodd": {}}}}, "release 'istiodd' is not known"),
        ({"istio": {"parameters": {"hub": "x"}}}, "known are image_hub"),
    ],
)
def test_a_users_own_choice_is_checked_too(choice: dict, words: str):
    with pytest.raises(UsageError) as caught:
        find_meshes(KubernetesOptions(meshes=choice))
    assert words in str(caught.value)
