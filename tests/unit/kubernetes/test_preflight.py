import pytest
from refused import as_reviewed
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.testbed.kubernetes import apps
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import FreeResources, Node
from meshtrial.testbed.kubernetes.preflight import (
    borrowed_problems,
    placement_problems,
    right_problems,
    storage_problems,
)


def node(name: str, labels: dict | None = None, taints: tuple = (), cpu: float = 8) -> Node:
    return Node(name, labels or {}, taints, FreeResources(cpu, 2**34, 110))


def test_one_node_is_not_enough_for_two_roles():
    as_reviewed(*placement_problems(KubernetesOptions(), [node("a")]))
    assert placement_problems(KubernetesOptions(), [node("a"), node("b")]) == []
    assert placement_problems(KubernetesOptions(load_separation="none"), [node("a")]) == []
    pool = KubernetesOptions(load_node_selector={"pool": "x"})
    assert placement_problems(pool, [node("a"), node("b")])[0] == (
        "no node takes the load generators (load_node_selector={'pool': 'x'})"
    )


def test_in_namespaces_that_were_lent_a_study_needs_its_rights_there_alone(monkeypatch: pytest.MonkeyPatch):
    cluster, asked = FakeApi(), set()

    def allowed(verb: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> bool:
        asked.add((verb, resource, namespace))
        return namespace == "lent" or resource in ("nodes", "nodes/metrics")

    monkeypatch.setattr(cluster, "allowed", allowed)
    (line,) = right_problems(cluster, KubernetesOptions(mesh_install="existing"), True, ["lent", "lent-probe"])
    assert "no right to get nodes/stats, list pods in lent-probe, create pods/exec in lent-probe" in line
    assert not {(verb, resource) for verb, resource, _ in asked} & {("create", "namespaces"), ("delete", "namespaces")}
    assert ("list", "pods", "") not in asked
    assert not [right for right in asked if right[1] == "endpointslices"]
    lacking = right_problems(cluster, KubernetesOptions(mesh_install="existing"), True, (), apps.UNUSED_RIGHTS)
    assert "list endpointslices" in lacking[0]


def test_a_claimed_volume_needs_a_class_that_is_there():
    consul = find_meshes(KubernetesOptions())["consul"]
    cluster = FakeApi()
    (line,) = storage_problems(cluster, consul, [])
    assert line == (
        "mesh consul: claims a volume, and this cluster has no default StorageClass; mark one with the annotation "
        "storageclass.kubernetes.io/is-default-class: 'true', or name one in the chart's values"
    )
    cluster.add("/apis/storage.k8s.io/v1/storageclasses/fast")
    assert storage_problems(cluster, consul, [{"server": {"storageClass": "fast"}}]) == []
    (line,) = storage_problems(cluster, consul, [{"server": {"storageClass": "slow"}}])
    assert line == "mesh consul: claims a volume of StorageClass 'slow'; this cluster has fast"
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster.add("/apis/storage.k8s.io/v1/storageclasses/usual", {"metadata": {"annotations": default}})
    assert storage_problems(cluster, consul, [{"server": {"storageClass": ""}}]) == []


def test_deployments_that_stand_at_once_do_not_fit_into_one_namespace_that_was_lent():
    as_reviewed(*borrowed_problems(["trial", "trial-probe"], 3))
    assert borrowed_problems(["trial", "trial-probe"], 1) == borrowed_problems([], 3) == []
