"""On which nodes a block stands: drawn from those with room, generators and applications apart."""

import numpy as np

from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import Place, drawn
from meshtrial.testbed.kubernetes.preflight import Node, Room

LOAD, APP = Room(0.5, 1e9, 4), Room(2.0, 3e9, 4)
PLAIN = KubernetesOptions()


def node(name: str, cpu: float = 4.0, memory_bytes: float = 8e9, pods: int = 50) -> Node:
    return Node(name, {"kubernetes.io/hostname": name, "pool": name[0]}, (), Room(cpu, memory_bytes, pods))


def places(nodes: list[Node], options: KubernetesOptions = PLAIN, load: Room = LOAD, app: Room = APP) -> set:
    return {drawn(options, nodes, load, app, np.random.default_rng(seed)) for seed in range(30)}


def test_every_fitting_pair_of_nodes_is_drawn_and_one_seed_draws_one():
    both = [node("a"), node("b")]
    assert places(both) == {Place(("a",), ("b",)), Place(("b",), ("a",))}
    (again,) = {drawn(PLAIN, both, LOAD, APP, np.random.default_rng(7)) for _ in range(5)}
    assert again is not None


def test_only_nodes_with_room_are_drawn():
    # b has too few cores for the applications, c no pods left at all.
    assert places([node("a"), node("b", cpu=1.0), node("c", pods=0)]) == {Place(("b",), ("a",))}
    assert places([node("a"), node("b", cpu=0.1)]) == {None}
    assert places([node("a", memory_bytes=2e9), node("b", memory_bytes=2e9)]) == {None}


def test_what_does_not_fit_on_one_node_takes_as_few_as_hold_it():
    found = places([node("a", cpu=1.0), node("b", cpu=1.0), node("c", cpu=1.0)])
    assert {len(place.app) for place in found} == {2}
    assert all(set(place.app).isdisjoint(place.load) for place in found)


def test_pools_and_shared_nodes():
    pools = KubernetesOptions(load_node_selector={"pool": "l"}, app_node_selector={"pool": "a"})
    assert places([node("l1"), node("a1"), node("x1")], pools) == {Place(("l1",), ("a1",))}
    one = [node("a")]
    assert places(one) == {None}
    assert places(one, KubernetesOptions(load_separation="none")) == {Place(("a",), ("a",))}
    # Both together need 2.5 cores.
    assert places([node("a", cpu=2.2)], KubernetesOptions(load_separation="none")) == {None}
