import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.charts import Values, merged, put, unknown_values
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_values_follow_the_meshs_own_paths():
    choice = {
        "parameters": {"image_hub": "r.test", "node_selector": {"pool": "mesh"}},
        "values": {"istiod": {"pilot": 1}},
    }
    options = KubernetesOptions(meshes={"istio": choice}, proxy_cpu="1")
    mesh = find_meshes(options)["istio"]
    values = Values(options, mesh).of(mesh.releases[1])
    assert values["global"]["hub"] == "r.test"
    assert values["global"]["proxy"]["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert values["nodeSelector"] == {"pool": "mesh"}
    assert values["pilot"] == 1
    assert Values(options, mesh).of(mesh.releases[0]) == {}


def test_values_of_a_file_must_be_a_mapping():
    options = KubernetesOptions(meshes={"istio": {"values": {"istiod": "/nonexistent.yaml"}}})
    mesh = find_meshes(options)["istio"]
    with refused(UsageError):
        Values(options, mesh).of(mesh.releases[1])


def test_merge_is_helms():
    values: dict = {}
    put(values, "a.b.c", 1)
    assert merged(values, {"a": {"b": {"d": 2}}, "e": [1]}) == {"a": {"b": {"c": 1, "d": 2}}, "e": [1]}
    assert merged({"a": {"b": 1}}, {"a": 2}) == {"a": 2}


def versioned(said: dict, **base: object) -> tuple[KubernetesOptions, Mesh]:
    options = KubernetesOptions(meshes={"istio": {**base, "versions": {"1.30": said}}}, proxy_cpu="1")
    return options, find_meshes(options)["istio@1.30"]


def test_what_a_version_says_comes_after_what_all_of_them_say():
    base = {
        "parameters": {"image_hub": "r.test", "image_tag": "1.31.1", "proxy_cpu": "3"},
        "values": {"istiod": {"global": {"tag": "of-all", "variant": "distroless"}}},
    }
    options, mesh = versioned({"parameters": {"image_tag": "1.30.4", "proxy_cpu": ""}}, **base)
    values = Values(options, mesh).of(mesh.releases[1])["global"]
    # Its parameter overrides the values of all versions, and an empty one restores the default.
    assert (values["hub"], values["tag"], values["variant"]) == ("r.test", "1.30.4", "distroless")
    assert values["proxy"]["resources"]["limits"] == {"memory": "512Mi"}
    options, mesh = versioned({"values": {"istiod": {"global": {"tag": "own"}}}}, **base)
    layers = Values(options, mesh).layers(mesh.releases[1])
    assert layers[-1] == ("meshes.istio.versions.1.30.values.istiod", {"global": {"tag": "own"}})
    plain = find_meshes(options)["istio"]
    assert Values(options, plain).of(plain.releases[1])["global"]["tag"] == "of-all"


def test_a_digest_tells_values_apart_and_not_installations():
    digests = set()
    for level in ("info", "debug", "info"):
        choice = {"values": {"linkerd-control-plane": {"proxy": {"logLevel": level}}}}
        options = KubernetesOptions(meshes={"linkerd": choice})
        mesh = find_meshes(options)["linkerd"]
        # Each has its own keys, which do not change its identity.
        digests.add(Values(options, mesh).digest(mesh.releases[1]))
    assert len(digests) == 2


KNOWN = {
    "hub": "docker.io",
    "proxy": {"logLevel": "info", "resources": {"requests": {"cpu": "100m"}}},
    "proxyInit": {"resources": {"cpu": {"limit": "", "request": ""}}},
    "env": {},
    "extra": None,
    "volumes": [],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "podAnnotations": {"scrape": "true"},
    "meshConfig": {"prometheus": True},
    "global": {"tag": ""},
}


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"hub": "r.test", "proxy": {"logLevel": "warning"}}, []),
        ({"hubb": "r.test"}, ["hubb is not known (did you mean hub?)"]),
        ({"proxy": {"loglevel": "x"}}, ["proxy.loglevel is not known (did you mean proxy.logLevel?)"]),
        ({"tag": "1"}, ["tag is not known (did you mean global.tag?)"]),
        ({"zzz": {"a": 1}}, ["zzz is not known"]),
        # An empty schema accepts anything.
        ({"env": {"A": {"b": 1}}, "extra": {"x": 1}, "volumes": [{"name": "v"}]}, []),
        # Values that Kubernetes reads, not the chart.
        ({"nodeSelector": {"pool": "mesh"}, "podAnnotations": {"mine": "1"}}, []),
        ({"proxy": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}}, []),
        (
            {"proxyInit": {"resources": {"limits": {"cpu": "2"}}}},
            ["proxyInit.resources.limits is not known (did you mean proxyInit.resources.cpu.limit?)"],
        ),
        ({"meshConfig": {"accessLogFile": ""}}, ["meshConfig.accessLogFile is not known"]),
    ],
)
def test_what_a_chart_does_not_have_is_said_with_what_comes_near(values: dict, lines: list[str]):
    assert unknown_values(values, KNOWN) == lines


def test_what_a_chart_takes_without_listing_it_is_free_below():
    values = {
        "meshConfig": {"accessLogFile": ""},
        "other": {"deep": {"a": 1}, "else": 2},
        "global": {"platform": "gke"},
    }
    assert unknown_values(values, KNOWN, ["meshConfig", "other.deep", "global.platform"]) == ["other.else is not known"]
