from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi
from unit.kubernetes.rendering import TOKENS

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.base import Block
from meshtrial.testbed.kubernetes import testbed
from meshtrial.testbed.kubernetes.apply import MESH, Applier, Owner
from meshtrial.testbed.kubernetes.meshes import Installation
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PodRef
from meshtrial.testbed.kubernetes.session import Session, running_sessions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed
from meshtrial.testbed.kubernetes.workload import NodeAssignment

SPACES = "/api/v1/namespaces"


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., KubernetesTestbed]]:
    """Make sessions on clusters in memory, which end with the test and not with the process."""
    monkeypatch.setattr(testbed, "Cluster", lambda *_: FakeApi())
    monkeypatch.setattr(testbed.helm, "version", lambda options: "v3")
    monkeypatch.setattr(testbed, "make_tokens", lambda: TOKENS)
    begun: list[KubernetesTestbed] = []

    def begin(owner_id: str = "", study: str = "study", **options: object) -> KubernetesTestbed:
        given = {"kubernetes": {"namespace": "trial", "keep": True, **options}}
        begun.append(KubernetesTestbed(given, owner_id, study))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def test_a_session_is_named_after_its_study(begin: Callable[..., KubernetesTestbed]):
    bed = begin(study="mesh_comparison", namespace="")
    assert (bed.namespace, bed.session.namespace) == ("meshtrial-mesh-comparison", "meshtrial-mesh-comparison-probe")
    assert bed.applier.owner.labels["meshtrial.dev/study"] == "mesh-comparison"


def api_of(bed: KubernetesTestbed) -> FakeApi:
    assert isinstance(bed.cluster, FakeApi)
    return bed.cluster


@pytest.fixture
def bed(begin: Callable[..., KubernetesTestbed]) -> KubernetesTestbed:
    return begin()


def test_the_study_goes_before_the_mesh_that_it_leans_on(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    api = api_of(bed)
    labels = dict(bed.applier.owner.labels)
    for name, phase in (("trial", "Active"), ("trial-probe", "Active"), ("trial-2", "Terminating")):
        api.add(f"{SPACES}/{name}", {"metadata": {"labels": labels}, "status": {"phase": phase}})
    notes = {MESH: "kuma"}
    api.add(f"{SPACES}/kuma-system", {"metadata": {"labels": labels, "annotations": notes}, "status": {}})
    left: list[set[str]] = []
    monkeypatch.setattr(bed.installer, "uninstall", lambda name: left.append(set(api.objects)))
    bed.uninstall("kuma")
    # A namespace that hangs in its deletion is not waited for again.
    assert left == [{f"{SPACES}/{name}" for name in ("trial-probe", "trial-2", "kuma-system")}]


@pytest.fixture
def versioned(begin: Callable[..., KubernetesTestbed]) -> KubernetesTestbed:
    said = {"istio": {"versions": {"1.30": {"version": "1.30.4"}, "1.31": {}}}}
    return begin(meshes=said, meshes_side_by_side=True, mesh_reinstall="once")


@pytest.mark.parametrize(
    "text",
    [
        "istio@1.29",
        "kuma@mine",
        "none@mine",
        "none@1.30",
        "sidecar@old+mtls",
        "isto@1.30",
        "istio@1.30+opb",
        "istio@1.30+scoped",
    ],
)
def test_an_unknown_version_says_what_was_understood(versioned: KubernetesTestbed, text: str):
    with refused(UsageError):
        versioned.mesh_for(Treatment.parse(text))


def test_two_versions_never_stand_side_by_side(versioned: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    removed: list[str] = []
    monkeypatch.setattr(versioned.installer, "uninstall", removed.append)
    for name in ("istio@1.30", "kuma"):
        versioned.installer.installations[name] = Installation(versioned.meshes[name], {}, ready_at=0.0)
    versioned.remove_meshes([versioned.meshes["istio@1.30"]], False)
    assert removed == []
    versioned.remove_meshes([versioned.meshes["istio@1.31"]], False)
    assert removed == ["istio@1.30"]


def test_what_befell_the_mesh_is_said_first(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    error = TestbedError("0 of 1 pods ready", {"failed-x.txt": "all of it"})
    istio = bed.meshes["istio"]
    assert bed.with_mesh(error, istio) is error
    monkeypatch.setattr(bed.installer, "broken", lambda name: "istiod was killed")
    assert bed.with_mesh(error, None) is error
    told = bed.with_mesh(error, istio)
    assert str(told) == "istiod was killed; 0 of 1 pods ready"
    assert told.evidence == error.evidence


def test_a_mesh_that_is_half_there_goes_before_anything_else_runs(
    bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch
):
    removed: list[str] = []
    monkeypatch.setattr(bed.installer, "uninstall", removed.append)
    object.__setattr__(bed.options, "mesh_reinstall", "once")
    for name, ready_at in (("istio", 0.0), ("kuma", None)):
        bed.installer.installations[name] = Installation(bed.meshes[name], {}, ready_at=ready_at)
    bed.remove_meshes([], True)
    assert removed == ["kuma"]


def test_a_broken_mesh_is_removed_before_it_is_used_again(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    removed: list[str] = []
    monkeypatch.setattr(bed.installer, "uninstall", removed.append)
    istio = bed.meshes["istio"]
    assert (bed.remove_broken(istio), removed) == ("", [])
    monkeypatch.setattr(bed.installer, "broken", lambda name: "istiod was killed")
    assert (bed.remove_broken(istio), removed) == ("istiod was killed", ["istio"])


def left_over(api: FakeApi, owner: Owner) -> None:
    labels = dict(owner.labels)
    for name in ("trial", "trial-probe"):
        api.add(f"{SPACES}/{name}", {"metadata": {"labels": labels}, "status": {"phase": "Active"}})
    Session(Applier(api, owner), KubernetesOptions(), "trial-probe").renew()


@pytest.fixture
def going_on(begin: Callable[..., KubernetesTestbed]) -> KubernetesTestbed:
    return begin("0a1b2c3d")


def test_a_session_that_lives_is_waited_for_and_left_alone(going_on: KubernetesTestbed, make_study, clock: Clock):
    api = api_of(going_on)
    asked = make_study(name="mesh_comparison")
    left_over(api, Owner(asked.name, "0a1b2c3d"))
    began, before = clock.now, set(api.objects)
    assert len(running_sessions(api)) == 1
    with refused(TestbedError):
        going_on.recover(asked, print)
    assert clock.now - began > 60  # longer than a Lease that nobody renews
    assert set(api.objects) == before


@pytest.mark.parametrize(
    ("asked", "groups"),
    [
        # Feature treatments share their mesh's control plane; only the user allows two meshes at once.
        ("none none-aa istio istio+mtls istio+mtls+jwt sidecar+mtls", [6]),
        ("none istio+mtls linkerd none-aa istio+mtls+opa", [4, 1]),
        ("istio istio-ambient", [1, 1]),
        # istiod finds neither of two providers with one name: one policy server and one collector at a time.
        ("none istio+mtls+opa istio+mtls+jwt istio+opa istio+observability istio-aa+observability", [4, 2]),
        ("istio+observability istio+tracing istio+tracing-1pct istio+access-log istio+metrics istio+opa", [4, 1, 1]),
        ("kuma+observability kuma+tracing kuma+tracing-1pct kuma+metrics", [4]),
        # Kuma has one Mesh for all, with mutual TLS or without; Consul joins services of one name.
        ("none kuma kuma+mtls kuma-aa kuma+mtls+jwt", [3, 2]),
        ("none consul+l7 consul+l7-aa", [2, 1]),
    ],
)
def test_what_may_stand_at_once(bed: KubernetesTestbed, asked: str, groups: list[int]):
    treatments = [Treatment.parse(text) for text in asked.replace("consul+l7-aa", "consul-aa+l7").split()]
    found = bed.together(treatments)
    assert [len(group) for group in found] == groups
    assert sorted(t.name for group in found for t in group) == sorted(t.name for t in treatments)


def test_meshes_side_by_side_stand_at_once_but_for_those_of_one_namespace(versioned: KubernetesTestbed):
    names = ("istio@1.30", "linkerd", "istio@1.31", "none", "istio-ambient")
    found = versioned.together([Treatment.parse(name) for name in names])
    assert [[t.name for t in group] for group in found] == [
        ["istio@1.30", "linkerd", "none"],
        ["istio@1.31"],
        ["istio-ambient"],
    ]


def nodes_of(api: FakeApi, cpu: str, pods: int = 110) -> None:
    for name in ("a", "b"):
        room = {"cpu": cpu, "memory": "16Gi", "pods": pods}
        status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"kubernetes.io/hostname": name}
        api.add(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "spec": {}, "status": status})


def ready(
    bed: KubernetesTestbed,
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
    names: Sequence[str] = ("none", "none-aa", "sidecar"),
    **nodes: Any,
) -> NodeAssignment:
    nodes_of(api_of(bed), **nodes)
    monkeypatch.setattr(bed.session, "probe_pod", lambda: None)
    treatments = [Treatment.parse(text) for text in names]
    bed.make_ready(treatments, FixedRate(100, 4, 1.0), "echo", Block(str(seed), np.random.default_rng(seed)))
    return bed.next.nodes


def test_a_block_has_its_nodes(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    found = {ready(bed, monkeypatch, seed, cpu="4") for seed in range(6)}
    assert found == {NodeAssignment(("a",), ("b",)), NodeAssignment(("b",), ("a",))}


def test_what_follows_in_a_block_or_is_repeated_stands_where_its_first_stood(
    bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch
):
    here, there = NodeAssignment(("a",), ("b",)), NodeAssignment(("b",), ("a",))
    drawn = [here, there, there]
    monkeypatch.setattr(testbed.placement, "choose_nodes", lambda *_: drawn.pop(0))
    assert [ready(bed, monkeypatch, 1, names, cpu="4") for names in (["none"], ["sidecar"], ["none"])] == [here] * 3
    assert ready(bed, monkeypatch, 2, cpu="4") == there
    # If its nodes are full, the block moves to others.
    assert ready(bed, monkeypatch, 1, ["none"], cpu="4") == there
    assert drawn == []


def test_a_repeat_begins_no_block(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    begun: list[bool] = []
    monkeypatch.setattr(bed, "remove_meshes", lambda wanted, new_block: begun.append(new_block))
    for block, name in ((1, "none"), (1, "sidecar"), (1, "none"), (2, "sidecar"), (2, "none"), (2, "none")):
        ready(bed, monkeypatch, block, [name], cpu="4")
        bed.next.wait_cleared()
    assert begun == [True, False, False, True, False, False]


def test_nothing_is_deployed_into_a_namespace_that_remained(bed: KubernetesTestbed):
    mine, other = ({"meshtrial.dev/owner": owner} for owner in (bed.applier.owner.id, "somebody"))
    states = {"trial": (mine, "Active"), "trial-2": (mine, "Terminating"), "trial-3": (other, "Active")}
    for name, (labels, phase) in states.items():
        api_of(bed).add(f"{SPACES}/{name}", {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}})
    assert bed.free_name("trial") == "trial-3"  # where it is said whose it is
    assert bed.free_name("other") == "other"


@pytest.mark.parametrize(("there", "kept"), [("old", True), ("unready", False), ("another", False), ("", False)])
def test_a_probe_that_was_lost_is_made_again_for_the_next_block(
    bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch, there: str, kept: bool
):
    bed.session.probe = PodRef("trial-probe", "probe", "fortio", "old", "a", "10.0.0.1")
    path, ready_now = f"{SPACES}/trial-probe/pods/probe", "False" if there == "unready" else "True"
    if there:
        metadata = {"namespace": "trial-probe", "name": "probe", "uid": "another" if there == "another" else "old"}
        status = {"conditions": [{"type": "Ready", "status": ready_now}]}
        api_of(bed).add(path, {"metadata": metadata, "spec": {}, "status": status})
    assert ready(bed, monkeypatch, cpu="4")
    assert (bed.session.probe is not None) == kept
    assert (path in api_of(bed).objects) == kept


@pytest.mark.parametrize("nodes", [{"cpu": "4", "pods": 2}, {"cpu": "250m"}])
def test_a_block_that_does_not_fit_is_refused(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch, nodes: dict):
    with refused(TestbedError, names=["deployment_mode=sequential", "replicas"]):
        ready(bed, monkeypatch, **nodes)


def test_a_block_that_just_fits_has_its_nodes(bed: KubernetesTestbed, monkeypatch: pytest.MonkeyPatch):
    assert ready(bed, monkeypatch, cpu="4", pods=3)
