"""A rolling restart of what some pods belong to, as ``kubectl rollout restart`` does it, and its end.

The template's annotation is patched, so that the workload's own strategy replaces the pods. The end is read off the
pods, not off the workload's status: a right that a least account has anyway.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.pods import is_ready, label, owner_kinds, pods_of, uid

# kubectl's own, so that the two do not fight over a workload (kubectl/pkg/polymorphichelpers/objectrestarter.go).
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_KINDS = {"ReplicaSet": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}

Workload = tuple[str, str, str]  # namespace, plural kind, name


def workload_of(pod: Json) -> Workload:
    """What a pod belongs to; a TestbedError for one that nothing would replace."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        if kind == "ReplicaSet":
            # A Deployment names its ReplicaSets after itself and the hash of their template.
            name = name.removesuffix("-" + label(pod, "pod-template-hash"))
        if kind in _KINDS:
            return str(metadata["namespace"]), _KINDS[kind], name
    raise TestbedError(f"pod {metadata['name']}: belongs to nothing that would replace it")


def restart(cluster: Cluster, pods: Sequence[Json], timeout_s: float) -> None:
    """Replace these pods; returns when all are gone and as many others are ready, else says what is missing."""
    old: dict[Workload, list[Json]] = {}
    for pod in pods:
        old.setdefault(workload_of(pod), []).append(pod)
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    template: dict[str, Any] = {"metadata": {"annotations": {RESTARTED_AT: stamp}}}
    for namespace, kind, name in old:
        cluster.merge(f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}", {"spec": {"template": template}})
    wait.until(lambda: next(filter(None, (_missing(cluster, *item) for item in old.items())), ""), timeout_s, 0.2)


def _missing(cluster: Cluster, workload: Workload, before: Sequence[Json]) -> str:
    namespace, kind, name = workload
    now = pods_of(cluster, namespace)
    left = {uid(pod) for pod in now} & {uid(pod) for pod in before}
    fresh = [pod for pod in _members(now, workload) if uid(pod) not in left]
    ready = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in fresh)
    if left or ready < len(before):
        return f"{kind} {name} in {namespace}: {ready} of {len(before)} new pods ready, {len(left)} old ones left"
    return ""


def _members(pods: Iterable[Json], workload: Workload) -> list[Json]:
    return [pod for pod in pods if owner_kinds(pod) & set(_KINDS) and workload_of(pod) == workload]
