"""What a study needs of a cluster, said before it starts: rights, nodes, room, programs, names that are free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshtrial.design.study import Study
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import waypoints
from meshtrial.testbed.kubernetes.apply import Applier, verdict
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.clusterwide import CRDS
from meshtrial.testbed.kubernetes.manifests import containers
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.pods import is_ready
from meshtrial.testbed.kubernetes.quantities import cpu_millis, memory
from meshtrial.testbed.kubernetes.values import Values
from meshtrial.testbed.kubernetes.workload import Rendered

# The published 600-endpoint study: 20 000 requests a second over three tiers took more than 50 nodes of 8 cores.
CORES_PER_TIERED_RPS = 400 / 20_000
RIGHTS = (
    ("create", "namespaces", ""),
    ("delete", "namespaces", ""),
    ("list", "nodes", ""),
    ("get", "nodes/proxy", ""),
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
MESH_RIGHTS = (
    ("create", "clusterroles", "rbac.authorization.k8s.io"),
    ("create", "customresourcedefinitions", "apiextensions.k8s.io"),
    ("create", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
)


@dataclass(frozen=True)
class Node:
    """A node that takes pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    cpu: float
    memory_bytes: float
    pods: int


def nodes(cluster: Cluster) -> list[Node]:
    """Nodes that are Ready and not cordoned."""
    found = []
    for item in cluster.items("/api/v1/nodes"):
        if not is_ready(item) or item["spec"].get("unschedulable"):
            continue
        room = item["status"]["allocatable"]
        found.append(
            Node(
                item["metadata"]["name"],
                item["metadata"].get("labels") or {},
                tuple(item["spec"].get("taints") or ()),
                cpu_millis(str(room["cpu"])) / 1000,
                memory(str(room["memory"])),
                int(room.get("pods", 110)),
            )
        )
    return found


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


def right_problems(cluster: Cluster, options: KubernetesOptions, installs: bool) -> list[str]:
    """Rights that are missing, in one line."""
    wanted = RIGHTS + (MESH_RIGHTS if installs and options.mesh_install == "managed" else ())
    missing = [f"{verb} {resource}" for verb, resource, group in wanted if not cluster.allowed(verb, resource, group)]
    if not missing:
        return []
    files = "manifests/rbac.yaml" + (" and manifests/rbac-meshes.yaml" if installs else "")
    return [f"{cluster.where()}: no right to {', '.join(missing)}; an administrator applies {files}"]


def placement_problems(options: KubernetesOptions, found: Sequence[Node]) -> list[str]:
    """Nodes for the application and, apart from them, for the generators."""
    apps = [n for n in found if takes(n, options.app_node_selector, options.app_tolerations)]
    loads = [n for n in found if takes(n, options.load_node_selector, options.load_tolerations)]
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


def load_hosts(options: KubernetesOptions, found: Sequence[Node], generators: int) -> tuple[str, ...]:
    """Hosts for the generators, where they would otherwise spread over every node and leave the application none.

    A third of the nodes, rounded up; empty where the user gave pools, wants no separation, or there is room enough.
    """
    if options.load_node_selector or options.load_separation != "required":
        return ()
    fit = [n for n in found if takes(n, options.load_node_selector, options.load_tolerations)]
    if generators < 2 or generators < len(fit):
        return ()
    names = sorted(n.labels.get("kubernetes.io/hostname", n.name) for n in fit)
    return tuple(names[: -(-len(names) // 3)])


def room_problems(cluster: Cluster, rendered: Rendered, found: Sequence[Node]) -> list[str]:
    """Cores, memory and pods that the largest deployment needs, against what the cluster has free."""
    app, load = rendered.setup.app, rendered.setup.load
    need_cpu, need_memory, need_pods = requested(rendered.objects, rendered.setup.mesh)
    used_cpu, used_memory, used_pods = 0.0, 0.0, 0
    names = {node.name for node in found}
    for pod in cluster.items("/api/v1/pods"):
        if pod["spec"].get("nodeName") in names and pod.get("status", {}).get("phase") in ("Running", "Pending"):
            cpu, mem = _pod_requests(pod["spec"])
            used_cpu, used_memory, used_pods = used_cpu + cpu, used_memory + mem, used_pods + 1
    free_cpu = sum(n.cpu for n in found) - used_cpu
    free_memory = sum(n.memory_bytes for n in found) - used_memory
    free_pods = sum(n.pods for n in found) - used_pods
    if app.tiers and load.rps:
        need_cpu = max(need_cpu, load.rps * CORES_PER_TIERED_RPS)
    where = f"{app.name} at {load.label}, {need_pods} pods"
    mend = "lower rps or replicas, or add nodes"
    problems = []
    if need_cpu > free_cpu:
        nodes8 = -(-need_cpu // 8)
        problems.append(
            f"{where}: needs about {need_cpu:.1f} cores ({nodes8:.0f} nodes of 8), "
            f"{free_cpu:.1f} are free on {len(found)} nodes; {mend}"
        )
    if need_memory > free_memory:
        gib = 2**30
        problems.append(f"{where}: needs {need_memory / gib:.1f} GiB, {free_memory / gib:.1f} are free; {mend}")
    if need_pods > free_pods:
        problems.append(f"{where}: there is room for {free_pods} pods more on {len(found)} nodes; {mend}")
    return problems


def requested(objects: Iterable[Json], mesh: Mesh | None) -> tuple[float, float, int]:
    """Cores, bytes and pods that the objects request, with a sidecar's usual tenth of a core and 128 MiB each.

    A waypoint, which its control plane makes, requests what its overlay says.
    """
    cpu, mem, pods = 0.0, 0.0, 0
    injected = mesh is not None and mesh.architecture == "sidecar" and not mesh.reference
    for item in objects:
        waypoint = waypoints.deployment_in(item)
        if item["kind"] != "Deployment" and waypoint is None:
            continue
        count = int(item["spec"].get("replicas", 1)) if waypoint is None else 1
        each_cpu, each_memory = _pod_requests({"containers": containers(waypoint or item)})
        if injected:
            each_cpu, each_memory = each_cpu + 0.1, each_memory + 128 * 2**20
        cpu, mem, pods = cpu + count * each_cpu, mem + count * each_memory, pods + count
    return cpu, mem, pods


def _pod_requests(spec: Json) -> tuple[float, float]:
    cpu, mem = 0.0, 0.0
    for container in spec.get("containers") or []:
        wanted = (container.get("resources") or {}).get("requests") or {}
        cpu += cpu_millis(str(wanted.get("cpu", "0"))) / 1000
        mem += memory(str(wanted.get("memory", "0")))
    return cpu, mem


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
    found = cluster.items("/apis/storage.k8s.io/v1/storageclasses")
    default = "storageclass.kubernetes.io/is-default-class"
    there = {item["metadata"]["name"]: (item["metadata"].get("annotations") or {}).get(default) for item in found}
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
    found = [verdict(applier.find_namespace(name), applier.owner, applier.cluster.context) for name in names]
    return [line for line in found if line]
