from pathlib import Path

import pytest
from refused import refused
from unit.kubernetes.rendering import write_mesh

from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.helm import Values
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, find_meshes, read_mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

MESHES = find_meshes(KubernetesOptions())


def found(folder: Path, **said: object) -> dict[str, Mesh]:
    """Return all meshes, with the tests' mesh and a user's options."""
    return find_meshes(KubernetesOptions(mesh_folders=(str(write_mesh(folder / "tiny")),), meshes={"tiny": said}))


def test_all_meshes_are_there():
    meshes = {name for name, mesh in MESHES.items() if mesh.declared is None}
    assert meshes == {"istio", "istio-ambient", "linkerd", "kuma", "consul", "sidecar"}


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
    mesh = found(tmp_path, version="2.0.0")["tiny"]
    assert mesh.version == "2.0.0"
    assert mesh.releases[0].version == "2.0.0"
    assert [f.name for f in mesh.check(Treatment.parse("tiny+mtls"))] == ["mtls"]


def test_a_build_of_ones_own_is_named_beside_the_version(tmp_path: Path):
    assert found(tmp_path)["tiny"].called == "1.0.0"
    assert found(tmp_path, build="own build")["tiny"].called == "1.0.0 (own build)"


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
    meshes = found(tmp_path, **said)
    tiny, old, slow, tagged = (meshes[f"tiny{version}"] for version in ("", "@1.30", "@slow", "@tagged"))
    assert (tiny.name, tiny.called, tiny.declared, tiny.releases[0].path) == (
        *("tiny", "2.0.0 (own build)", None),
        "/charts/tiny-2",
    )
    assert (old.name, old.called, old.releases[0].version, old.releases[0].path) == (
        *("tiny@1.30", "1.30.4", "1.30.4"),
        "",
    )
    # The last declaration of the running version wins.
    assert old.declared == ExpectedVersion("1.30", ("1.30.4",))
    assert slow.declared == ExpectedVersion("slow", ("2.0.0", "two"), {"tiny-proxy": "sha256:ab"})
    assert tagged.declared == ExpectedVersion("tagged", ("three",))
    assert (slow.called, tagged.called) == ("2.0.0 (own build)", "three (own build)")
    assert [old.chosen, tagged.chosen] == [{"image_tag": "two"}, {"image_tag": "three"}]
    assert old.namespaces == tiny.namespaces
    with refused(UsageError):
        old.check(Treatment.parse("tiny@1.30+opa"))


def test_without_a_word_a_version_is_what_the_folder_says(tmp_path: Path):
    assert found(tmp_path, versions={"a": {}})["tiny@a"].declared == ExpectedVersion("a", ("1.0.0",))


def test_a_folder_has_versions_of_its_own_and_a_user_may_change_them(tmp_path: Path):
    fast = {"values": {"tiny": {"delay": 0}}, "runs": {"delay": "0"}}
    folder = write_mesh(tmp_path, versions={"fast": fast, "b": {}})
    options = KubernetesOptions(mesh_folders=(str(folder),), meshes={"tiny": {"versions": {"b": {"version": "2"}}}})
    meshes = find_meshes(options)
    own, changed = meshes["tiny@fast"], meshes["tiny@b"]
    assert own.declared == ExpectedVersion("fast", ("1.0.0",), {"delay": "0"})
    assert Values(options, own).of(own.releases[0])["delay"] == 0
    assert (changed.version, meshes["tiny"].declared) == ("2", None)


def test_a_feature_that_is_shown_by_its_counters_alone_is_proven(tmp_path: Path):
    counter = {"name": "bytes", "pods": "app", "url": "1/metrics", "pattern": "(x)"}
    mesh = read_mesh(write_mesh(tmp_path, features={"wide": {"counters": [counter]}}))
    assert mesh.features["wide"].proofs == ()


@pytest.mark.parametrize(
    "treatment",
    [
        "linkerd+mtls",
        "istio-ambient+mtls",
        "consul+mtls",
        "linkerd+jwt",
        "istio+mlts",
        "istio-ambient+jwt",
        "istio+mtls+jwt+jwt-filter",
    ],
)
def test_what_cannot_be_toggled_is_said_and_never_faked(treatment: str):
    parsed = Treatment.parse(treatment)
    with refused(UsageError):
        MESHES[parsed.dataplane].check(parsed)


COUNTED = {"name": "x", "pods": "app", "url": "1/m", "pattern": "(x)"}


@pytest.mark.parametrize(
    "changed",
    [
        {"proxy_containers": []},
        {"features": {"mtls": {"manifests": ["gone.yaml"], "proofs": ["jwt"]}}},
        {"features": {"mtls": {}}},
        {"not_toggles": {"mtls": "no"}},
        {"parameters": {"image_tag": {"other": ["tag"]}}},
        {"protocols": ["http3"]},
        {"app_protocols": {"http3": "x"}},
        {"version_probes": [{"name": "x", "pods": "nobody", "url": "1/m", "pattern": "(x)"}]},
        {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": 1}]},
        {"features": {"mtls": {"counters": [{**COUNTED, "percent": 1, "of": "z"}]}}},
        {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": 100, "of": "x"}]},
        {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": 150}]},
        {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": -1}]},
        {"open_values": {"other": ["x"]}},
        {"releases": []},
        {"schema": "meshtrial.mesh/9"},
        {"title": None},
        {"title": None, "name": None, "releases": [{"chart": "x"}]},
        {"features": {"mtls": "on"}},
        {"features": {"mtls": {"proofs": "jwt"}}},
    ],
)
def test_a_wrong_folder_is_refused_with_the_reason(tmp_path: Path, changed: dict):
    with refused(UsageError):
        read_mesh(write_mesh(tmp_path, **changed))


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"proxy_container": ["x"]}, ["'proxy_container'", "proxy_containers"]),
        ({"features": {"mtls": {"proofs": ["trust me"]}}}, ["'trust", "plaintext-refused"]),
    ],
)
def test_a_wrong_name_is_refused_with_those_that_are_known(tmp_path: Path, changed: dict, names: list[str]):
    with refused(UsageError, names=[tmp_path / "mesh.yaml", *names]):
        read_mesh(write_mesh(tmp_path, **changed))


@pytest.mark.parametrize(
    "choice",
    [
        {"tag": "x"},
        {"namespace_labels": "istio.io/rev=x"},
        {"namespace_labels": {"istio.io/rev": 1.29}},
        {"namespace_labels": {"istio.io/rev": "not a value"}},
        {"namespace_labels": {"/rev": "x"}},
        {"namespace_labels": {"meshtrial.dev/lent": "true"}},
        {"namespace_labels": {"app.kubernetes.io/managed-by": "us"}},
        {"namespace_labels": {"kubernetes.io/metadata.name": "mine"}},
        {"namespace_labels": {"istio-injection": "enabled", "istio.io/rev": "prod"}},
        {"charts": "x"},
        {"charts": {"istiod": {"path": 1}}},
        {"version": 1.30},
        {"version": None},
        {"parameters": {"image_tag": 1.30}},
        {"charts": {"istiodd": {}}},
        {"parameters": {"hub": "x"}},
        {"versions": ["1.30"]},
        {
            "charts": {"istiod": {"path": "/charts/new"}},
            "versions": {"1.30": {"version": "1.30.4"}},
        },
    ],
)
def test_a_users_own_choice_is_checked_too(choice: dict):
    with refused(UsageError):
        find_meshes(KubernetesOptions(meshes={"istio": choice}))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("x", {"runs": {"istiod": 1.30}}),
        (1.30, {}),
        ("1 30", {}),
        ("x-aa", {}),
        ("details", {}),
        ("1.30", None),
        ("1.30", {"verson": "1"}),
        ("1.30", {"versions": {}}),
        ("1.30", {"charts": {"istoid": {}}}),
        ("1.30", {"runs": {"discovery": ""}}),
    ],
)
def test_what_a_user_says_of_a_version_is_checked_too(version: object, said: object):
    with refused(UsageError):
        find_meshes(KubernetesOptions(meshes={"istio": {"versions": {version: said}}}))


def test_a_choice_is_of_a_mesh_that_is_there_and_can_have_it():
    with refused(UsageError):
        find_meshes(KubernetesOptions(meshes={"linkrd": {}}))
    with refused(UsageError):
        find_meshes(KubernetesOptions(meshes={"sidecar": {"versions": {"1.30": {}}}}))


def test_the_earlier_name_of_version_probes_is_read(tmp_path: Path):
    probe = {"name": "x", "pods": "app", "url": "1/m", "pattern": "(x)"}
    assert read_mesh(write_mesh(tmp_path, tells=[probe])) == read_mesh(write_mesh(tmp_path, version_probes=[probe]))
    with refused(UsageError, names=["'tells'"]):
        read_mesh(write_mesh(tmp_path, tells=[probe], version_probes=[probe]))
