"""The nodes of a cluster, their room, and on which of them a block stands.

Nodes are drawn, the same for all treatments of a block, and only where there is room. Nodes differ more than meshes on
most clusters. Were they the scheduler's choice, run by run, they would be noise inside of blocks, or follow a
treatment. What is drawn stands in the record of every run. Generators and applications each take as few nodes as have
room; the many copies of a scale-out take all nodes but the generators'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshtrial.testbed.kubernetes import waypoints
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import containers, cpu_millis, memory, template
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PART, is_ready, label
from meshtrial.testbed.kubernetes.workload import Rendered


@dataclass(frozen=True)
class FreeResources:
    """What pods need, or nodes have."""

    cpu: float = 0.0  # cores
    memory_bytes: float = 0.0
    pods: int = 0

    def __add__(self, other: FreeResources) -> FreeResources:
        return FreeResources(self.cpu + other.cpu, self.memory_bytes + other.memory_bytes, self.pods + other.pods)

    def __sub__(self, other: FreeResources) -> FreeResources:
        return FreeResources(self.cpu - other.cpu, self.memory_bytes - other.memory_bytes, self.pods - other.pods)

    def __le__(self, other: FreeResources) -> bool:
        """Whether it fits into the other."""
        return self.cpu <= other.cpu and self.memory_bytes <= other.memory_bytes and self.pods <= other.pods


@dataclass(frozen=True)
class Node:
    """A node that takes pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    room: FreeResources

    @property
    def host(self) -> str:
        """What placement rules call it."""
        return str(self.labels.get("kubernetes.io/hostname", self.name))


def nodes(cluster: Cluster) -> list[Node]:
    """Nodes that are Ready and not cordoned."""
    known = []
    for item in cluster.items("/api/v1/nodes"):
        if not is_ready(item) or item["spec"].get("unschedulable"):
            continue
        room = item["status"]["allocatable"]
        known.append(
            Node(
                item["metadata"]["name"],
                item["metadata"].get("labels") or {},
                tuple(item["spec"].get("taints") or ()),
                FreeResources(
                    cpu_millis(str(room["cpu"])) / 1000, memory(str(room["memory"])), int(room.get("pods", 110))
                ),
            )
        )
    return known


def free(cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with what their pods have not requested, in place of all that they have."""
    left = {node.name: node for node in nodes}
    # Where pods of others may not be listed, what they requested is not known.
    for pod in cluster.items("/api/v1/pods") if cluster.allowed("list", "pods") else ():
        node = left.get(str(pod["spec"].get("nodeName")))
        if node is not None and pod.get("status", {}).get("phase") in ("Running", "Pending"):
            left[node.name] = replace(node, room=node.room - (_pod_requests(pod["spec"]) + FreeResources(pods=1)))
    return list(left.values())


def takes(node: Node, selector: Mapping[str, str], tolerations: Sequence[Mapping[str, str]]) -> bool:
    """Whether a pod so placed may land on this node."""
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    hard = [t for t in node.taints if t.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in hard)


def _tolerates(toleration: Mapping[str, str], taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"]) and toleration.get("value", "") == taint.get("value", "")


def both_sides(together: Sequence[Rendered]) -> tuple[FreeResources, FreeResources]:
    """What the generators of deployments need that stand at once, and what all else of them needs."""
    load, rest = FreeResources(), FreeResources()
    for rendered in together:
        mesh = rendered.setup.mesh
        generators = [item for item in rendered.objects if label(template(item) or item, PART) == "load"]
        load += requested(generators, mesh)
        rest += requested([item for item in rendered.objects if item not in generators], mesh)
    return load, rest


def requested(objects: Iterable[Json], mesh: Mesh | None) -> FreeResources:
    """What the objects request, with a sidecar's usual tenth of a core and 128 MiB each.

    A waypoint, which its control plane makes, requests what its overlay says.
    """
    total = FreeResources()
    injected = mesh is not None and mesh.architecture == "sidecar" and not mesh.reference
    for item in objects:
        waypoint = waypoints.deployment_in(item)
        if item["kind"] != "Deployment" and waypoint is None:
            continue
        each = _pod_requests({"containers": containers(waypoint or item)}) + FreeResources(pods=1)
        if injected:
            each += FreeResources(0.1, 128 * 2**20)
        for _ in range(int(item["spec"].get("replicas", 1)) if waypoint is None else 1):
            total += each
    return total


def _pod_requests(spec: Json) -> FreeResources:
    room = FreeResources()
    for container in spec.get("containers") or []:
        wanted = (container.get("resources") or {}).get("requests") or {}
        room += FreeResources(cpu_millis(str(wanted.get("cpu", "0"))) / 1000, memory(str(wanted.get("memory", "0"))))
    return room


def load_hosts(
    options: KubernetesOptions, nodes: Sequence[Node], generators: int, rng: np.random.Generator | None = None
) -> tuple[str, ...]:
    """Hosts for the generators, where they would otherwise spread over every node and leave the application none.

    A third of the nodes, rounded up, drawn where there is something to draw from; empty where the user gave pools,
    wants no separation, or there is room enough.
    """
    if options.load_node_selector or options.load_separation != "required":
        return ()
    fit = [n for n in nodes if takes(n, options.load_node_selector, options.load_tolerations)]
    if generators < 2 or generators < len(fit):
        return ()
    names = sorted(node.host for node in fit)
    chosen = names if rng is None else rng.permutation(names).tolist()
    return tuple(sorted(chosen[: -(-len(names) // 3)]))


@dataclass(frozen=True)
class NodeAssignment:
    """Host names; none leaves that side to the scheduler."""

    load: tuple[str, ...] = ()
    app: tuple[str, ...] = ()


def drawn(
    options: KubernetesOptions, nodes: Sequence[Node], load: FreeResources, app: FreeResources, rng: np.random.Generator
) -> NodeAssignment | None:
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
            return NodeAssignment(_hosts(generators), _hosts(application))
    return None


def bears(place: NodeAssignment | None, nodes: Sequence[Node], load: FreeResources, app: FreeResources) -> bool:
    """Whether nodes that were drawn before are there and have room for generators and applications of so much."""
    if place is None:
        return False
    generators, applications = ([n for n in nodes if n.host in hosts] for hosts in (place.load, place.app))
    if len(generators) < len(place.load) or len(applications) < len(place.app):
        return False
    if place.load == place.app:
        return bool(_enough(generators, load + app))
    return bool(_enough(generators, load)) and bool(_enough(applications, app))


def _enough(nodes: Sequence[Node], need: FreeResources) -> tuple[Node, ...]:
    """The first of these nodes that has room, else the first that have it together; none where all of them have not."""
    for node in nodes:
        if need <= node.room:
            return (node,)
    taken: list[Node] = []
    room = FreeResources()
    for node in nodes:
        if min(node.room.cpu, node.room.memory_bytes, node.room.pods) > 0:
            taken.append(node)
            room += node.room
        if need <= room:
            return tuple(taken)
    return ()


def _hosts(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(sorted(node.host for node in nodes))
