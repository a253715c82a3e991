from pathlib import Path

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_scalars_of_a_notebook_become_mappings():
    options = KubernetesOptions.read(
        {
            "parameters": {
                "rps": 100,
                "app_node_selector": "pool=apps,disk=ssd",
                "load_tolerations": "dedicated=load:NoSchedule,spot",
                "images": "fortio=registry.test/fortio:1",
                "meshes": "",
            }
        }
    )
    assert options.app_node_selector == {"pool": "apps", "disk": "ssd"}
    assert options.load_tolerations == (
        {"key": "dedicated", "operator": "Equal", "value": "load", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    )
    assert options.images == {"fortio": "registry.test/fortio:1"}
    assert options.meshes == {}


def test_file_is_strict_and_what_is_said_nearer_wins(tmp_path: Path):
    file = tmp_path / "cluster.yaml"
    file.write_text("namespace: from-file\nload_cpu: 2\nmeshes: {istio: {version: 1.2.3}}\n")
    options = KubernetesOptions.read({"cluster_file": str(file), "namespace": "said"})
    assert (options.namespace, options.load_cpu) == ("said", "2")
    assert options.meshes == {"istio": {"version": "1.2.3"}}
    file.write_text("namespce: x\n")
    with refused(UsageError, names=["namespce", "namespace?"]):
        KubernetesOptions.read({"cluster_file": str(file)})
    with refused(UsageError):
        KubernetesOptions.read({"kubernetes": {"app_reinstal": "run"}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mesh_reinstall", "never"),
        ("load_separation", "yes"),
        ("image_pull_policy", "Sometimes"),
        ("keep", "true"),
        ("deploy_timeout_s", 0),
        ("deploy_timeout_s", "1 min"),
        ("images", "fortio"),
        ("namespace", "x" * 41),
    ],
)
def test_bad_values_name_the_option_and_what_is_allowed(name: str, value: object):
    with refused(UsageError):
        KubernetesOptions.read({name: value})


def test_a_request_is_no_more_than_its_limit():
    assert KubernetesOptions(app_cpu="325m", app_cpu_request="150m").app_cpu_request == "150m"
    assert KubernetesOptions(app_cpu_request="2").app_cpu == ""
    for name, limit, request in (("app_cpu", "325m", "1"), ("app_memory", "64Mi", "1Gi")):
        with refused(UsageError):
            KubernetesOptions(**{name: limit, f"{name}_request": request})
    with refused(UsageError):
        KubernetesOptions(app_cpu="1", app_cpu_request="many")


def test_what_a_record_says_of_them_can_be_published():
    values = {"istiod": {"license": "only-for-me"}, "istio-base": "/home/me/values.yaml"}
    meshes = {"istio": {"charts": {"istiod": {"path": "/home/me/charts/istiod"}}, "values": values, "version": "1.31"}}
    meshes["istio"]["versions"] = {"1.30": {"values": {"istiod": {"license": "other"}}}}
    files = {"kubeconfig": "/home/me/config", "helm": "/home/me/helm", "mesh_folders": "/home/me/mesh", "manifests": ""}
    told = KubernetesOptions.read({"kubernetes": {"meshes": meshes, **files}}).echo()
    assert [told[name] for name in files] == ["config", "helm", ["mesh"], ""]
    istio = told["meshes"]["istio"]
    assert (istio["charts"]["istiod"]["path"], istio["version"]) == ("istiod", "1.31")
    # Values can be told apart without being shown.
    digests = [istio["values"]["istiod"], istio["versions"]["1.30"]["values"]["istiod"]]
    assert len({*digests, istio["values"]["istio-base"]}) == 3
    assert all(digest.startswith("sha256:") for digest in digests)
    assert "/home/me" not in str(told)
    assert "only-for-me" not in str(told)


def test_versions_of_local_proxies_are_none_of_a_cluster():
    with refused(UsageError):
        KubernetesOptions.read({"parameters": {"versions": "old=/opt/envoy"}})
