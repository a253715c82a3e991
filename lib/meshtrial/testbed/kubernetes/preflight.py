"""What a study needs of a cluster, said before it starts: rights, nodes, room, programs, names that are free."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshtrial.design.study import Study
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import waypoints
from meshtrial.testbed.kubernetes.apply import CRDS, Applier, verdict
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.manifests import containers, template
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import PART, is_ready, label
from meshtrial.testbed.kubernetes.quantities import cpu_millis, memory
from meshtrial.testbed.kubernetes.values import Values
from meshtrial.testbed.kubernetes.workload import Rendered

# The published 600-endpoint study: 20 000 requests a second over three tiers took more than 50 nodes of 8 cores.
CORES_PER_TIERED_RPS = 400 / 20_000
RIGHTS = (
    ("create", "namespaces", ""),
    ("delete", "namespaces", ""),
    ("list", "nodes", ""),
    ("list", "pods", ""),
    ("create", "pods/exec", ""),
    ("get", "pods/log", ""),
    ("patch", "deployments", "apps"),
    ("patch", "services", ""),
    ("patch", "configmaps", ""),
    ("patch", "serviceaccounts", ""),
    ("create", "leases", "coordination.k8s.io"),
    ("patch", "leases", "coordination.k8s.io"),
)
_IPV4 = re.compile(r"\b0\.0\.0\.0\b(?!/)")
# Of kubelets; nodes/proxy, where it was given, is another way to the same numbers.
METRICS_RIGHTS = (("get", "nodes/metrics", ""), ("get", "nodes/stats", ""))
MESH_RIGHTS = (
    ("create", "clusterroles", "rbac.authorization.k8s.io"),
    ("create", "customresourcedefinitions", "apiextensions.k8s.io"),
    ("create", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
)


@dataclass(frozen=True)
class Room:
    """What pods need, or nodes have."""

    cpu: float = 0.0  # cores
    memory_bytes: float = 0.0
    pods: int = 0

    def __add__(self, other: Room) -> Room:
        return Room(self.cpu + other.cpu, self.memory_bytes + other.memory_bytes, self.pods + other.pods)

    def __sub__(self, other: Room) -> Room:
        return Room(self.cpu - other.cpu, self.memory_bytes - other.memory_bytes, self.pods - other.pods)

    def __le__(self, other: Room) -> bool:
        """Whether it fits into the other."""
        return self.cpu <= other.cpu and self.memory_bytes <= other.memory_bytes and self.pods <= other.pods


@dataclass(frozen=True)
class Node:
    """A node that takes pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    room: Room

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
                Room(cpu_millis(str(room["cpu"])) / 1000, memory(str(room["memory"])), int(room.get("pods", 110))),
            )
        )
    return known


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


def right_problems(
    cluster: Cluster,
    options: KubernetesOptions,
    installs: bool,
    lent: Sequence[str] = (),
    further: Sequence[tuple[str, str, str]] = (),
) -> list[str]:
    """Rights that are missing, in one line; in namespaces that were lent those of a study are asked for there alone."""
    of_studies = (*RIGHTS, *further)
    wanted: tuple[tuple[str, str, str], ...] = ()
    wanted += MESH_RIGHTS if installs and options.mesh_install == "managed" else ()
    wanted += () if cluster.allowed("get", "nodes/proxy") else METRICS_RIGHTS
    within = [right for right in of_studies if right[1] not in ("namespaces", "nodes")]
    asked = [(right, "") for right in (*wanted, *(of_studies if not lent else [("list", "nodes", "")]))]
    asked += [(right, name) for name in lent for right in within]
    missing = [
        f"{verb} {resource}" + (f" in {name}" if name else "")
        for (verb, resource, group), name in asked
        if not cluster.allowed(verb, resource, group, name)
    ]
    if not missing:
        return []
    files = "manifests/rbac.yaml" + (" and manifests/rbac-meshes.yaml" if installs else "")
    return [f"{cluster.where()}: no right to {', '.join(missing)}; an administrator applies {files}"]


def placement_problems(options: KubernetesOptions, nodes: Sequence[Node]) -> list[str]:
    """Nodes for the application and, apart from them, for the generators."""
    apps = [n for n in nodes if takes(n, options.app_node_selector, options.app_tolerations)]
    loads = [n for n in nodes if takes(n, options.load_node_selector, options.load_tolerations)]
    problems = []
    if not apps:
        problems.append(f"no node takes the application (app_node_selector={dict(options.app_node_selector)})")
    if not loads:
        problems.append(f"no node takes the load generators (load_node_selector={dict(options.load_node_selector)})")
    together = {n.name for n in apps} | {n.name for n in loads}
    if apps and loads and options.load_separation == "required" and len(together) < 2:
        problems.append(
            "load generators need a node of their own, and there is one node for both; add a node, "
            "or set load_separation=none and know that the generator then disturbs what it measures"
        )
    return problems


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


def free(cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with what their pods have not requested, in place of all that they have."""
    left = {node.name: node for node in nodes}
    # Where pods of others may not be listed, what they requested is not known.
    for pod in cluster.items("/api/v1/pods") if cluster.allowed("list", "pods") else ():
        node = left.get(str(pod["spec"].get("nodeName")))
        if node is not None and pod.get("status", {}).get("phase") in ("Running", "Pending"):
            left[node.name] = replace(node, room=node.room - (_pod_requests(pod["spec"]) + Room(pods=1)))
    return list(left.values())


def room_problems(together: Sequence[Rendered], nodes: Sequence[Node]) -> list[str]:
    """Cores, memory and pods that deployments need that stand at once, against what the nodes have free."""
    app, load = together[0].setup.app, together[0].setup.load
    need, room = Room(), Room()
    for rendered in together:
        need += requested(rendered.objects, rendered.setup.mesh)
    for node in nodes:
        room += node.room
    if app.tiers and load.rps:
        need = replace(need, cpu=max(need.cpu, load.rps * CORES_PER_TIERED_RPS))
    count = f"{len(together)} deployments at once, " if len(together) > 1 else ""
    where = f"{app.name} at {load.label}, {count}{need.pods} pods"
    mend = "take standing=run, lower replicas, or add nodes" if count else "lower rps or replicas, or add nodes"
    problems = []
    if need.cpu > room.cpu:
        nodes8 = -(-need.cpu // 8)
        problems.append(
            f"{where}: needs about {need.cpu:.1f} cores ({nodes8:.0f} nodes of 8), "
            f"{room.cpu:.1f} are free on {len(nodes)} nodes; {mend}"
        )
    if need.memory_bytes > room.memory_bytes:
        gib = 2**30
        problems.append(
            f"{where}: needs {need.memory_bytes / gib:.1f} GiB, {room.memory_bytes / gib:.1f} are free; {mend}"
        )
    if need.pods > room.pods:
        problems.append(f"{where}: there is room for {room.pods} pods more on {len(nodes)} nodes; {mend}")
    return problems


def pull_secret_problems(cluster: Cluster, options: KubernetesOptions) -> list[str]:
    """Secrets to pull with that are not there, are of another kind, or may not be read."""
    problems = []
    for namespace, name in options.pull_secrets:
        what = f"image_pull_secrets: secret {name} in namespace {namespace}"
        if not cluster.allowed("get", "secrets", "", namespace, name):
            problems.append(f"{what}: no right to get it; an administrator gives that (docs/how-to/cluster.md)")
            continue
        try:
            kind = cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").get("type")
        except NotFoundError:
            problems.append(f"{what}: is not there; 'kubectl create secret docker-registry' makes one")
        else:
            if kind not in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
                problems.append(f"{what}: is of type {kind}, with which no image is pulled; make it as docker-registry")
    return problems


def pods_have_ipv6(cluster: Cluster) -> bool:
    """Whether the first address of pods is one of IPv6: told by one that there is, else by what nodes give theirs."""
    pods = cluster.items("/api/v1/pods", limit=100) if cluster.allowed("list", "pods") else []
    told = [str(pod["status"].get("podIP", "")) for pod in pods if not pod["spec"].get("hostNetwork")]
    told += [str(node.get("spec", {}).get("podCIDR", "")) for node in cluster.items("/api/v1/nodes")]
    return ":" in next(filter(None, told), "")


def ipv4_problems(rendered: Sequence[Rendered]) -> list[str]:
    """Of deployments on such pods, what listens on the addresses of IPv4 alone."""
    problems = []
    for one in rendered:
        names = [f"{item['kind']} {item['metadata']['name']}" for item in one.objects if _IPV4.search(json.dumps(item))]
        if names:
            problems.append(
                f"treatment {one.setup.treatment.name}: pods of this cluster have IPv6 addresses, and on IPv4 alone "
                f"(0.0.0.0) listen {', '.join(names)}; leave out what needs them (docs/how-to/cluster.md)"
            )
    return problems


def lent_problems(lent: Sequence[str], at_once: int) -> list[str]:
    """A namespace that was lent is one, and deployments that stand at once need one each."""
    if not lent or at_once < 2:
        return []
    return [f"namespace {lent[0]}: is lent, and {at_once} deployments at once need one each; take standing=run"]


def both_sides(together: Sequence[Rendered]) -> tuple[Room, Room]:
    """What the generators of deployments need that stand at once, and what all else of them needs."""
    load, rest = Room(), Room()
    for rendered in together:
        mesh = rendered.setup.mesh
        generators = [item for item in rendered.objects if label(template(item) or item, PART) == "load"]
        load += requested(generators, mesh)
        rest += requested([item for item in rendered.objects if item not in generators], mesh)
    return load, rest


def requested(objects: Iterable[Json], mesh: Mesh | None) -> Room:
    """What the objects request, with a sidecar's usual tenth of a core and 128 MiB each.

    A waypoint, which its control plane makes, requests what its overlay says.
    """
    total = Room()
    injected = mesh is not None and mesh.architecture == "sidecar" and not mesh.reference
    for item in objects:
        waypoint = waypoints.deployment_in(item)
        if item["kind"] != "Deployment" and waypoint is None:
            continue
        each = _pod_requests({"containers": containers(waypoint or item)}) + Room(pods=1)
        if injected:
            each += Room(0.1, 128 * 2**20)
        for _ in range(int(item["spec"].get("replicas", 1)) if waypoint is None else 1):
            total += each
    return total


def _pod_requests(spec: Json) -> Room:
    room = Room()
    for container in spec.get("containers") or []:
        wanted = (container.get("resources") or {}).get("requests") or {}
        room += Room(cpu_millis(str(wanted.get("cpu", "0"))) / 1000, memory(str(wanted.get("memory", "0"))))
    return room


def mesh_problems(cluster: Cluster, installer: MeshInstaller, study: Study, meshes: Mapping[str, Mesh]) -> list[str]:
    """What stands in the way of each mesh, and CRDs that the features ask for."""
    problems: list[str] = []
    for name in dict.fromkeys(t.versioned for t in study.treatments if t.versioned in meshes):
        problems += installer.problems(meshes[name])
        mesh = meshes[name]
        if mesh.storage and installer.options.mesh_install == "managed":
            values = Values(installer.options, mesh)
            layers = [layer for release in mesh.releases for _, layer in values.layers(release)]
            problems += storage_problems(cluster, mesh, layers)
    wanted = {
        kind
        for treatment in study.treatments
        if treatment.versioned in meshes
        for feature in meshes[treatment.versioned].check(treatment)
        for kind in feature.requires
    }
    for kind in sorted(wanted):
        try:
            cluster.get(f"{CRDS}/{kind}")
        except NotFoundError:
            problems.append(f"the CRD {kind} is not in this cluster; install it (Gateway API: standard channel)")
        except TestbedError as error:
            problems.append(str(error))
    return problems


def storage_problems(cluster: Cluster, mesh: Mesh, values: Iterable[Json]) -> list[str]:
    """A mesh that claims a volume would wait for ever where nothing provides one.

    A ``storageClass`` in the values of its charts is the one that is claimed, else it is the cluster's default.
    """
    classes = cluster.items("/apis/storage.k8s.io/v1/storageclasses")
    default = "storageclass.kubernetes.io/is-default-class"
    there = {item["metadata"]["name"]: (item["metadata"].get("annotations") or {}).get(default) for item in classes}
    named = [name for one in values for name in _storage_classes(one)]
    missing = [name for name in named if name not in there]
    if missing:
        has = ", ".join(there) or "none"
        return [f"mesh {mesh.name}: claims a volume of StorageClass {missing[0]!r}; this cluster has {has}"]
    if named or "true" in there.values():
        return []
    return [
        f"mesh {mesh.name}: claims a volume, and this cluster has no default StorageClass; "
        f"mark one with the annotation {default}: 'true', or name one in the chart's values"
    ]


def _storage_classes(values: Any) -> list[str]:
    if isinstance(values, Mapping):
        own = values.get("storageClass")
        rest = [name for value in values.values() for name in _storage_classes(value)]
        return [*([own] if isinstance(own, str) and own else []), *rest]
    return [name for value in values for name in _storage_classes(value)] if isinstance(values, list) else []


def namespace_problems(applier: Applier, names: Iterable[str]) -> list[str]:
    """Names that somebody else has."""
    verdicts = [verdict(applier.find_namespace(name), applier.owner, applier.cluster.context) for name in names]
    return [line for line in verdicts if line]
