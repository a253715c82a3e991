"""Removal of what meshtrial made, also after a crash; nothing else is touched.

What is ours is told by its labels alone, so a session that died, on another machine even, can be cleaned up
after. A mesh is uninstalled by its own data before its namespace goes: webhooks that outlive their control
plane would stop every new pod of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import MANAGED_BY, MANAGER, MESH, OWNER, STUDY, delete_namespace, label
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.helm import uninstall_release
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.wait import gone

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning did.

    Attributes
    ----------
    removed, remaining : tuple of str
        Namespaces. What remains comes with its reason in ``lines``.
    lines : tuple of str
        For a person, one line each.
    """

    removed: tuple[str, ...]
    remaining: tuple[str, ...]
    lines: tuple[str, ...]


def clean(
    context: str = "", study: str | None = None, *, kubeconfig: str = "", options: KubernetesOptions | None = None
) -> Cleaned:
    """Remove every mesh and namespace that meshtrial made in a cluster, or those of one study.

    Parameters
    ----------
    context, kubeconfig : str
        Empty for the user's defaults.
    study : str, optional
        Only what this study made.
    """
    chosen = options or KubernetesOptions(kubeconfig=kubeconfig, context=context)
    cluster = Cluster(kubeconfig or chosen.kubeconfig, context or chosen.context, chosen.api_patience_s)
    return clean_cluster(cluster, chosen, study)


def clean_cluster(
    cluster: Cluster, options: KubernetesOptions, study: str | None = None, owner_id: str | None = None
) -> Cleaned:
    """The same on a cluster that is already known; ``owner_id`` limits it to one session."""
    removed, remaining, lines = [], [], []
    for namespace in owned_namespaces(cluster, study, owner_id):
        name = namespace["metadata"]["name"]
        owner = str(namespace["metadata"]["labels"].get(OWNER))
        try:
            _uninstall_in(cluster, options, namespace)
            delete_namespace(cluster, name, owner.__eq__, options.mesh_timeout_s)
        except TestbedError as error:
            remaining.append(name)
            lines.append(f"namespace {name} remains: {error}; remove it with 'kubectl delete namespace {name}'")
        else:
            removed.append(name)
            lines.append(f"namespace {name} removed")
    lines += remove_crds(cluster, study, owner_id)
    if not lines:
        lines.append(f"nothing of meshtrial's in {cluster.where()}")
    return Cleaned(tuple(removed), tuple(remaining), tuple(lines))


def owned_namespaces(cluster: Cluster, study: str | None = None, owner_id: str | None = None) -> list[Json]:
    """Our namespaces, applications before the meshes that serve them."""
    found = cluster.items("/api/v1/namespaces", labelSelector=_selector(study, owner_id))
    return sorted(found, key=lambda item: bool((item["metadata"].get("annotations") or {}).get(MESH)))


def remove_crds(cluster: Cluster, study: str | None = None, owner_id: str | None = None) -> list[str]:
    """Delete the CRDs that came with a mesh of ours; one that was there before carries no label of ours."""
    selector = _selector(study, owner_id).replace(f"{MANAGED_BY}={MANAGER}", OWNER)
    lines = []
    try:
        found = {
            item["metadata"]["name"]: item["metadata"]["uid"] for item in cluster.items(_CRDS, labelSelector=selector)
        }
    except TestbedError:
        return []  # whoever may not read CRDs has made none
    # All are asked to go before any is waited for: each first deletes its objects.
    for step in (
        lambda name, uid: cluster.delete(f"{_CRDS}/{name}", uid=uid),
        lambda name, uid: gone(cluster, f"{_CRDS}/{name}", uid, 60.0),
    ):
        for name, uid in list(found.items()):
            try:
                step(name, uid)
            except TestbedError as error:
                del found[name]
                lines.append(f"CRD {name} remains: {error}; remove it with 'kubectl delete crd {name}'")
    return lines


def _selector(study: str | None, owner_id: str | None) -> str:
    parts = [f"{MANAGED_BY}={MANAGER}"]
    if study:
        parts.append(f"{STUDY}={label(study)}")
    if owner_id:
        parts.append(f"{OWNER}={owner_id}")
    return ",".join(parts)


def _uninstall_in(cluster: Cluster, options: KubernetesOptions, namespace: Json) -> None:
    name = (namespace["metadata"].get("annotations") or {}).get(MESH)
    if not name:
        return
    mesh: Mesh | None = find_meshes(options).get(name)
    if mesh is None:
        raise TestbedError(f"it holds mesh {name}, whose folder is not known here (mesh_folders=FOLDER)")
    # A session that died inside Helm could not label its CRDs; Helm's own note tells whose they are.
    for item in cluster.items(_CRDS):
        notes = item["metadata"].get("annotations") or {}
        if notes.get("meta.helm.sh/release-namespace") == namespace["metadata"]["name"]:
            labels = {key: namespace["metadata"]["labels"].get(key) for key in (OWNER, STUDY)}
            cluster.merge(f"{_CRDS}/{item['metadata']['name']}", {"metadata": {"labels": labels}})
    for release in reversed(mesh.releases):
        uninstall_release(cluster, options, release)
