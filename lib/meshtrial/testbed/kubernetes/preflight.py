"""What a study needs of a cluster, said before it starts: rights, nodes, room, programs, names that are free."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshtrial.design.study import Study
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import CRDS, Applier, verdict
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import FreeResources, Node, requested, takes
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


def right_problems(
    cluster: Cluster,
    options: KubernetesOptions,
    installs: bool,
    borrowed: Sequence[str] = (),
    further: Sequence[tuple[str, str, str]] = (),
) -> list[str]:
    """Rights that are missing, in one line; in namespaces that were lent those of a study are asked for there alone."""
    of_studies = (*RIGHTS, *further)
    wanted: tuple[tuple[str, str, str], ...] = ()
    wanted += MESH_RIGHTS if installs and options.mesh_install == "managed" else ()
    wanted += () if cluster.allowed("get", "nodes/proxy") else METRICS_RIGHTS
    within = [right for right in of_studies if right[1] not in ("namespaces", "nodes")]
    asked = [(right, "") for right in (*wanted, *(of_studies if not borrowed else [("list", "nodes", "")]))]
    asked += [(right, name) for name in borrowed for right in within]
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


def capacity_problems(together: Sequence[Rendered], nodes: Sequence[Node]) -> list[str]:
    """Cores, memory and pods that deployments need that stand at once, against what the nodes have free."""
    app, load = together[0].setup.app, together[0].setup.load
    need, room = FreeResources(), FreeResources()
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


def borrowed_problems(borrowed: Sequence[str], at_once: int) -> list[str]:
    """A namespace that was lent is one, and deployments that stand at once need one each."""
    if not borrowed or at_once < 2:
        return []
    return [f"namespace {borrowed[0]}: is lent, and {at_once} deployments at once need one each; take standing=run"]


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
