"""What belongs to no namespace and comes with a mesh besides CRDs: roles, webhooks, gateway classes.

Helm removes what its release lists. What a hook or the control plane itself made stays behind, and a webhook without
its control plane stops every new pod of the cluster. An object is a mesh's own only when it appeared with it and its
names, labels or references tie it to the mesh; whatever else appeared meanwhile is somebody else's.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.apply import CRDS, OWNER, STUDY, Owner, label, unprotected
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.meshdata import Mesh

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
HELMS = "meta.helm.sh/release-namespace"  # annotation: of what a release of that namespace lists


def look(cluster: Cluster, kinds: Iterable[str] = (*KINDS, CRDS), selector: str = "") -> dict[str, Json]:
    """Path to object; kinds that this cluster does not have are left out.

    A kind that cannot be listed is an error: what is not seen before a mesh comes would be taken for the mesh's own.
    """
    objects: dict[str, Json] = {}
    query: Json = {"labelSelector": selector} if selector else {}
    for kind in kinds:
        with contextlib.suppress(NotFoundError):
            items = cluster.items(kind, **query)
            objects |= {f"{kind}/{item['metadata']['name']}": item for item in items}
    return objects


def belongs(path: str, item: Json, mesh: Mesh) -> bool:
    """Whether an object's own words tie it to a mesh."""
    metadata = item["metadata"]
    notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if path.startswith(CRDS):
        return bool(item["spec"]["group"].endswith(mesh.crd_groups))
    if notes.get(HELMS):
        return notes[HELMS] in mesh.namespaces
    releases = {release.name for release in mesh.releases}
    if labels.get("app.kubernetes.io/instance") in releases:
        return True
    if any(_of_group(key.partition("/")[0], mesh) for key in [*labels, *notes] if "/" in key):
        return True
    if _places(item) & set(mesh.namespaces):
        return True
    if path.rpartition("/")[0].endswith("/gatewayclasses"):
        return _of_group(str(item.get("spec", {}).get("controllerName", "")).partition("/")[0], mesh)
    return _named_after(metadata["name"], releases | set(mesh.namespaces))


def webhooks(cluster: Cluster, mesh: Mesh) -> tuple[str, ...]:
    """Paths of the mesh's webhook configurations."""
    return tuple(path for path, item in look(cluster, WEBHOOKS).items() if belongs(path, item, mesh))


def own(cluster: Cluster, mesh: Mesh, owner: Owner, before: Mapping[str, Json]) -> None:
    """Label what came with a mesh and is not Helm's to remove, so that it is found again after a crash."""
    body = {"metadata": {"labels": {OWNER: owner.id, STUDY: label(owner.study)}}}
    for path, item in _appeared(cluster, before).items():
        metadata = item["metadata"]
        # Of a release's CRDs Helm leaves those that are not its templates', or are to be kept.
        helms = HELMS in (metadata.get("annotations") or {}) and not path.startswith(CRDS)
        ours = (metadata.get("labels") or {}).get(OWNER) == owner.id
        if not helms and not ours and belongs(path, item, mesh):
            cluster.merge(path, body)


def remove(cluster: Cluster, mesh: Mesh, before: Mapping[str, Json]) -> list[str]:
    """Delete what came with a mesh and is still there, but for CRDs, which go last.

    Returns what appeared meanwhile and is not the mesh's: it is left alone.
    """
    foreign = []
    for path, item in _appeared(cluster, before, KINDS).items():
        if belongs(path, item, mesh):
            cluster.delete(path, uid=item["metadata"]["uid"])
        else:
            foreign.append(shown(path))
    return foreign


def remove_owned(cluster: Cluster, selector: str, protected: Callable[[], Collection[str]] = tuple) -> list[str]:
    """Delete what carries an owner's label, for cleaning, a line each."""
    listed: dict[str, Json] = {}
    for kind in KINDS:
        with contextlib.suppress(TestbedError):  # whoever may not list them has made none
            listed |= look(cluster, [kind], selector)
    return remove_listed(cluster, listed, protected)


def remove_listed(cluster: Cluster, listed: Mapping[str, Json], protected: Callable[[], Collection[str]]) -> list[str]:
    """Delete what was listed by path, and say so.

    ``protected`` gives the owners whose objects stay; it is asked after these were listed.
    """
    lines = []
    for path, item in unprotected(listed, protected).items():
        try:
            if cluster.delete(path, uid=item["metadata"]["uid"]):
                lines.append(f"{shown(path)} removed")
        except TestbedError as error:
            where = item["metadata"].get("namespace")
            command = f"kubectl delete {shown(path)}" + (f" -n {where}" if where else "")
            lines.append(f"{shown(path)} remains: {error}; remove it with '{command}'")
    return lines


def shown(path: str) -> str:
    """``clusterroles kuma-cp``."""
    return " ".join(path.rsplit("/", 2)[1:])


def _appeared(cluster: Cluster, before: Mapping[str, Json], kinds: Iterable[str] = (*KINDS, CRDS)) -> dict[str, Json]:
    known = {item["metadata"]["uid"] for item in before.values()}
    return {path: item for path, item in look(cluster, kinds).items() if item["metadata"]["uid"] not in known}


def _places(item: Json) -> set[str]:
    """Namespaces that an object points to: subjects of a binding, services of webhooks."""
    subjects = {str(subject.get("namespace", "")) for subject in item.get("subjects") or []}
    called = [hook.get("clientConfig", {}).get("service") or {} for hook in item.get("webhooks") or []]
    return subjects | {str(service.get("namespace", "")) for service in called}


def _of_group(domain: str, mesh: Mesh) -> bool:
    return any(domain == group or domain.endswith(f".{group}") for group in mesh.crd_groups)


def _named_after(name: str, names: Iterable[str]) -> bool:
    return any(re.match(rf"{re.escape(own_name)}([-.:]|$)", name) for own_name in names)
