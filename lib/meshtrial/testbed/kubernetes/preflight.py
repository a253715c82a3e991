"""Check what a study needs of a cluster before it starts: rights, nodes, room, programs, and unused names."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshtrial.design.study import Study
from meshtrial.testbed.kubernetes.apply import Applier, namespace_refusal
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.helm import Values
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshes import MeshInstaller
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import Node, takes
from meshtrial.testbed.kubernetes.workload import Rendered

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
# For kubelets; nodes/proxy gives the same numbers.
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
    """Return one line with the missing rights; in borrowed namespaces, those of a study are checked there only."""
    study_rights = (*RIGHTS, *further)
    cluster_rights: tuple[tuple[str, str, str], ...] = ()
    cluster_rights += MESH_RIGHTS if installs and options.mesh_install == "managed" else ()
    cluster_rights += () if cluster.allowed("get", "nodes/proxy") else METRICS_RIGHTS
    within = [right for right in study_rights if right[1] not in ("namespaces", "nodes")]
    needed = [(right, "") for right in (*cluster_rights, *(study_rights if not borrowed else [("list", "nodes", "")]))]
    needed += [(right, name) for name in borrowed for right in within]
    missing = [
        f"{verb} {resource}" + (f" in {name}" if name else "")
        for (verb, resource, group), name in needed
        if not cluster.allowed(verb, resource, group, name)
    ]
    if not missing:
        return []
    files = "manifests/rbac.yaml" + (" and manifests/rbac-meshes.yaml" if installs else "")
    return [f"{cluster.where()}: no right to {', '.join(missing)}; an administrator applies {files}"]


def placement_problems(options: KubernetesOptions, nodes: Sequence[Node]) -> list[str]:
    """Return problems with the nodes for the application and, separately, for the generators."""
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
            "load generators need nodes of their own, and one node is left for both; add a node, "
            "or set load_separation=none, which disturbs the measurement"
        )
    return problems


def pull_secret_problems(cluster: Cluster, options: KubernetesOptions) -> list[str]:
    """Return problems of pull secrets: missing, of another type, or not readable."""
    problems = []
    for namespace, name in options.pull_secrets:
        label = f"image_pull_secrets: secret {name} in namespace {namespace}"
        if not cluster.allowed("get", "secrets", "", namespace, name):
            problems.append(
                f"{label}: this account has no right to get it; an administrator grants it (docs/how-to/cluster.md)"
            )
            continue
        try:
            kind = cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").get("type")
        except NotFoundError:
            problems.append(f"{label}: does not exist; 'kubectl create secret docker-registry' makes one")
        else:
            if kind not in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
                problems.append(
                    f"{label}: is of type {kind}, which nodes do not pull with; create it as docker-registry"
                )
    return problems


def pods_have_ipv6(cluster: Cluster) -> bool:
    """Return whether pods have IPv6 addresses first, by an existing pod, else by the nodes' ranges."""
    pods = cluster.items("/api/v1/pods", limit=100) if cluster.allowed("list", "pods") else []
    addresses = [str(pod["status"].get("podIP", "")) for pod in pods if not pod["spec"].get("hostNetwork")]
    addresses += [str(node.get("spec", {}).get("podCIDR", "")) for node in cluster.items("/api/v1/nodes")]
    return ":" in next(filter(None, addresses), "")


def ipv4_problems(rendered: Sequence[Rendered]) -> list[str]:
    """Return which objects of deployments on such pods listen on IPv4 addresses only."""
    problems = []
    for one in rendered:
        names = [f"{item['kind']} {item['metadata']['name']}" for item in one.objects if _IPV4.search(json.dumps(item))]
        if names:
            problems.append(
                f"treatment {one.setup.treatment.name}: pods of this cluster have IPv6 addresses, and "
                f"{', '.join(names)} listen on IPv4 only (0.0.0.0); leave out what needs them (docs/how-to/cluster.md)"
            )
    return problems


def borrowed_problems(borrowed: Sequence[str], at_once: int) -> list[str]:
    """Return the problem of one borrowed namespace for several concurrent deployments, which need one each."""
    if not borrowed or at_once < 2:
        return []
    return [
        f"namespace {borrowed[0]}: is borrowed, and {at_once} concurrent deployments need one each; "
        "take deployment_mode=sequential"
    ]


def mesh_problems(cluster: Cluster, installer: MeshInstaller, study: Study, meshes: Mapping[str, Mesh]) -> list[str]:
    """Return what prevents the installation of each mesh, and CRDs that features lack."""
    problems: list[str] = []
    for name in dict.fromkeys(t.versioned for t in study.treatments if t.versioned in meshes):
        mesh = meshes[name]
        features = [feature for t in study.treatments if t.versioned == name for feature in mesh.check(t)]
        problems += installer.problems(mesh, features)
        if mesh.storage and installer.options.mesh_install == "managed":
            values = Values(installer.options, mesh)
            layers = [layer for release in mesh.releases for _, layer in values.layers(release)]
            problems += storage_problems(cluster, mesh, layers)
    return problems


def storage_problems(cluster: Cluster, mesh: Mesh, values: Iterable[Json]) -> list[str]:
    """Return the problem of a mesh that claims a volume which nothing provides: it would wait for ever.

    A ``storageClass`` in the values of its charts is the one that is claimed, else it is the cluster's default.
    """
    classes = cluster.items("/apis/storage.k8s.io/v1/storageclasses")
    default = "storageclass.kubernetes.io/is-default-class"
    defaults = {item["metadata"]["name"]: (item["metadata"].get("annotations") or {}).get(default) for item in classes}
    named = [name for one in values for name in _storage_classes(one)]
    missing = [name for name in named if name not in defaults]
    if missing:
        known = ", ".join(defaults) or "none"
        return [f"mesh {mesh.name}: claims a volume of StorageClass {missing[0]!r}; this cluster has {known}"]
    if named or "true" in defaults.values():
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
    """Return the refusals of namespaces that belong to somebody else."""
    refusals = [
        namespace_refusal(applier.find_namespace(name), applier.owner, applier.cluster.context) for name in names
    ]
    return [line for line in refusals if line]
