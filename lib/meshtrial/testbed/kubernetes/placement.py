"""On which nodes a block stands: drawn, the same for all of its treatments, and only where there is room for them.

Nodes differ more than meshes on most clusters. Were they the scheduler's choice, run by run, they would be noise inside
of blocks, or follow a treatment. What is drawn stands in the record of every run. Generators and applications each take
as few nodes as have room; the many copies of a scale-out take all nodes but the generators'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.preflight import Node, Room, takes


@dataclass(frozen=True)
class Place:
    """Host names; none leaves that side to the scheduler."""

    load: tuple[str, ...] = ()
    app: tuple[str, ...] = ()


def drawn(
    options: KubernetesOptions, nodes: Sequence[Node], load: Room, app: Room, rng: np.random.Generator
) -> Place | None:
    """Nodes for a block whose generators and applications need so much; None where they do not fit anywhere.

    ``nodes`` have what is free in them as their room.
    """
    order = [nodes[int(i)] for i in rng.permutation(len(nodes))]
    loads = [n for n in order if takes(n, options.load_node_selector, options.load_tolerations)]
    apps = [n for n in order if takes(n, options.app_node_selector, options.app_tolerations)]
    for turn in range(len(loads)):
        generators = _enough((*loads[turn:], *loads[:turn]), load)
        application = _enough([n for n in apps if n not in generators], app)
        if generators and not application and options.load_separation != "required":
            application = generators if generators == _enough([n for n in apps if n in generators], load + app) else ()
        if generators and application:
            return Place(_hosts(generators), _hosts(application))
    return None


def bears(place: Place | None, nodes: Sequence[Node], load: Room, app: Room) -> bool:
    """Whether nodes that were drawn before are there and have room for generators and applications of so much."""
    if place is None:
        return False
    generators, applications = ([n for n in nodes if n.host in hosts] for hosts in (place.load, place.app))
    if len(generators) < len(place.load) or len(applications) < len(place.app):
        return False
    if place.load == place.app:
        return bool(_enough(generators, load + app))
    return bool(_enough(generators, load)) and bool(_enough(applications, app))


def _enough(nodes: Sequence[Node], need: Room) -> tuple[Node, ...]:
    """The first of these nodes that has room, else the first that have it together; none where all of them have not."""
    for node in nodes:
        if need <= node.room:
            return (node,)
    taken: list[Node] = []
    room = Room()
    for node in nodes:
        if min(node.room.cpu, node.room.memory_bytes, node.room.pods) > 0:
            taken.append(node)
            room += node.room
        if need <= room:
            return tuple(taken)
    return ()


def _hosts(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(sorted(node.host for node in nodes))
