"""Rolling restarts: which workloads are patched, and when all pods are replaced."""

import pytest
from refused import refused
from unit.kubernetes.fakeapi import FakeApi, Json

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.deployment import restartable
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

pytestmark = pytest.mark.usefixtures("clock")  # nobody waits for real

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def pod(api: FakeApi, name: str, kind: str = "ReplicaSet", owner: str = "app-77f", ready: bool = True) -> Json:
    body = {"metadata": {"ownerReferences": [{"kind": kind, "name": owner}]}, "status": READY if ready else {}}
    hashed = {"pod-template-hash": owner.rpartition("-")[2]} if kind == "ReplicaSet" else {}
    return api.add(f"/api/v1/namespaces/trial/pods/{name}", body, **hashed)


def test_what_a_pod_belongs_to():
    api = FakeApi()
    assert wait.workload_of(pod(api, "a")) == ("trial", "deployments", "app")
    assert wait.workload_of(pod(api, "b", "DaemonSet", "ztunnel")) == ("trial", "daemonsets", "ztunnel")
    assert wait.workload_of(pod(api, "c", "StatefulSet", "server")) == ("trial", "statefulsets", "server")
    with refused(TestbedError):
        wait.workload_of(api.add("/api/v1/namespaces/trial/pods/lone"))


def test_a_restart_that_does_not_end_says_what_is_missing():
    api, path = FakeApi(), "/apis/apps/v1/namespaces/trial/deployments/app"
    workload = api.add(path)
    with refused(TestbedError):
        wait.restart_pods(api, [pod(api, "app-old")], 0.3)
    assert set(workload["spec"]["template"]["metadata"]["annotations"]) == {"kubectl.kubernetes.io/restartedAt"}


def test_which_parts_of_a_mesh_can_be_restarted():
    meshes = find_meshes(KubernetesOptions.read({}))
    assert restartable(None, "app") == ("app",)
    assert restartable(None, "proxies") == ()
    assert restartable(meshes["istio"], "control-plane") == ("istiod",)
    # Sidecars live in the application's pods.
    assert restartable(meshes["istio"], "proxies") == ()
    assert "ztunnel" in restartable(meshes["istio-ambient"], "proxies")
    assert "waypoint" in restartable(meshes["istio-ambient"], "proxies")
