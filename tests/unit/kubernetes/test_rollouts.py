"""Rolling restarts: which workloads are patched, and when the pods are really others."""

import pytest
from refused import refused
from unit.kubernetes.fakeapi import FakeApi, Json

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import rollouts
from meshtrial.testbed.kubernetes.deployment import restartable
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

pytestmark = pytest.mark.usefixtures("clock")  # nobody waits for real

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def pod(api: FakeApi, name: str, kind: str = "ReplicaSet", owner: str = "app-77f", ready: bool = True) -> Json:
    body = {"metadata": {"ownerReferences": [{"kind": kind, "name": owner}]}, "status": READY if ready else {}}
    hashed = {"pod-template-hash": owner.rpartition("-")[2]} if kind == "ReplicaSet" else {}
    return api.add(f"/api/v1/namespaces/trial/pods/{name}", body, **hashed)


class Rolling(FakeApi):
    """Replaces the pods of a patched workload, the old ones a few looks later."""

    def __init__(self, replaced: bool = True) -> None:
        super().__init__()
        self.replaced, self.patched, self.looks = replaced, [], 0

    def merge(self, path: str, body: Json) -> None:
        self.patched.append((path, body["spec"]["template"]["metadata"]["annotations"]))
        if self.replaced:
            pod(self, "app-new", owner="app-88a")

    def items(self, path: str, once_s: float | None = None, **query) -> list[Json]:
        self.looks += 1
        if self.looks == 3 and self.replaced:
            del self.objects["/api/v1/namespaces/trial/pods/app-old"]
        return super().items(path, once_s, **query)


def test_what_a_pod_belongs_to():
    api = FakeApi()
    assert rollouts.workload_of(pod(api, "a")) == ("trial", "deployments", "app")
    assert rollouts.workload_of(pod(api, "b", "DaemonSet", "ztunnel")) == ("trial", "daemonsets", "ztunnel")
    assert rollouts.workload_of(pod(api, "c", "StatefulSet", "server")) == ("trial", "statefulsets", "server")
    with refused(TestbedError, "pod lone: belongs to nothing that would replace it"):
        rollouts.workload_of(api.add("/api/v1/namespaces/trial/pods/lone"))


def test_a_restart_ends_when_the_old_pods_are_gone_and_as_many_others_ready():
    api = Rolling()
    old = pod(api, "app-old")
    rollouts.restart(api, [old], 5)
    ((path, annotations),) = api.patched
    assert path == "/apis/apps/v1/namespaces/trial/deployments/app"
    assert set(annotations) == {"kubectl.kubernetes.io/restartedAt"}
    assert api.looks == 3


def test_a_restart_that_does_not_end_says_what_is_missing():
    api = Rolling(replaced=False)
    old = pod(api, "app-old")
    with refused(TestbedError, "deployments app in trial: 0 of 1 new pods ready, 1 old ones left (after 0.3 s)"):
        rollouts.restart(api, [old], 0.3)


def test_which_parts_of_a_mesh_can_be_restarted():
    meshes = find_meshes(KubernetesOptions.read({}))
    assert restartable(None, "app") == ("app",)
    assert restartable(None, "proxies") == ()
    assert restartable(meshes["istio"], "control-plane") == ("istiod",)
    # Sidecars live in the application's pods.
    assert restartable(meshes["istio"], "proxies") == ()
    assert "ztunnel" in restartable(meshes["istio-ambient"], "proxies")
    assert "waypoint" in restartable(meshes["istio-ambient"], "proxies")
