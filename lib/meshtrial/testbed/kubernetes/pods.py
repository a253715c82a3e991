"""What the API server's pods say: who they are, what they run, whether they are still the same."""

from collections.abc import Sequence
from typing import Any

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import NOTE
from meshtrial.testbed.kubernetes.meshdata import Selector

PART = f"{NOTE}part"


def pods_of(cluster: Cluster, namespace: str, selector: str = "", once_s: float | None = None) -> list[Json]:
    """The pods of a namespace, of this label selector where there is one."""
    query = {"labelSelector": selector} if selector else {}
    return cluster.items(f"/api/v1/namespaces/{namespace}/pods", once_s, **query)


def live_pods(cluster: Cluster, namespace: str, selector: str = "") -> list[Json]:
    """Pods that are not being deleted."""
    return [pod for pod in pods_of(cluster, namespace, selector) if not pod["metadata"].get("deletionTimestamp")]


def members(cluster: Cluster, part: Selector) -> list[Json]:
    """The pods of a part of a mesh."""
    return live_pods(cluster, part.namespace, part.selector)


def log_of(cluster: Cluster, pod: Json, container: str, once_s: float | None = None, **query: Any) -> str:
    """A container's log."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    return cluster.text(path, once_s, container=container, **query)


def pod_ref(pod: Json, container: str) -> PodRef:
    """A container of a listed pod."""
    metadata = pod["metadata"]
    node, ip = pod["spec"].get("nodeName", ""), pod["status"].get("podIP", "")
    return PodRef(metadata["namespace"], metadata["name"], container, metadata["uid"], node, ip)


def label(pod: Json, name: str) -> str:
    """A label, empty where it is not there."""
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def uid(pod: Json) -> str:
    """Tells a pod from a later one of the same name."""
    return str(pod["metadata"]["uid"])


def is_ready(item: Json) -> bool:
    """Whether the Ready condition of a pod, or of a node, is true."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def owner_kinds(pod: Json) -> set[str]:
    """Kinds of what the pod belongs to: ``ReplicaSet``, ``Job``..."""
    return {str(owner.get("kind")) for owner in pod["metadata"].get("ownerReferences") or []}


def statuses(pod: Json) -> list[Json]:
    """States of the init containers and containers."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def container_names(pod: Json) -> list[str]:
    """Containers that run as long as the pod: the ordinary ones and native sidecars."""
    spec = pod["spec"]
    sidecars = [c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return [*(c["name"] for c in spec["containers"]), *sidecars]


def images(pod: Json) -> dict[str, str]:
    """Image and digest of every container of a pod, as the node resolved it."""
    told = {}
    for container in statuses(pod):
        digest = str(container.get("imageID", "")).rpartition("@")[2]
        told[str(container["name"])] = f"{container.get('image', '?')}" + (f" ({digest})" if digest else "")
    return told


def versions(pods: Sequence[Json]) -> dict[str, str]:
    """Every image that the containers of a name run, of all pods: more than one is said."""
    told: dict[str, set[str]] = {}
    for pod in pods:
        for name, image in images(pod).items():
            told.setdefault(f"image {name}", set()).add(image)
    return {name: ", ".join(sorted(several)) for name, several in told.items()}


def autoscaling(cluster: Cluster, part: Selector) -> dict[str, Any]:
    """Replicas of a control plane's component now, and what an autoscaler would make of it."""
    size: dict[str, Any] = {"pods": len(members(cluster, part))}
    try:
        scalers = cluster.items(f"/apis/autoscaling/v2/namespaces/{part.namespace}/horizontalpodautoscalers")
    except TestbedError:
        return size
    for item in scalers:
        if part.component in item["spec"]["scaleTargetRef"]["name"]:
            bounds = {key: item["spec"].get(key) for key in ("minReplicas", "maxReplicas")}
            size["autoscaler"] = bounds | {"current": item.get("status", {}).get("currentReplicas")}
    return size


def role(pod: Json) -> str:
    """What a pod is to a study: a part of ours by its label, else a part of a mesh."""
    if label(pod, "gateway.networking.k8s.io/gateway-name"):
        return "waypoint"
    return label(pod, PART) or ("node agent" if "DaemonSet" in owner_kinds(pod) else "control plane")


def lost(pod: Json, now: Json | None, when: str = "during the run") -> str:
    """How a pod differs now from the one that was looked at before; empty when it is as it was."""
    metadata, part = pod["metadata"], role(pod)
    where = f" in {metadata['namespace']}" if part in ("control plane", "node agent") else ""
    name = f"{part} pod {metadata['name']}{where} on node {pod['spec'].get('nodeName')}"
    if now is None:
        return f"{name} was deleted {when}"
    status = now["status"]
    if status.get("phase") == "Failed":
        return f"{name} failed {when}: {status.get('reason', '')} {status.get('message', '')}".strip()
    if now["metadata"].get("deletionTimestamp"):
        why: Json = next((c for c in status.get("conditions") or [] if c["type"] == "DisruptionTarget"), {})
        return f"{name} was evicted or deleted {when}{': ' + why['message'] if why.get('message') else ''}"
    if _restarts(now) > _restarts(pod):
        return f"{name}: a container was restarted {when}"
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] != "True":
            why_not = condition.get("reason", "") or condition.get("message", "")
            return f"{name} is not ready any more ({why_not or 'no reason given'}); its node may be gone"
    return ""


def _restarts(pod: Json) -> int:
    return sum(int(status.get("restartCount", 0)) for status in statuses(pod))
