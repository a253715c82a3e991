"""Nodes and their free resources: a block's nodes are drawn from fitting ones, generators apart from applications."""

import numpy as np
import pytest

from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import (
    FreeResources,
    Node,
    choose_nodes,
    load_hosts,
    requested,
    takes,
)
from meshtrial.testbed.kubernetes.workload import NodeAssignment

LOAD, APP = FreeResources(0.5, 1e9, 4), FreeResources(2.0, 3e9, 4)
PLAIN = KubernetesOptions()


def node(name: str, cpu: float = 4.0, memory_bytes: float = 8e9, pods: int = 50) -> Node:
    return Node(name, {"kubernetes.io/hostname": name, "pool": name[0]}, (), FreeResources(cpu, memory_bytes, pods))


def places(
    nodes: list[Node], options: KubernetesOptions = PLAIN, load: FreeResources = LOAD, app: FreeResources = APP
) -> set:
    return {choose_nodes(options, nodes, load, app, np.random.default_rng(seed)) for seed in range(30)}


def test_every_fitting_pair_of_nodes_is_drawn_and_one_seed_draws_one():
    both = [node("a"), node("b")]
    assert places(both) == {NodeAssignment(("a",), ("b",)), NodeAssignment(("b",), ("a",))}
    (again,) = {choose_nodes(PLAIN, both, LOAD, APP, np.random.default_rng(7)) for _ in range(5)}
    assert again is not None


def test_only_nodes_with_room_are_drawn():
    # b has too few cores for the applications, c no pods left at all.
    assert places([node("a"), node("b", cpu=1.0), node("c", pods=0)]) == {NodeAssignment(("b",), ("a",))}
    assert places([node("a"), node("b", cpu=0.1)]) == {None}
    assert places([node("a", memory_bytes=2e9), node("b", memory_bytes=2e9)]) == {None}


def test_what_does_not_fit_on_one_node_takes_as_few_as_hold_it():
    found = places([node("a", cpu=1.0), node("b", cpu=1.0), node("c", cpu=1.0)])
    assert {len(place.app) for place in found} == {2}
    assert all(set(place.app).isdisjoint(place.load) for place in found)


def test_pools_and_shared_nodes():
    pools = KubernetesOptions(load_node_selector={"pool": "l"}, app_node_selector={"pool": "a"})
    assert places([node("l1"), node("a1"), node("x1")], pools) == {NodeAssignment(("l1",), ("a1",))}
    one = [node("a")]
    assert places(one) == {None}
    assert places(one, KubernetesOptions(load_separation="none")) == {NodeAssignment(("a",), ("a",))}
    # Both together need 2.5 cores.
    assert places([node("a", cpu=2.2)], KubernetesOptions(load_separation="none")) == {None}


def labelled(name: str, labels: dict, taints: tuple) -> Node:
    return Node(name, labels, taints, FreeResources())


def test_selectors_and_taints():
    tainted = labelled("b", {"pool": "load"}, ({"key": "dedicated", "value": "load", "effect": "NoSchedule"},))
    assert not takes(tainted, {}, ())
    assert takes(tainted, {"pool": "load"}, ({"key": "dedicated", "operator": "Equal", "value": "load"},))
    assert takes(tainted, {}, ({"operator": "Exists"},))
    assert not takes(tainted, {"pool": "apps"}, ({"operator": "Exists"},))
    assert takes(labelled("c", {}, taints=({"key": "soft", "effect": "PreferNoSchedule"},)), {}, ())


def test_requests_are_summed_over_replicas():
    container = {"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}
    item = {
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 4, "template": {"spec": {"containers": [container]}}},
    }
    assert requested([item, {"kind": "Service", "metadata": {"name": "s"}}], None) == FreeResources(
        1.0, 4 * 64 * 2**20, 4
    )


@pytest.mark.parametrize(
    ("nodes", "generators", "hosts"),
    [
        (2, 1, ()),  # one generator leaves the other node to the application
        (2, 2, ("n0",)),  # two would take both
        (9, 4, ()),
        (7, 200, ("n0", "n1", "n2")),
    ],
)
def test_generators_leave_nodes_to_the_application(nodes: int, generators: int, hosts: tuple[str, ...]):
    found = [node(f"n{i}") for i in range(nodes)]
    assert load_hosts(KubernetesOptions(), found, generators) == hosts
    pool = KubernetesOptions(load_node_selector={"pool": "load"})
    assert load_hosts(pool, found, generators) == ()
    assert load_hosts(KubernetesOptions(load_separation="none"), found, generators) == ()
