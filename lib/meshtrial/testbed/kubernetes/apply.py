"""Server-side apply of manifests, and who owns what.

Everything made here carries ``app.kubernetes.io/managed-by: meshtrial``, the study and the owner, an id of
this very session. A namespace is used only when it was absent or is already ours: one of the same name that
somebody else made is never touched. One that an administrator made for studies (``meshtrial.dev/lent``) is borrowed:
emptied and given back as it was, where another would be deleted.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import manifests, wait
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "meshtrial"
STUDY = f"{manifests.NOTE}study"
OWNER = f"{manifests.NOTE}owner"
MESH = f"{manifests.NOTE}mesh"
LENT = f"{manifests.NOTE}lent"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What a study makes in its namespace besides custom resources, pods' makers first.
_KINDS = (
    "/apis/apps/v1/{}/deployments",
    *(f"/api/v1/{{}}/{kind}" for kind in ("pods", "services", "configmaps", "secrets", "serviceaccounts")),
    "/apis/discovery.k8s.io/v1/{}/endpointslices",
    "/apis/coordination.k8s.io/v1/{}/leases",
)
_BORROWED = f"{manifests.NOTE}borrowed"  # annotation: labels and annotations that go when a namespace is given back
_EMPTY_S = 120.0
# The API server's words for an admission webhook that says no, or does not answer.
_WEBHOOK = re.compile(r"denied the request|failed calling webhook")


@dataclass(frozen=True)
class Owner:
    """One session of one study."""

    study: str
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def labels(self) -> dict[str, str]:
        """What every object carries."""
        return {MANAGED_BY: MANAGER, STUDY: label(self.study), OWNER: self.id}


def label(text: str) -> str:
    """The text as a label value and a part of a name."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:40].strip("-") or "study"


def verdict(existing: Json | None, owner: Owner, context: str) -> str:
    """Why this namespace may not be used; empty when it may."""
    if existing is None:
        return ""
    name = existing["metadata"]["name"]
    labels = existing["metadata"].get("labels") or {}
    if is_borrowed(existing) and OWNER not in labels:
        return ""
    if labels.get(MANAGED_BY) != MANAGER:
        return (
            f"namespace {name} is already there and was not made by meshtrial: it is left alone; "
            f"choose another with namespace=NAME, or remove it yourself ('kubectl delete namespace {name}')"
        )
    if labels.get(OWNER) != owner.id:
        study = labels.get(STUDY, "?")
        return (
            f"namespace {name} belongs to another session of meshtrial (study {study}, owner {labels.get(OWNER)}); "
            f"if that one is over, remove it with '{clean_command(context, study)}'"
        )
    return ""


def clean_command(context: str, study: str) -> str:
    """What a user types to remove what a study left; inside a cluster there is no context to name."""
    return "meshtrial clean" + (f" --context {context}" if context else "") + f" --study {study}"


def is_borrowed(namespace: Json | None) -> bool:
    """Whether an administrator made this namespace for studies."""
    return namespace is not None and (namespace["metadata"].get("labels") or {}).get(LENT) == "true"


class Applier:
    """Applies manifests as one owner."""

    def __init__(self, cluster: Cluster, owner: Owner, pull_secrets: Sequence[tuple[str, str]] = ()) -> None:
        self.cluster = cluster
        self.owner = owner
        self._pull_secrets = pull_secrets  # namespace and name of what every namespace of ours gets a copy of
        # Paths of what was applied elsewhere than at home, each with the homes that lean on it.
        self.outside: dict[str, set[str]] = {}
        self._kinds: dict[str, dict[str, Json]] = {}  # by API version and kind, as this cluster has them
        self._emptied: dict[str, tuple[str, float]] = {}

    def namespace(
        self, name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace of ours, or take the one that is ours already; somebody else's is a TestbedError."""
        existing = self.find_namespace(name)
        refusal = verdict(existing, self.owner, self.cluster.context)
        if refusal:
            raise TestbedError(refusal)
        metadata: Json = {
            "name": name,
            "labels": {**(labels or {}), **self.owner.labels},
            "annotations": dict(annotations or {}),
        }
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        if existing is None:
            # Created and not applied: two sessions that race for the name cannot both win.
            self.cluster.post("/api/v1/namespaces", body)
            self._copy_secrets(name)
            return
        if is_borrowed(existing):
            # What is put on it goes again when it is given back.
            before = existing["metadata"]
            there = {*(before.get("labels") or {}), *(before.get("annotations") or {})}
            fresh = [key for key in (*metadata["labels"], *metadata["annotations"]) if key not in there]
            taken = (before.get("annotations") or {}).get(_BORROWED, "")
            metadata["annotations"][_BORROWED] = ",".join(filter(None, (taken, *fresh)))
        self.cluster.merge(f"/api/v1/namespaces/{name}", {"metadata": metadata})
        self._copy_secrets(name, is_borrowed(existing))

    def _copy_secrets(self, namespace: str, borrowed: bool = False) -> None:
        """Copy what images are pulled with; what an administrator put into a namespace that is lent stays as it is."""
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
        """The namespace, None when it is absent."""
        try:
            return self.cluster.get(f"/api/v1/namespaces/{name}")
        except NotFoundError:
            return None

    def apply(self, objects: Iterable[Json], *, home: str = "", dry_run: bool = False) -> None:
        """Apply server-side, labelled, in the order given.

        What lands outside of ``home`` is remembered, for :meth:`delete_outside`. In a dry run the server judges the
        objects and keeps none.
        """
        query = {"fieldManager": MANAGER, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        for item in manifests.patched(objects, manifests.labelled(self.owner.labels)):
            path, where = self._place(item)
            self.cluster.apply(f"apply {item['kind']} {item['metadata']['name']}", path, item, query)
            if home and where != home:
                self.outside.setdefault(path, set()).add(home)

    def delete(self, objects: Iterable[Json]) -> None:
        """Delete what was applied, in the order given; what is not there is no failure."""
        for item in manifests.patched(objects):
            self.cluster.delete(self._place(item)[0])

    def leave(self, namespace: str, uid: str, patience_s: float) -> None:
        """Note a namespace in its deletion that runs nothing any more: a cluster takes five seconds until it begins."""
        self._emptied[namespace] = (uid, patience_s)

    def wait_for_deletions(self) -> None:
        """Wait until all namespaces that were left are gone; what holds one is said."""
        for name, (uid, patience_s) in list(self._emptied.items()):
            self._emptied.pop(name, None)
            wait.gone(self.cluster, f"/api/v1/namespaces/{name}", uid, patience_s)

    @property
    def homes(self) -> set[str]:
        """Namespaces for which something was applied elsewhere."""
        return set().union(*list(self.outside.values()))

    def delete_outside(self, homes: Collection[str], patience_s: float = 20.0) -> None:
        """Delete what was applied elsewhere for these namespaces and no other, last first; it does not go with them.

        A webhook may refuse for so long: a control plane sees late that nothing leans on the object any more.
        """
        deadline = time.monotonic() + patience_s

        def may_pass(error: Exception) -> bool:
            return isinstance(error, TestbedError) and bool(_WEBHOOK.search(str(error)))

        for path, leaning in reversed(list(self.outside.items())):
            leaning.difference_update(homes)
            # Several that go at once: whoever takes it off the list deletes it.
            if leaning or self.outside.pop(path, None) is None:
                continue
            waiting.retried(partial(self.cluster.delete, path), may_pass, deadline - time.monotonic())

    def _place(self, item: Json) -> tuple[str, str]:
        """Where an object is in the API, and its namespace, which is taken out of one whose kind has none."""
        version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._kinds.get(version, {}):  # asked again: its CRD may have come meanwhile
            with contextlib.suppress(NotFoundError):
                resources = self.cluster.get(base)["resources"]
                self._kinds[version] = {one["kind"]: one for one in resources if "/" not in one["name"]}
        resource = self._kinds.get(version, {}).get(kind)
        if resource is None:
            lacks = f"this cluster does not know {version} {kind}; its CRD is not installed"
            raise TestbedError(f"apply {kind} {metadata['name']}: {lacks}")
        where = str(metadata.pop("namespace", "default"))
        if not resource["namespaced"]:
            return f"{base}/{resource['name']}/{metadata['name']}", ""
        metadata["namespace"] = where
        return f"{base}/namespaces/{where}/{resource['name']}/{metadata['name']}", where


def owner_of(item: Json) -> str:
    """The owner's id on an object of ours."""
    return str(item["metadata"]["labels"].get(OWNER))


def unprotected(listed: Mapping[str, Json], protected: Callable[[], Collection[str]]) -> dict[str, Json]:
    """Those of the objects whose owners are not to be spared; who is, is asked after the objects were listed."""
    living = protected() if listed else ()
    return {path: item for path, item in listed.items() if owner_of(item) not in living}


def delete_namespace(cluster: Cluster, name: str, owner_id: str, timeout_s: float) -> None:
    """Delete a namespace of this owner, by its uid, and wait until it is gone; what holds it is said."""
    if uid := begin_deletion(cluster, name, owner_id):
        wait.gone(cluster, f"/api/v1/namespaces/{name}", uid, timeout_s)


def begin_deletion(cluster: Cluster, name: str, owner_id: str) -> str:
    """Delete a namespace of this owner, by its uid, which is returned; empty where there is none that goes.

    One that was lent is emptied and given back instead.
    """
    path = f"/api/v1/namespaces/{name}"
    with contextlib.suppress(NotFoundError):
        metadata = cluster.get(path)["metadata"]
        labels = metadata.get("labels") or {}
        if labels.get(MANAGED_BY) == MANAGER and labels.get(OWNER) == owner_id:
            if labels.get(LENT):
                _give_back(cluster, metadata, owner_id)
                return ""
            cluster.delete(path, uid=metadata["uid"])
            return str(metadata["uid"])
    return ""


def _give_back(cluster: Cluster, namespace: Json, owner_id: str) -> None:
    """Delete what this owner made in a namespace that was lent, and take its words off it."""
    name = namespace["name"]
    kinds = [kind.format(f"namespaces/{name}") for kind in _KINDS]
    for crd in cluster.items(CRDS):
        spec = crd["spec"]
        version = next((one["name"] for one in spec["versions"] if one.get("served")), "")
        if spec["scope"] == "Namespaced" and version:
            kinds.append(f"/apis/{spec['group']}/{version}/namespaces/{name}/{spec['names']['plural']}")
    for kind in kinds:
        # Whoever may not do it with a kind has made none of it.
        with contextlib.suppress(TestbedError):
            cluster.delete(kind, labelSelector=f"{OWNER}={owner_id}")
    pods = f"/api/v1/namespaces/{name}/pods"
    left = waiting.until(lambda: cluster.items(pods), _EMPTY_S, 0.3, lambda pods_left: not pods_left)
    if left:
        raise TestbedError(f"namespace {name}: {len(left)} pods are still there after {_EMPTY_S:g} s; it stays ours")
    ours = [*(namespace.get("annotations") or {}).get(_BORROWED, "").split(","), _BORROWED]
    gone = {
        kind: {key: None for key in ours if key in (namespace.get(kind) or {})} for kind in ("labels", "annotations")
    }
    cluster.merge(f"/api/v1/namespaces/{name}", {"metadata": gone})
