"""The nodes of a cluster, their free resources, and the nodes of a block.

Nodes are drawn at random, the same for all treatments of a block, and only where there is room. On most clusters, nodes
differ more than meshes. Chosen by the scheduler for each run, they would be noise within blocks, or depend on the
treatment. Every run records its nodes. Generators and applications each take as few nodes as have room; the many copies
of a scale-out take all nodes except the generators'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshtrial.testbed.base import Block
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import containers, cpu_millis, memory, template
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PART, is_ready, label
from meshtrial.testbed.kubernetes.workload import NodeAssignment, Rendered

# The published 600-endpoint study: 20 000 requests per second over three tiers used more than 50 nodes of 8 cores.
CORES_PER_TIERED_RPS = 400 / 20_000


@dataclass(frozen=True)
class FreeResources:
    """The resources that pods need, or that nodes have."""

    cpu: float = 0.0  # cores
    memory_bytes: float = 0.0
    pods: int = 0

    def __add__(self, other: FreeResources) -> FreeResources:
        return FreeResources(self.cpu + other.cpu, self.memory_bytes + other.memory_bytes, self.pods + other.pods)

    def __sub__(self, other: FreeResources) -> FreeResources:
        return FreeResources(self.cpu - other.cpu, self.memory_bytes - other.memory_bytes, self.pods - other.pods)

    def __le__(self, other: FreeResources) -> bool:
        """Return whether these resources fit into the other ones."""
        return self.cpu <= other.cpu and self.memory_bytes <= other.memory_bytes and self.pods <= other.pods


@dataclass(frozen=True)
class Node:
    """A node that accepts pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    room: FreeResources

    @property
    def host(self) -> str:
        """Its name in placement rules."""
        return str(self.labels.get("kubernetes.io/hostname", self.name))


def nodes(cluster: Cluster) -> list[Node]:
    """Return the nodes that are ready and not cordoned."""
    known = []
    for item in cluster.items("/api/v1/nodes"):
        if is_ready(item) and not item["spec"].get("unschedulable"):
            metadata, given = item["metadata"], item["status"]["allocatable"]
            cores, size = cpu_millis(str(given["cpu"])) / 1000, memory(str(given["memory"]))
            room = FreeResources(cores, size, int(given.get("pods", 110)))
            taints = tuple(item["spec"].get("taints") or ())
            known.append(Node(metadata["name"], metadata.get("labels") or {}, taints, room))
    return known


def free(cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with what their pods have not requested as their room."""
    by_name = {node.name: node for node in nodes}
    # An account that cannot list pods of others does not know what they request.
    for pod in cluster.items("/api/v1/pods") if cluster.allowed("list", "pods") else ():
        node = by_name.get(str(pod["spec"].get("nodeName")))
        if node is not None and pod.get("status", {}).get("phase") in ("Running", "Pending"):
            by_name[node.name] = replace(node, room=node.room - (_pod_requests(pod["spec"]) + FreeResources(pods=1)))
    return list(by_name.values())


def takes(node: Node, selector: Mapping[str, str], tolerations: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a pod with this selector and these tolerations may run on the node."""
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
    """Return the resources for the generators of concurrent deployments, and those for all their other pods."""
    load, others = FreeResources(), FreeResources()
    for rendered in together:
        mesh = rendered.setup.mesh
        generators = [item for item in rendered.objects if label(template(item) or item, PART) == "load"]
        load += requested(generators, mesh)
        others += requested([item for item in rendered.objects if item not in generators], mesh)
    return load, others


def requested(objects: Iterable[Json], mesh: Mesh | None) -> FreeResources:
    """Return what the objects request, with a sidecar's usual tenth of a core and 128 MiB each.

    A waypoint, which its control plane creates, requests what its overlay has.
    """
    injected = mesh is not None and mesh.architecture == "sidecar" and not mesh.reference
    overhead = FreeResources(0.1 if injected else 0.0, 128 * 2**20 if injected else 0.0, 1)
    total = FreeResources()
    for item in objects:
        waypoint = manifests.overlay_deployment(item)
        if item["kind"] == "Deployment" or waypoint is not None:
            each = _pod_requests({"containers": containers(waypoint or item)}) + overhead
            total = sum([each] * (1 if waypoint else int(item["spec"].get("replicas", 1))), total)
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
    """Return hosts for the generators, where they would otherwise use every node and leave none to the application.

    They are a third of the nodes, rounded up, drawn where ``rng`` is given. Empty where the user chose pools or no
    separation, or where there is room.
    """
    if options.load_node_selector or options.load_separation != "required":
        return ()
    fitting = [n for n in nodes if takes(n, options.load_node_selector, options.load_tolerations)]
    if generators < 2 or generators < len(fitting):
        return ()
    names = sorted(node.host for node in fitting)
    chosen = names if rng is None else rng.permutation(names).tolist()
    return tuple(sorted(chosen[: -(-len(names) // 3)]))


def choose_nodes(
    options: KubernetesOptions, nodes: Sequence[Node], load: FreeResources, app: FreeResources, rng: np.random.Generator
) -> NodeAssignment | None:
    """Return nodes for a block whose generators and applications need this much; None where they do not fit.

    The room of ``nodes`` is what is free.
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


def fits(assignment: NodeAssignment | None, nodes: Sequence[Node], load: FreeResources, app: FreeResources) -> bool:
    """Return whether nodes that were chosen before exist and have room for generators and applications."""
    if assignment is None:
        return False
    generators, applications = ([n for n in nodes if n.host in hosts] for hosts in (assignment.load, assignment.app))
    if len(generators) < len(assignment.load) or len(applications) < len(assignment.app):
        return False
    if assignment.load == assignment.app:
        return bool(_enough(generators, load + app))
    return bool(_enough(generators, load)) and bool(_enough(applications, app))


def _enough(nodes: Sequence[Node], need: FreeResources) -> tuple[Node, ...]:
    """Return the first node with enough room, else the first ones that have it together; none where all lack it."""
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


def capacity_problems(together: Sequence[Rendered], nodes: Sequence[Node]) -> list[str]:
    """Return where concurrent deployments need more cores, memory or pods than the nodes have free."""
    app, load = together[0].setup.app, together[0].setup.load
    need = sum((requested(one.objects, one.setup.mesh) for one in together), FreeResources())
    available = sum((node.room for node in nodes), FreeResources())
    if app.tiers and load.asked_rps:
        need = replace(need, cpu=max(need.cpu, load.asked_rps * CORES_PER_TIERED_RPS))
    count = f"{len(together)} concurrent deployments, " if len(together) > 1 else ""
    where = f"{app.name} at {load.label}, {count}{need.pods} pods"
    fewer = "take deployment_mode=sequential, lower replicas" if count else "lower rps or replicas"
    advice = f"{fewer}, or add nodes"
    problems = []
    if need.cpu > available.cpu:
        nodes8 = -(-need.cpu // 8)
        problems.append(
            f"{where}: needs about {need.cpu:.1f} cores ({nodes8:.0f} nodes of 8), "
            f"{available.cpu:.1f} are free on {len(nodes)} nodes; {advice}"
        )
    if need.memory_bytes > available.memory_bytes:
        gib = 2**30
        problems.append(
            f"{where}: needs {need.memory_bytes / gib:.1f} GiB, {available.memory_bytes / gib:.1f} are free; {advice}"
        )
    if need.pods > available.pods:
        problems.append(f"{where}: there is room for {available.pods} more pods on {len(nodes)} nodes; {advice}")
    return problems


class BlockNodes:
    """The nodes of the current block: chosen for its first group, and kept while they have room."""

    def __init__(self, cluster: Cluster, options: KubernetesOptions) -> None:
        self._cluster, self._options = cluster, options
        self._block = ""
        self._assignment: NodeAssignment | None = None

    def begin(self, block: Block) -> bool:
        """Return whether this is another block than that of the last call; it then has no nodes yet."""
        is_new = not block.name or block.name != self._block
        if is_new:
            self._block, self._assignment = block.name, None
        return is_new

    def assign(
        self, rendered: Sequence[Rendered], block: Block, spare: FreeResources
    ) -> tuple[NodeAssignment, list[str]]:
        """Return the nodes of concurrent deployments, and why they do not fit if ``spare`` is left on each node."""
        every = nodes(self._cluster)
        available = [replace(node, room=node.room - spare) for node in free(self._cluster, every)]
        problems = capacity_problems(rendered, available)
        if any(one.setup.app.tiers for one in rendered) or block.drawn is None:
            hosts = load_hosts(self._options, every, max(one.load_pods for one in rendered), block.drawn)
            return NodeAssignment(load=hosts), problems
        needs = both_sides(rendered)
        # Later groups and repeats of a block have the nodes of its first group, while there is room.
        if not fits(self._assignment, available, *needs):
            self._assignment = choose_nodes(self._options, available, *needs, block.drawn)
        if self._assignment is None and not problems:
            setup = rendered[0].setup
            problems = [
                f"{setup.app.name} at {setup.load.label}, {len(rendered)} concurrent deployments: no nodes have room "
                "for all of their generators and, separately, for their applications; take "
                "deployment_mode=sequential, or add nodes"
            ]
        return self._assignment or NodeAssignment(), problems
