"""Remove what meshtrial made, also after a crash, and nothing else.

Objects of ours are recognised by their labels alone, so that another machine can clean up after a dead session. A
living session is recognised by its Lease, and its objects stay. Living owners are read each time after the objects were
listed, because a study may start while an older one's objects are removed.

Applications are removed first, then objects outside of namespaces, then the meshes: a control plane clears the
finalizers of the objects that it watches. A mesh is uninstalled by its own data before its namespace is deleted:
webhooks that outlive their control plane would stop every new pod of the cluster.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import CRDS, MANAGER, MESH, OWNER, STUDY, Owner, delete_namespace, label
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.helm import uninstall_release
from meshtrial.testbed.kubernetes.manifests import MANAGED_BY
from meshtrial.testbed.kubernetes.meshdata import Mesh, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.session import running_sessions
from meshtrial.testbed.kubernetes.wait import gone

# --- objects of no namespace ------------------------------------------------------------------------------------------

WEBHOOKS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
)
KINDS = (
    *WEBHOOKS,
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
HELM_NAMESPACE = "meta.helm.sh/release-namespace"  # annotation of the objects that a release of that namespace lists


def cluster_objects(cluster: Cluster, kinds: Iterable[str] = (*KINDS, CRDS), selector: str = "") -> dict[str, Json]:
    """Return objects by path; kinds that this cluster does not have are left out.

    A kind that cannot be listed is an error: an object that is not seen before an installation would be taken for the
    mesh's.
    """
    objects: dict[str, Json] = {}
    query: Json = {"labelSelector": selector} if selector else {}
    for kind in kinds:
        with contextlib.suppress(NotFoundError):
            items = cluster.items(kind, **query)
            objects |= {f"{kind}/{item['metadata']['name']}": item for item in items}
    return objects


def belongs_to(path: str, item: Json, mesh: Mesh) -> bool:
    """Return whether an object's names, labels or references tie it to the mesh."""
    metadata = item["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if path.startswith(CRDS):
        return bool(item["spec"]["group"].endswith(mesh.crd_groups))
    if annotations.get(HELM_NAMESPACE):
        return annotations[HELM_NAMESPACE] in mesh.namespaces
    releases = {release.name for release in mesh.releases}
    if labels.get("app.kubernetes.io/instance") in releases:
        return True
    domains = [key.partition("/")[0] for key in [*labels, *annotations] if "/" in key]
    if any(_of_group(domain, mesh) for domain in domains):
        return True
    # Namespaces that it refers to: of the subjects of a binding, and of the services of webhooks.
    references = [*(item.get("subjects") or [])]
    references += [hook.get("clientConfig", {}).get("service") or {} for hook in item.get("webhooks") or []]
    if any(reference.get("namespace") in mesh.namespaces for reference in references):
        return True
    if path.rpartition("/")[0].endswith("/gatewayclasses"):
        return _of_group(str(item.get("spec", {}).get("controllerName", "")).partition("/")[0], mesh)
    named_after = "|".join(map(re.escape, (*releases, *mesh.namespaces)))
    return bool(named_after and re.match(rf"({named_after})([-.:]|$)", metadata["name"]))


def mesh_webhooks(cluster: Cluster, mesh: Mesh) -> tuple[str, ...]:
    """Return the paths of the mesh's webhook configurations."""
    return tuple(path for path, item in cluster_objects(cluster, WEBHOOKS).items() if belongs_to(path, item, mesh))


def label_owned(cluster: Cluster, mesh: Mesh, owner: Owner, before: Mapping[str, Json]) -> None:
    """Label objects that appeared with a mesh and that Helm will not remove; a later cleaning finds them.

    Helm removes only the objects that its release lists. Those that a hook or the control plane created stay, and a
    webhook without its control plane blocks every new pod of the cluster.
    """
    body = {"metadata": {"labels": {OWNER: owner.id, STUDY: label(owner.study)}}}
    for path, item in _appeared(cluster, before).items():
        metadata = item["metadata"]
        # Helm does not remove CRDs that are no templates of the chart, or that are to be kept.
        helms = HELM_NAMESPACE in (metadata.get("annotations") or {}) and not path.startswith(CRDS)
        ours = (metadata.get("labels") or {}).get(OWNER) == owner.id
        if not helms and not ours and belongs_to(path, item, mesh):
            cluster.merge(path, body)


def remove_mesh_objects(cluster: Cluster, mesh: Mesh, before: Mapping[str, Json]) -> list[str]:
    """Delete the objects that appeared with a mesh, except CRDs, which are deleted last.

    Returns the objects that appeared meanwhile and do not belong to the mesh; they are kept.
    """
    foreign = []
    for path, item in _appeared(cluster, before, KINDS).items():
        if belongs_to(path, item, mesh):
            cluster.delete(path, uid=item["metadata"]["uid"])
        else:
            foreign.append(kubectl_name(path))
    return foreign


def remove_owned(cluster: Cluster, selector: str, protected: Callable[[], Collection[str]] = tuple) -> list[str]:
    """Delete the objects with an owner's label, and return a line for each."""
    listed: dict[str, Json] = {}
    for kind in KINDS:
        with contextlib.suppress(TestbedError):  # an account that cannot list them has created none
            listed |= cluster_objects(cluster, [kind], selector)
    return _remove(cluster, listed, protected)


def _unprotected(listed: Mapping[str, Json], protected: Callable[[], Collection[str]]) -> dict[str, Json]:
    """Return the objects whose owners are not protected; the owners are read now, after the objects were listed."""
    owners = protected() if listed else ()
    return {path: item for path, item in listed.items() if _owner_of(item) not in owners}


def _remove(cluster: Cluster, listed: Mapping[str, Json], protected: Callable[[], Collection[str]]) -> list[str]:
    lines = []
    for path, item in _unprotected(listed, protected).items():
        try:
            if cluster.delete(path, uid=item["metadata"]["uid"]):
                lines.append(f"{kubectl_name(path)} removed")
        except TestbedError as error:
            where = item["metadata"].get("namespace")
            command = f"kubectl delete {kubectl_name(path)}" + (f" -n {where}" if where else "")
            lines.append(f"{kubectl_name(path)} remains: {error}; remove it with '{command}'")
    return lines


def _owner_of(item: Json) -> str:
    return str(item["metadata"]["labels"].get(OWNER))


def kubectl_name(path: str) -> str:
    """Return the name of an object for kubectl: ``clusterroles kuma-cp``."""
    return " ".join(path.rsplit("/", 2)[1:])


def _appeared(cluster: Cluster, before: Mapping[str, Json], kinds: Iterable[str] = (*KINDS, CRDS)) -> dict[str, Json]:
    known = {item["metadata"]["uid"] for item in before.values()}
    return {
        path: item for path, item in cluster_objects(cluster, kinds).items() if item["metadata"]["uid"] not in known
    }


def _of_group(domain: str, mesh: Mesh) -> bool:
    return any(domain == group or domain.endswith(f".{group}") for group in mesh.crd_groups)


# --- cleaning ---------------------------------------------------------------------------------------------------------

_GATEWAY_API = "gateway.networking.k8s.io"


@dataclass(frozen=True)
class Cleaned:
    """The result of a cleaning."""

    # Namespaces; `lines` has the reason for each that remains.
    removed: tuple[str, ...]
    remaining: tuple[str, ...]
    lines: tuple[str, ...]  # for the user


def clean(options: KubernetesOptions, study: str | None, *, force: bool) -> Cleaned:
    """Remove every mesh and namespace that meshtrial made in a cluster, or those of one study.

    ``options`` name the cluster, Helm and folders of meshes; ``force`` also removes the objects of a running study.
    """
    cluster = Cluster(options.kubeconfig, options.context, options.api_patience_s)
    return clean_cluster(cluster, options, study, force=force)


def clean_cluster(
    cluster: Cluster,
    options: KubernetesOptions,
    study: str | None = None,
    owner_id: str | None = None,
    *,
    force: bool = False,
) -> Cleaned:
    """Do the same on a cluster that is already known; ``owner_id`` limits it to one session."""
    ours = owned_namespaces(cluster, study, owner_id)
    alive = {} if force else running_sessions(cluster, ours)
    kept = [item for item in ours if _owner_of(item) in alive]
    removed: list[str] = []
    remaining = [item["metadata"]["name"] for item in kept]
    lines = [f"{alive[owner]}: left alone; --force removes it" for owner in sorted({*map(_owner_of, kept)})]
    meshes = find_meshes(options)

    def protected() -> Collection[str]:
        return () if force else running_sessions(cluster)

    def remove_namespaces(of_meshes: bool) -> None:
        for item in ours:
            if item in kept or bool(mesh_of(item)) != of_meshes:
                continue
            name = item["metadata"]["name"]
            try:
                if of_meshes:
                    _uninstall_in(cluster, options, item, meshes)
                delete_namespace(cluster, name, _owner_of(item), options.mesh_timeout_s)
            except TestbedError as error:
                remaining.append(name)
                lines.append(f"namespace {name} remains: {error}; remove it with 'kubectl delete namespace {name}'")
            else:
                removed.append(name)
                lines.append(f"namespace {name} removed")

    def in_use() -> set[str]:
        """Return the API groups of meshes that a running study installed, perhaps with CRDs of another study."""
        ours_now, owners = owned_namespaces(cluster), protected()
        names = {mesh_of(item) for item in ours_now if _owner_of(item) in owners} & set(meshes)
        return {group for name in names for group in meshes[name].crd_groups}

    remove_namespaces(of_meshes=False)
    groups = (*(group for mesh in meshes.values() for group in mesh.crd_groups), _GATEWAY_API)
    lines += _remove_custom_resources(cluster, groups, _selector(study, owner_id), protected)
    remove_namespaces(of_meshes=True)
    lines += remove_crds(cluster, study, owner_id, protected, used=in_use)
    lines += remove_owned(cluster, _owned(study, owner_id), protected)
    if not lines:
        lines.append(f"nothing of meshtrial's in {cluster.where()}")
    return Cleaned(tuple(removed), tuple(remaining), tuple(lines))


def owned_namespaces(cluster: Cluster, study: str | None = None, owner_id: str | None = None) -> list[Json]:
    """Return our namespaces, those of applications first."""
    namespaces = cluster.items("/api/v1/namespaces", labelSelector=_selector(study, owner_id))
    return sorted(namespaces, key=lambda item: bool(mesh_of(item)))


def mesh_of(namespace: Json) -> str:
    """Return the mesh that a namespace of ours was made for, or an empty text."""
    return str((namespace["metadata"].get("annotations") or {}).get(MESH) or "")


def _remove_custom_resources(
    cluster: Cluster, groups: tuple[str, ...], selector: str, protected: Callable[[], Collection[str]]
) -> list[str]:
    """Delete custom resources of ours in namespaces of others or in none, and return a line for each.

    Their API groups end in one of ``groups``.
    """
    try:
        kinds = [crd["spec"] for crd in cluster.items(CRDS) if crd["spec"]["group"].endswith(groups)]
    except TestbedError:
        return []  # an account that cannot read CRDs has applied no custom resource
    lines: list[str] = []
    listed: dict[str, Json] = {}
    for spec in kinds:
        version = next((v["name"] for v in spec["versions"] if v.get("served")), "")
        group, kind = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
        try:
            items = cluster.items(f"{group}/{kind}", labelSelector=f"{selector},{OWNER}")
        except NotFoundError:
            continue  # its CRD is being deleted
        except TestbedError as error:
            lines.append(f"{kind} of {spec['group']}: {error}")
            continue
        for item in items:
            metadata = item["metadata"]
            where = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            listed[f"{group}{where}/{kind}/{metadata['name']}"] = item
    return lines + _remove(cluster, listed, protected)


def remove_crds(
    cluster: Cluster,
    study: str | None = None,
    owner_id: str | None = None,
    protected: Callable[[], Collection[str]] = tuple,
    groups: Iterable[str] = ("",),
    used: Callable[[], Collection[str]] = tuple,
) -> list[str]:
    """Delete the CRDs that a mesh of ours brought, and return lines; a CRD that existed before has no label of ours.

    Only API groups with these endings are included, because another mesh of this session may be installed. ``used``
    returns the endings that somebody else's mesh needs. Both functions are called after the CRDs were listed,
    so a mesh that was installed meanwhile counts.
    """
    suffixes = tuple(groups)
    lines = []
    try:
        listed = cluster.items(CRDS, labelSelector=_owned(study, owner_id))
    except TestbedError:
        return []  # an account that cannot read CRDs has created none
    crds = {item["metadata"]["name"]: item for item in listed if item["spec"]["group"].endswith(suffixes)}
    to_delete = _unprotected(crds, protected)
    needed = tuple(used()) if crds else ()
    for name in [name for name, item in to_delete.items() if item["spec"]["group"].endswith(needed)]:
        del to_delete[name]
        lines.append(f"CRD {name} stays: the mesh of a running study needs it")
    # All are deleted before any is waited for: each first deletes its objects.
    for delete_or_wait in (
        lambda name, uid: cluster.delete(f"{CRDS}/{name}", uid=uid),
        lambda name, uid: gone(cluster, f"{CRDS}/{name}", uid, 60.0),
    ):
        for name, item in list(to_delete.items()):
            try:
                delete_or_wait(name, item["metadata"]["uid"])
            except TestbedError as error:
                del to_delete[name]
                lines.append(f"CRD {name} remains: {error}; remove it with 'kubectl delete crd {name}'")
    return lines


def _selector(study: str | None, owner_id: str | None) -> str:
    parts = [f"{MANAGED_BY}={MANAGER}"]
    if study:
        parts.append(f"{STUDY}={label(study)}")
    if owner_id:
        parts.append(f"{OWNER}={owner_id}")
    return ",".join(parts)


def _owned(study: str | None, owner_id: str | None) -> str:
    # Helm sets managed-by on its objects, so the owner's label identifies ours.
    return _selector(study, owner_id).replace(f"{MANAGED_BY}={MANAGER}", OWNER)


def _uninstall_in(cluster: Cluster, options: KubernetesOptions, namespace: Json, meshes: Mapping[str, Mesh]) -> None:
    name = mesh_of(namespace)
    mesh = meshes.get(name.partition("@")[0])  # versions of a mesh have the same releases
    if mesh is None:
        raise TestbedError(f"it has mesh {name}, whose folder is unknown here (mesh_folders=FOLDER)")
    # A session that died while Helm ran has not labelled its CRDs; Helm's annotation shows whose they are.
    for item in cluster.items(CRDS):
        notes = item["metadata"].get("annotations") or {}
        if notes.get(HELM_NAMESPACE) == namespace["metadata"]["name"]:
            labels = {key: namespace["metadata"]["labels"].get(key) for key in (OWNER, STUDY)}
            cluster.merge(f"{CRDS}/{item['metadata']['name']}", {"metadata": {"labels": labels}})
    for release in reversed(mesh.releases):
        uninstall_release(cluster, options, release)
