import pytest

from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.freshness import Blocks
from meshtrial.testbed.kubernetes.issuer import issuer_chain
from meshtrial.testbed.kubernetes.meshes import _Values, merged, put
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_missing_helm_says_where_to_get_it():
    with pytest.raises(MissingToolError, match=r"helm\.sh/docs"):
        helm.program(KubernetesOptions(helm="helm-that-is-not-there"))


def test_a_program_that_fails_says_its_last_words():
    with pytest.raises(TestbedError, match=r"exit 3: .*no such chart"):
        helm.run(["sh", "-c", "echo no such chart >&2; exit 3"], 10)
    with pytest.raises(TestbedError, match=r"no end within 0\.2 s"):
        helm.run(["sleep", "30"], 0.2)


def test_values_follow_the_meshs_own_paths():
    choice = {
        "parameters": {"image_hub": "r.test", "node_selector": {"pool": "mesh"}},
        "values": {"istiod": {"pilot": 1}},
    }
    options = KubernetesOptions(meshes={"istio": choice}, proxy_cpu="1")
    mesh = find_meshes(options)["istio"]
    values = _Values(options, mesh).of(mesh.releases[1])
    assert values["global"]["hub"] == "r.test"
    assert values["global"]["proxy"]["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert values["nodeSelector"] == {"pool": "mesh"}
    assert values["pilot"] == 1
    assert _Values(options, mesh).of(mesh.releases[0]) == {}


def test_linkerd_gets_an_identity_of_its_own():
    mesh = find_meshes(KubernetesOptions())["linkerd"]
    values = _Values(KubernetesOptions(), mesh).of(mesh.releases[1])
    assert values["identityTrustAnchorsPEM"].startswith("-----BEGIN CERTIFICATE")
    assert "EC PRIVATE KEY" in values["identity"]["issuer"]["tls"]["keyPEM"]
    assert issuer_chain()["ca_pem"] != issuer_chain()["ca_pem"]


def test_values_of_a_file_must_be_a_mapping():
    options = KubernetesOptions(meshes={"istio": {"values": {"istiod": "/nonexistent.yaml"}}})
    mesh = find_meshes(options)["istio"]
    with pytest.raises(UsageError, match="nonexistent"):
        _Values(options, mesh).of(mesh.releases[1])


def test_merge_is_helms():
    values: dict = {}
    put(values, "a.b.c", 1)
    assert merged(values, {"a": {"b": {"d": 2}}, "e": [1]}) == {"a": {"b": {"c": 1, "d": 2}}, "e": [1]}
    assert merged({"a": {"b": 1}}, {"a": 2}) == {"a": 2}


def test_blocks_begin_with_another_load_or_a_treatment_seen_already():
    blocks = Blocks()
    seen = [("10rps", "none"), ("10rps", "istio"), ("10rps", "none"), ("20rps", "istio"), ("20rps", "none")]
    assert [blocks.enter(*run) for run in seen] == [True, False, True, True, False]
