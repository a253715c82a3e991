from pathlib import Path

import pytest
from refused import refused
from unit.kubernetes.rendering import write_mesh

from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.meshdata import Declared, Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes, read_mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

MESHES = find_meshes(KubernetesOptions())


def found(folder: Path, **said: object) -> dict[str, Mesh]:
    """All meshes, with the one of the tests and what a user says of it."""
    return find_meshes(KubernetesOptions(mesh_folders=(str(write_mesh(folder / "tiny")),), meshes={"tiny": said}))


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
    assert found(tmp_path, versions={"a": {}})["tiny@a"].declared == Declared("a", ("1.0.0",))


def test_a_feature_that_is_shown_by_its_counters_alone_is_proven(tmp_path: Path):
    counter = {"name": "bytes", "pods": "app", "url": "1/metrics", "pattern": "(x)"}
    mesh = read_mesh(write_mesh(tmp_path, features={"wide": {"counters": [counter]}}))
    assert mesh.features["wide"].proofs == ()


@pytest.mark.parametrize(
    ("treatment", "words"),
    [
        (
            "linkerd+mtls",
            "treatment linkerd+mtls: mtls is not a toggle of linkerd: its identity is always on since 2.12; "
            "mutual TLS is part of every Linkerd treatment (write linkerd)",
        ),
        (
            "istio-ambient+mtls",
            "treatment istio-ambient+mtls: mtls is not a toggle of istio-ambient: between enrolled pods "
            "ztunnel always uses mutual TLS; it is part of every ambient treatment (write istio-ambient)",
        ),
        (
            "consul+mtls",
            "treatment consul+mtls: mtls is not a toggle of consul: sidecars always use mutual TLS "
            "(global.tls is the control plane's own); it is part of every Consul treatment (write consul)",
        ),
        ("linkerd+jwt", "treatment linkerd+jwt: jwt is not a toggle of linkerd: it has no JWT authentication"),
        (
            "istio+mlts",
            "treatment istio+mlts: istio has no feature 'mlts'; it has mtls, scoped, client-only, "
            "server-only, observability, access-log, metrics, tracing, tracing-1pct, jwt, jwt-filter, opa",
        ),
        ("istio-ambient+jwt", "treatment istio-ambient+jwt: jwt needs waypoint; write istio-ambient+waypoint+jwt"),
        (
            "istio+mtls+jwt+jwt-filter",
            "treatment istio+mtls+jwt+jwt-filter: jwt and jwt-filter exclude each other; take one",
        ),
    ],
)
def test_what_cannot_be_toggled_is_said_and_never_faked(treatment: str, words: str):
    parsed = Treatment.parse(treatment)
    with refused(UsageError, words):
        MESHES[parsed.dataplane].check(parsed)


COUNTED = {"name": "x", "pods": "app", "url": "1/m", "pattern": "(x)"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"proxy_containers": []}, "a sidecar mesh must name its proxy_containers"),
        (
            {"features": {"mtls": {"manifests": ["gone.yaml"], "proofs": ["jwt"]}}},
            "file gone.yaml is not in the folder",
        ),
        ({"features": {"mtls": {}}}, "feature mtls: has no proof"),
        ({"not_toggles": {"mtls": "no"}}, "mtls: both a feature and not a toggle"),
        ({"parameters": {"image_tag": {"other": ["tag"]}}}, "release 'other' is not among the releases"),
        ({"protocols": ["http3"]}, "protocol 'http3': must be one of http1, h2, grpc, mixed"),
        ({"app_protocols": {"http3": "x"}}, "app_protocols: 'http3' is not among http1, h2, grpc, tcp"),
        (
            {"tells": [{"name": "x", "pods": "nobody", "url": "1/m", "pattern": "(x)"}]},
            "x: pods 'nobody' is not among app, collector, load, waypoint",
        ),
        (
            {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": 1}]},
            "y: must have percent from 0 to 100 of another counter, not 1 of ''",
        ),
        (
            {"features": {"mtls": {"counters": [{**COUNTED, "percent": 1, "of": "z"}]}}},
            "x: must have percent from 0 to 100 of another counter, not 1 of 'z'",
        ),
        (
            {"counters": [COUNTED, {**COUNTED, "name": "y", "percent": 100, "of": "x"}]},
            "y: must have percent from 0 to 100 of another counter, not 100 of 'x'",
        ),
        ({"open_values": {"other": ["x"]}}, "release 'other' is not among the releases"),
        (
            {"releases": []},
            "release 'tiny' is not among the releases; says neither releases (Helm) nor install (commands)",
        ),
        ({"schema": "meshtrial.mesh/9"}, "must begin with 'schema: meshtrial.mesh/1'"),
        ({"title": None}, "it has no title"),
        ({"title": None, "name": None, "releases": [{"chart": "x"}]}, "releases[0] has no name"),
        ({"features": {"mtls": "on"}}, "features.mtls is 'on', not a mapping"),
        ({"features": {"mtls": {"proofs": "jwt"}}}, "features.mtls.proofs is 'jwt', not a list"),
    ],
)
def test_a_wrong_folder_is_refused_with_the_reason(tmp_path: Path, changed: dict, words: str):
    with refused(UsageError, f"{tmp_path}/mesh.yaml: {words}"):
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


NEEDS_TEXT = "must be a text; in quotes, for YAML reads 1.30 as 1.3"
LETTERS = "must be letters, digits and . _ -, not -aa at the end"
KEYS = "version, build, method, charts, values, parameters"
RELEASES = "is not known; known are istio-base, istiod"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"tag": "x"}, f"meshes.istio: 'tag' is not known; must be one of {KEYS}, versions"),
        ({"charts": "x"}, "meshes.istio.charts: must be a mapping, not 'x'"),
        ({"charts": {"istiod": {"path": 1}}}, "meshes.istio.charts.istiod.path is 1, not text"),
        ({"version": 1.30}, f"meshes.istio.version = 1.3: {NEEDS_TEXT}"),
        ({"version": None}, f"meshes.istio.version = None: {NEEDS_TEXT}"),
        ({"parameters": {"image_tag": 1.30}}, f"meshes.istio.parameters.image_tag = 1.3: {NEEDS_TEXT}"),
        ({"charts": {"istiodd": {}}}, f"meshes.istio: release 'istiodd' {RELEASES}"),
        (
            {"parameters": {"hub": "x"}},
            "meshes.istio.parameters.'hub': not known; known are image_hub, image_tag, image_pull_policy, "
            "image_pull_secrets, proxy_cpu, proxy_memory, node_selector",
        ),
        ({"versions": ["1.30"]}, "meshes.istio.versions: must be a mapping, not ['1.30']"),
        (
            {
                "charts": {"istiod": {"path": "/charts/new"}},
                "versions": {"1.30": {"version": "1.30.4"}},
            },
            "meshes.istio.versions.1.30: says version 1.30.4, but its chart istiod is /charts/new, as for "
            "all; say charts.istiod.path: another one, the same if it is meant, or '' for its repository",
        ),
    ],
)
def test_a_users_own_choice_is_checked_too(choice: dict, words: str):
    with refused(UsageError, words):
        find_meshes(KubernetesOptions(meshes={"istio": choice}))


@pytest.mark.parametrize(
    ("version", "said", "words"),
    [
        ("x", {"runs": {"istiod": 1.30}}, f".x.runs.istiod = 1.3: {NEEDS_TEXT}"),
        (1.30, {}, ": 1.3 is no text to YAML; write the name in quotes"),
        ("1 30", {}, f": '1 30': {LETTERS}"),
        ("x-aa", {}, f": 'x-aa': {LETTERS}"),
        ("details", {}, ": details is what an application is called; take another name"),
        ("1.30", None, ".1.30: must be a mapping"),
        ("1.30", {"verson": "1"}, f".1.30: 'verson' is not known; must be one of {KEYS}, runs"),
        ("1.30", {"versions": {}}, f".1.30: 'versions' is not known; must be one of {KEYS}, runs"),
        ("1.30", {"charts": {"istoid": {}}}, f".1.30: release 'istoid' {RELEASES}"),
        ("1.30", {"runs": {"discovery": ""}}, ".1.30.runs: an empty text is in every image; say a tag or a digest"),
    ],
)
def test_what_a_user_says_of_a_version_is_checked_too(version: object, said: object, words: str):
    with refused(UsageError, f"meshes.istio.versions{words}"):
        find_meshes(KubernetesOptions(meshes={"istio": {"versions": {version: said}}}))


def test_a_choice_is_of_a_mesh_that_is_there_and_can_have_it():
    known = ", ".join(sorted(MESHES))
    with refused(UsageError, f"meshes: 'linkrd' is not known; known are {known}"):
        find_meshes(KubernetesOptions(meshes={"linkrd": {}}))
    words = "meshes.sidecar.versions: sidecar is this project's reference and has no versions on a cluster"
    with refused(UsageError, words):
        find_meshes(KubernetesOptions(meshes={"sidecar": {"versions": {"1.30": {}}}}))
