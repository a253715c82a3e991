"""Apply manifests server-side, and record who owns what.

Every object made here carries ``app.kubernetes.io/managed-by: meshtrial``, the study and the owner, an id of this
session. A namespace is used only when it does not exist or is ours: one that somebody else made is never touched. One
that an administrator made for studies (``meshtrial.dev/lent``) is borrowed: it is emptied and returned unchanged, and
not deleted.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import manifests, wait
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError

MANAGER = "meshtrial"
STUDY = f"{manifests.NOTE}study"
OWNER = f"{manifests.NOTE}owner"
MESH = f"{manifests.NOTE}mesh"
LENT = f"{manifests.NOTE}lent"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Kinds that a study creates in its namespace besides custom resources; those that create pods come first.
_KINDS = (
    "/apis/apps/v1/{}/deployments",
    *(f"/api/v1/{{}}/{kind}" for kind in ("pods", "services", "configmaps", "secrets", "serviceaccounts")),
    "/apis/discovery.k8s.io/v1/{}/endpointslices",
    "/apis/coordination.k8s.io/v1/{}/leases",
)
_BORROWED = f"{manifests.NOTE}borrowed"  # annotation: labels and annotations to remove when the namespace is returned
_EMPTY_S = 120.0
# How the API server reports an admission webhook that refuses or does not answer.
_WEBHOOK = re.compile(r"denied the request|failed calling webhook")


@dataclass(frozen=True)
class Owner:
    """One session of one study."""

    study: str
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every object."""
        return {manifests.MANAGED_BY: MANAGER, STUDY: label(self.study), OWNER: self.id}


def label(text: str) -> str:
    """Return the text as a label value and part of a name."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:40].strip("-") or "study"


def namespace_refusal(existing: Json | None, owner: Owner, context: str) -> str:
    """Return why this namespace must not be used, or an empty text."""
    if existing is None:
        return ""
    name = existing["metadata"]["name"]
    labels = existing["metadata"].get("labels") or {}
    if is_borrowed(existing) and OWNER not in labels:
        return ""
    if labels.get(manifests.MANAGED_BY) != MANAGER:
        return (
            f"namespace {name} exists and was not made by meshtrial, so it stays; "
            f"choose another with namespace=NAME, or remove it yourself ('kubectl delete namespace {name}')"
        )
    if labels.get(OWNER) != owner.id:
        study = labels.get(STUDY, "?")
        return (
            f"namespace {name} belongs to another session of meshtrial (study {study}, owner {labels.get(OWNER)}); "
            f"if that session is over, remove it with '{clean_command(context, study)}'"
        )
    return ""


def clean_command(context: str, study: str) -> str:
    """Return the command that removes what a study left; inside a cluster there is no context to name."""
    return "meshtrial clean" + (f" --context {context}" if context else "") + f" --study {study}"


def is_borrowed(namespace: Json | None) -> bool:
    """Return whether an administrator made this namespace for studies."""
    return namespace is not None and (namespace["metadata"].get("labels") or {}).get(LENT) == "true"


class Applier:
    """Applies manifests as one owner."""

    def __init__(self, cluster: Cluster, owner: Owner, pull_secrets: Sequence[tuple[str, str]] = ()) -> None:
        self.cluster = cluster
        self.owner = owner
        self._pull_secrets = pull_secrets  # namespace and name of Secrets that are copied into our namespaces
        # Paths of objects that lie outside of the namespaces that need them, each with those namespaces (homes).
        self.outside: dict[str, set[str]] = {}
        self._kinds: dict[str, dict[str, Json]] = {}  # resources of this cluster, by API version and kind
        self._deleting: dict[str, tuple[str, float]] = {}  # uid and patience, by namespace

    def namespace(
        self, name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace, or take one that is ours; TestbedError for somebody else's."""
        existing = self.find_namespace(name)
        refusal = namespace_refusal(existing, self.owner, self.cluster.context)
        if refusal:
            raise TestbedError(refusal)
        metadata: Json = {
            "name": name,
            "labels": {**(labels or {}), **self.owner.labels},
            "annotations": dict(annotations or {}),
        }
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        if existing is None:
            # Created and not applied: of two sessions that want the name, one is refused.
            self.cluster.post("/api/v1/namespaces", body)
            self._copy_secrets(name)
            return
        if is_borrowed(existing):
            # Labels and annotations that are added here are removed when it is returned.
            before = existing["metadata"]
            there = {*(before.get("labels") or {}), *(before.get("annotations") or {})}
            fresh = [key for key in (*metadata["labels"], *metadata["annotations"]) if key not in there]
            taken = (before.get("annotations") or {}).get(_BORROWED, "")
            metadata["annotations"][_BORROWED] = ",".join(filter(None, (taken, *fresh)))
        self.cluster.merge(f"/api/v1/namespaces/{name}", {"metadata": metadata})
        self._copy_secrets(name, is_borrowed(existing))

    def _copy_secrets(self, namespace: str, borrowed: bool = False) -> None:
        """Copy the pull secrets; those that an administrator put into a borrowed namespace stay unchanged."""
        for home, name in self._pull_secrets:
            secret = self.cluster.get(f"/api/v1/namespaces/{home}/secrets/{name}")
            if borrowed:
                with contextlib.suppress(NotFoundError):
                    there = self.cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
                    if OWNER not in (there["metadata"].get("labels") or {}):
                        continue
            copy = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}
            self.apply([copy | {key: secret[key] for key in ("type", "data")}])

    def find_namespace(self, name: str) -> Json | None:
        """Return the namespace, or None."""
        try:
            return self.cluster.get(f"/api/v1/namespaces/{name}")
        except NotFoundError:
            return None

    def apply(self, objects: Iterable[Json], *, home: str = "", dry_run: bool = False) -> None:
        """Apply objects server-side with our labels, in the given order.

        Objects outside of ``home`` are recorded for :meth:`delete_outside`. In a dry run the server checks the objects
        and keeps none.
        """
        query = {"fieldManager": MANAGER, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        for item in manifests.patched(objects, manifests.labelled(self.owner.labels)):
            path, namespace = self._address(item)
            self.cluster.apply(f"apply {item['kind']} {item['metadata']['name']}", path, item, query)
            if home and namespace != home:
                self.outside.setdefault(path, set()).add(home)

    def delete(self, objects: Iterable[Json]) -> None:
        """Delete objects in the given order; one that does not exist is no failure."""
        for item in manifests.patched(objects):
            self.cluster.delete(self._address(item)[0])

    def note_deletion(self, namespace: str, uid: str, patience_s: float) -> None:
        """Record a namespace that is being deleted and has no pods, for :meth:`wait_for_deletions`."""
        self._deleting[namespace] = (uid, patience_s)

    def wait_for_deletions(self) -> None:
        """Wait until the recorded namespaces are gone; TestbedError names what holds one."""
        for name, (uid, patience_s) in list(self._deleting.items()):
            self._deleting.pop(name, None)
            wait.gone(self.cluster, f"/api/v1/namespaces/{name}", uid, patience_s)

    def delete_namespace(self, name: str, timeout_s: float) -> None:
        """Delete our namespace and the objects outside that only it needed; TestbedError names what holds one."""
        delete_namespace(self.cluster, name, self.owner.id, timeout_s)
        self.delete_outside([name])

    @property
    def homes(self) -> set[str]:
        """Namespaces that need objects elsewhere."""
        return set().union(*list(self.outside.values()))

    def delete_outside(self, homes: Collection[str], patience_s: float = 20.0) -> None:
        """Delete the objects outside that only these namespaces needed, last first.

        A webhook may refuse for ``patience_s``: a control plane notices late that no object refers to this one.
        """
        deadline = time.monotonic() + patience_s

        def is_refused(error: Exception) -> bool:
            return isinstance(error, TestbedError) and bool(_WEBHOOK.search(str(error)))

        for path, users in reversed(list(self.outside.items())):
            users.difference_update(homes)
            # Several deployments may end concurrently: the one that removes the entry deletes the object.
            if users or self.outside.pop(path, None) is None:
                continue
            waiting.retried(partial(self.cluster.delete, path), is_refused, deadline - time.monotonic())

    def _address(self, item: Json) -> tuple[str, str]:
        """Return an object's path and namespace; a kind without namespaces loses that field."""
        version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._kinds.get(version, {}):  # asked again: its CRD may be new
            with contextlib.suppress(NotFoundError):
                resources = self.cluster.get(base)["resources"]
                self._kinds[version] = {entry["kind"]: entry for entry in resources if "/" not in entry["name"]}
        resource = self._kinds.get(version, {}).get(kind)
        if resource is None:
            problem = f"this cluster has no {version} {kind}; its CRD is not installed"
            raise TestbedError(f"apply {kind} {metadata['name']}: {problem}")
        namespace = str(metadata.pop("namespace", "default"))
        if not resource["namespaced"]:
            return f"{base}/{resource['name']}/{metadata['name']}", ""
        metadata["namespace"] = namespace
        return f"{base}/namespaces/{namespace}/{resource['name']}/{metadata['name']}", namespace


def delete_namespace(cluster: Cluster, name: str, owner_id: str, timeout_s: float) -> None:
    """Delete this owner's namespace by its uid, and wait until it is gone; TestbedError names what holds it."""
    if uid := begin_deletion(cluster, name, owner_id):
        wait.gone(cluster, f"/api/v1/namespaces/{name}", uid, timeout_s)


def begin_deletion(cluster: Cluster, name: str, owner_id: str) -> str:
    """Delete this owner's namespace and return its uid; an empty text where none is deleted.

    A borrowed one is emptied and returned instead.
    """
    path = f"/api/v1/namespaces/{name}"
    with contextlib.suppress(NotFoundError):
        metadata = cluster.get(path)["metadata"]
        labels = metadata.get("labels") or {}
        if labels.get(manifests.MANAGED_BY) == MANAGER and labels.get(OWNER) == owner_id:
            if labels.get(LENT):
                _return_borrowed(cluster, metadata, owner_id)
                return ""
            cluster.delete(path, uid=metadata["uid"])
            return str(metadata["uid"])
    return ""


def _return_borrowed(cluster: Cluster, namespace: Json, owner_id: str) -> None:
    """Delete what this owner made in a borrowed namespace, and remove its labels and annotations."""
    name = namespace["name"]
    kinds = [kind.format(f"namespaces/{name}") for kind in _KINDS]
    for crd in cluster.items(CRDS):
        spec = crd["spec"]
        version = next((entry["name"] for entry in spec["versions"] if entry.get("served")), "")
        if spec["scope"] == "Namespaced" and version:
            kinds.append(f"/apis/{spec['group']}/{version}/namespaces/{name}/{spec['names']['plural']}")
    for kind in kinds:
        # An account without the right to delete a kind has created none.
        with contextlib.suppress(TestbedError):
            cluster.delete(kind, labelSelector=f"{OWNER}={owner_id}")
    pods = f"/api/v1/namespaces/{name}/pods"
    remaining = waiting.until(lambda: cluster.items(pods), _EMPTY_S, 0.3, lambda listed: not listed)
    if remaining:
        raise TestbedError(
            f"namespace {name}: {len(remaining)} pods still exist after {_EMPTY_S:g} s; it is not returned"
        )
    ours = [*(namespace.get("annotations") or {}).get(_BORROWED, "").split(","), _BORROWED]
    removed = {
        kind: {key: None for key in ours if key in (namespace.get(kind) or {})} for kind in ("labels", "annotations")
    }
    cluster.merge(f"/api/v1/namespaces/{name}", {"metadata": removed})
