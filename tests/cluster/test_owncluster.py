"""Whether the tests run on a cluster of the user's own, and what their fixtures then offer."""

from pathlib import Path

import pytest
import yaml
from ground import own_ground
from owncluster import OWN_CLUSTER_FILE, OWN_KUBECONFIG, own_kubeconfig
from testcluster import ClusterError

from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_the_test_cluster_is_the_default(tmp_path: Path) -> None:
    assert own_kubeconfig({}) is None
    assert own_kubeconfig({OWN_KUBECONFIG: "", OWN_CLUSTER_FILE: ""}) is None
    (tmp_path / "config").touch()
    assert own_kubeconfig({OWN_KUBECONFIG: str(tmp_path / "config")}) == tmp_path / "config"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    with pytest.raises(ClusterError, match=rf"{OWN_KUBECONFIG}=.*/nowhere is not a file"):
        own_kubeconfig({OWN_KUBECONFIG: str(tmp_path / "nowhere")})
    with pytest.raises(ClusterError, match=rf"{OWN_CLUSTER_FILE}=.*/nowhere is not a file"):
        own_kubeconfig({OWN_KUBECONFIG: str(tmp_path / "config"), OWN_CLUSTER_FILE: str(tmp_path / "nowhere")})
    with pytest.raises(ClusterError, match="set both, or neither"):
        own_kubeconfig({OWN_CLUSTER_FILE: str(tmp_path / "config")})


def test_options_on_an_own_cluster_are_the_users(tmp_path: Path) -> None:
    kubeconfig, file = tmp_path / "config", tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump({"proxy_cpu": "4", "images": {"counter-api": "me.test/counter-api:1"}}))
    ground = own_ground(kubeconfig, {OWN_CLUSTER_FILE: str(file)})
    assert ground.own
    assert {"istio", "istio-ambient", "linkerd", "kuma", "consul"} <= set(ground.meshes)
    assert "sidecar" not in ground.meshes  # the reference is not a mesh
    read = KubernetesOptions.read(ground.options(namespace="x"))
    assert (read.kubeconfig, read.proxy_cpu, read.namespace) == (str(kubeconfig), "4", "x")
    ground.require("consul")  # a cluster that pulls has every mesh
    ground.require_app("counter-api")
    with pytest.raises(pytest.skip.Exception, match="counter-api: its image counter-api is not here"):
        own_ground(kubeconfig, {}).require_app("counter-api")
    own_ground(kubeconfig, {}).require_app("bookinfo")
    assert KubernetesOptions.read(own_ground(kubeconfig, {}).options()).kubeconfig == str(kubeconfig)
