from pathlib import Path

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.manifests import cpu_millis, memory
from meshtrial.testbed.kubernetes.options import KubernetesOptions

FOLDER = KubernetesOptions().folder
FILES = [p for p in sorted(FOLDER.rglob("*.yaml")) if p.name != "mesh.yaml" and not p.name.startswith("values")]


def pod() -> dict:
    return {"containers": [{"name": "echo", "image": "docker.io/fortio/fortio:1.68.1", "args": ["server"]}]}


def deployment() -> dict:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "echo"},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "echo"}}, "spec": pod()}},
    }


def test_no_fortio_in_a_pod_starts_loads_for_whoever_asks_it():
    servers = [
        c for p in FILES for o in manifests.read(p) for c in manifests.containers(o) if "server" in c.get("args", [])
    ]
    assert len(servers) == 6
    # Without fortio's page nobody can start a load there: requests to it are echoed like any other path.
    assert all("-ui-path=" in server["args"] for server in servers)


def test_patches_work_on_a_copy():
    before = deployment()
    after = manifests.patched(
        [before],
        manifests.in_namespace("trial"),
        manifests.labelled({"owner": "me"}),
        manifests.images({"fortio": "registry.test/fortio:2"}, "Never"),
        manifests.replicas(7),
        manifests.limits("500m", "64Mi"),
    )[0]
    assert before == deployment()
    assert after["metadata"] == {"name": "echo", "namespace": "trial", "labels": {"owner": "me"}}
    assert after["spec"]["replicas"] == 7
    template = after["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "echo", "owner": "me"}
    container = template["spec"]["containers"][0]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.test/fortio:2", "Never")
    # A tenth of 500m is 50m.
    assert container["resources"] == {
        "limits": {"cpu": "500m", "memory": "64Mi"},
        "requests": {"cpu": "50m", "memory": "64Mi"},
    }


def test_requests_are_their_own_where_they_are_said():
    limits = manifests.limits("325m", "256Mi")
    (both,) = manifests.patched([deployment()], limits, manifests.requests("150m", ""))
    assert both["spec"]["template"]["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "325m", "memory": "256Mi"},
        "requests": {"cpu": "150m", "memory": "256Mi"},
    }
    assert manifests.patched([deployment()], manifests.requests("", "")) == [deployment()]


def test_an_object_of_another_namespace_stays_there():
    policy = {"kind": "MeshTimeout", "metadata": {"name": "x", "namespace": "kuma-system"}}
    host = {"kind": "X", "metadata": {"name": "x"}, "spec": {"hosts": ["*.default.svc.cluster.local"]}}
    moved = manifests.patched([policy, host], manifests.in_namespace("trial"))
    assert moved[0]["metadata"]["namespace"] == "kuma-system"
    assert moved[1]["spec"]["hosts"] == ["*.trial.svc.cluster.local"]


def test_containers_and_volumes_of_another_pod_join_once():
    source = {
        "kind": "Pod",
        "metadata": {"name": "opa"},
        "spec": {"containers": [{"name": "opa", "image": "opa:1"}], "volumes": [{"name": "policy"}]},
    }
    join = manifests.with_container(source)
    spec = manifests.patched([deployment()], join, join)[0]["spec"]["template"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["echo", "opa"]
    assert spec["volumes"] == [{"name": "policy"}]


def test_a_run_time_value_goes_where_the_file_has_a_place_for_it():
    item = {"kind": "RequestAuthentication", "metadata": {"name": "jwt"}, "spec": {"jwtRules": [{"jwks": "sample"}]}}
    manifests.set_path(item, "spec.jwtRules.0.jwks", "mine")
    assert item["spec"]["jwtRules"] == [{"jwks": "mine"}]
    for path in ("spec.jwtRules.1.jwks", "spec.jwtRules.0.jwk", "spec.rules"):
        with refused(UsageError):
            manifests.set_path(item, path, "x")


@pytest.mark.parametrize(("text", "millis"), [("250m", 250.0), ("2", 2000.0), ("0.5", 500.0)])
def test_cpu_quantities(text: str, millis: float):
    assert cpu_millis(text) == millis


def test_bad_files_are_named(tmp_path: Path):
    bad = tmp_path / "bad.yaml"
    with refused(UsageError):
        manifests.read(bad)
    bad.write_text("a: [")
    with refused(UsageError, names=[bad, "YAML"]):
        manifests.read(bad)
    bad.write_text("kind: Pod\n")
    with refused(UsageError):
        manifests.read(bad)


@pytest.mark.parametrize(
    ("text", "size"), [("128Mi", 2**27), ("1Gi", 2**30), ("2G", 2e9), ("500", 500), ("4096m", 4.096)]
)
def test_memory_quantities(text: str, size: float):
    assert memory(text) == pytest.approx(size)
