"""Removal of what meshtrial made, also after a crash; nothing else is touched.

What is ours is told by its labels alone, so a session that died, on another machine even, can be cleaned up
after; one that lives says so by its Lease, and what it owns is left alone: who lives is asked each time after what
there is was listed, for a study may begin while an older one's is removed. Applications go first, then what was
applied beside them, then the meshes: a control plane clears the finalizers of what it watches over. A mesh is
uninstalled by its own data before its namespace goes: webhooks that outlive their control plane would stop every new
pod of the cluster.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import clusterwide, lease
from meshtrial.testbed.kubernetes.apply import (
    CRDS,
    MANAGED_BY,
    MANAGER,
    MESH,
    OWNER,
    STUDY,
    delete_namespace,
    label,
    owner_of,
    unprotected,
)
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.helm import uninstall_release
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.wait import gone

_GATEWAY_API = "gateway.networking.k8s.io"


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning did."""

    # Namespaces; what remains comes with its reason in `lines`
    removed: tuple[str, ...]
    remaining: tuple[str, ...]
    lines: tuple[str, ...]  # for a person


def clean(options: KubernetesOptions, study: str | None, *, force: bool) -> Cleaned:
    """Remove every mesh and namespace that meshtrial made in a cluster, or those of one study.

    ``options`` say which cluster it is, and where Helm and folders of meshes are; ``force`` removes also what a running
    study owns.
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
    """The same on a cluster that is already known; ``owner_id`` limits it to one session."""
    ours = owned_namespaces(cluster, study, owner_id)
    alive = {} if force else lease.running(cluster, ours)
    namespaces = [item for item in ours if owner_of(item) not in alive]
    left_alone = [item for item in ours if owner_of(item) in alive]
    removed: list[str] = []
    remaining = [item["metadata"]["name"] for item in left_alone]
    owners = sorted({owner_of(item) for item in left_alone})
    lines = [f"{alive[owner]}: left alone; --force removes it all the same" for owner in owners]

    def protected() -> Collection[str]:
        return () if force else lease.running(cluster)

    def remove(item: Json) -> None:
        name = item["metadata"]["name"]
        try:
            _uninstall_in(cluster, options, item)
            delete_namespace(cluster, name, owner_of(item), options.mesh_timeout_s)
        except TestbedError as error:
            remaining.append(name)
            lines.append(f"namespace {name} remains: {error}; remove it with 'kubectl delete namespace {name}'")
        else:
            removed.append(name)
            lines.append(f"namespace {name} removed")

    for item in namespaces:
        if not mesh_of(item):
            remove(item)
    meshes = find_meshes(options)

    def in_use() -> set[str]:
        """API groups of meshes that a running study has installed, maybe over CRDs that another one left."""
        standing, living = owned_namespaces(cluster), protected()
        names = {mesh_of(item) for item in standing if owner_of(item) in living} & set(meshes)
        return {group for name in names for group in meshes[name].crd_groups}

    groups = {group for mesh in meshes.values() for group in mesh.crd_groups} | {_GATEWAY_API}
    lines += remove_objects(cluster, groups, study, owner_id, protected)
    for item in namespaces:
        if mesh_of(item):
            remove(item)
    lines += remove_crds(cluster, study, owner_id, protected, used=in_use)
    lines += clusterwide.remove_owned(cluster, _owned(study, owner_id), protected)
    if not lines:
        lines.append(f"nothing of meshtrial's in {cluster.where()}")
    return Cleaned(tuple(removed), tuple(remaining), tuple(lines))


def owned_namespaces(cluster: Cluster, study: str | None = None, owner_id: str | None = None) -> list[Json]:
    """Our namespaces, applications before the meshes that serve them."""
    namespaces = cluster.items("/api/v1/namespaces", labelSelector=_selector(study, owner_id))
    return sorted(namespaces, key=lambda item: bool(mesh_of(item)))


def mesh_of(namespace: Json) -> str:
    """The mesh that a namespace of ours was made for; empty for others."""
    return str((namespace["metadata"].get("annotations") or {}).get(MESH) or "")


def remove_objects(
    cluster: Cluster,
    groups: Iterable[str],
    study: str | None = None,
    owner_id: str | None = None,
    protected: Callable[[], Collection[str]] = tuple,
) -> list[str]:
    """Delete custom resources of ours that lie in namespaces of others or in none: no namespace takes them along.

    They are of API groups that end in one of these. Owners who are spared are asked for after these were listed.
    """
    suffixes = tuple(groups)
    try:
        kinds = [crd["spec"] for crd in cluster.items(CRDS) if crd["spec"]["group"].endswith(suffixes)]
    except TestbedError:
        return []  # whoever may not read CRDs applied none of theirs
    lines: list[str] = []
    listed: dict[str, Json] = {}
    for spec in kinds:
        version = next((v["name"] for v in spec["versions"] if v.get("served")), "")
        group, kind = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
        try:
            items = cluster.items(f"{group}/{kind}", labelSelector=_selector(study, owner_id) + f",{OWNER}")
        except NotFoundError:
            continue  # its CRD is going
        except TestbedError as error:
            lines.append(f"{kind} of {spec['group']}: {error}")
            continue
        for item in items:
            metadata = item["metadata"]
            where = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            listed[f"{group}{where}/{kind}/{metadata['name']}"] = item
    return lines + clusterwide.remove_listed(cluster, listed, protected)


def remove_crds(
    cluster: Cluster,
    study: str | None = None,
    owner_id: str | None = None,
    protected: Callable[[], Collection[str]] = tuple,
    groups: Iterable[str] = ("",),
    used: Callable[[], Collection[str]] = tuple,
) -> list[str]:
    """Delete the CRDs that came with a mesh of ours; one that was there before carries no label of ours.

    Only of API groups that end so: another mesh of this session may stand beside it. ``used`` is what groups end in
    that a mesh of somebody else's needs, whoever's they are; it and who is spared are asked for after the listing.
    """
    suffixes = tuple(groups)
    lines = []
    try:
        listed = cluster.items(CRDS, labelSelector=_owned(study, owner_id))
    except TestbedError:
        return []  # whoever may not read CRDs has made none
    crds = {item["metadata"]["name"]: item for item in listed if item["spec"]["group"].endswith(suffixes)}
    going = unprotected(crds, protected)
    needed = tuple(used()) if crds else ()
    for name in [name for name, item in going.items() if item["spec"]["group"].endswith(needed)]:
        del going[name]
        lines.append(f"CRD {name} stays: the mesh of a running study needs it")
    # All are asked to go before any is waited for: each first deletes its objects.
    for step in (
        lambda name, uid: cluster.delete(f"{CRDS}/{name}", uid=uid),
        lambda name, uid: gone(cluster, f"{CRDS}/{name}", uid, 60.0),
    ):
        for name, item in list(going.items()):
            try:
                step(name, item["metadata"]["uid"])
            except TestbedError as error:
                del going[name]
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
    # Of what Helm manages as well, the owner's label is ours alone.
    return _selector(study, owner_id).replace(f"{MANAGED_BY}={MANAGER}", OWNER)


def _uninstall_in(cluster: Cluster, options: KubernetesOptions, namespace: Json) -> None:
    name = mesh_of(namespace)
    if not name:
        return
    # Versions differ in what their releases are installed from, not in which releases there are.
    mesh: Mesh | None = find_meshes(options).get(name.partition("@")[0])
    if mesh is None:
        raise TestbedError(f"it holds mesh {name}, whose folder is not known here (mesh_folders=FOLDER)")
    # A session that died inside Helm could not label its CRDs; Helm's own note tells whose they are.
    for item in cluster.items(CRDS):
        notes = item["metadata"].get("annotations") or {}
        if notes.get(clusterwide.HELMS) == namespace["metadata"]["name"]:
            labels = {key: namespace["metadata"]["labels"].get(key) for key in (OWNER, STUDY)}
            cluster.merge(f"{CRDS}/{item['metadata']['name']}", {"metadata": {"labels": labels}})
    for release in reversed(mesh.releases):
        uninstall_release(cluster, options, release)
