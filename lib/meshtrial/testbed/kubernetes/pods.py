"""What the API server's pods say: who they are, what they run, whether they are still the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.manifests import NOTE
from meshtrial.testbed.kubernetes.meshdata import Selector

PART = f"{NOTE}part"


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


def restarts(pod: Json) -> int:
    """Restarts of all its containers."""
    status = pod.get("status", {})
    every = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return sum(int(c.get("restartCount", 0)) for c in every)


def images(pod: Json) -> dict[str, str]:
    """Image and digest of every container of a pod, as the node resolved it."""
    status, found = pod.get("status", {}), {}
    for container in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        digest = str(container.get("imageID", "")).rpartition("@")[2]
        found[str(container["name"])] = f"{container.get('image', '?')}" + (f" ({digest})" if digest else "")
    return found


def versions(pods: Sequence[Json]) -> dict[str, str]:
    """Every image that the containers of a name run, of all pods: more than one is said."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        for name, image in images(pod).items():
            found.setdefault(f"image {name}", set()).add(image)
    return {name: ", ".join(sorted(several)) for name, several in found.items()}


def autoscaling(cluster: Cluster, part: Selector) -> dict[str, Any]:
    """Replicas of a control plane's component now, and what an autoscaler would make of it."""
    found: dict[str, Any] = {"pods": len(wait.live_pods(cluster, part.namespace, part.selector))}
    try:
        scalers = cluster.items(f"/apis/autoscaling/v2/namespaces/{part.namespace}/horizontalpodautoscalers")
    except TestbedError:
        return found
    for item in scalers:
        if part.component in item["spec"]["scaleTargetRef"]["name"]:
            bounds = {key: item["spec"].get(key) for key in ("minReplicas", "maxReplicas")}
            found["autoscaler"] = bounds | {"current": item.get("status", {}).get("currentReplicas")}
    return found


def role(pod: Json) -> str:
    """What a pod is to a study: a part of ours by its label, else a part of a mesh."""
    if label(pod, "gateway.networking.k8s.io/gateway-name"):
        return "waypoint"
    part = label(pod, PART)
    owners = pod["metadata"].get("ownerReferences") or []
    return part or ("node agent" if any(owner.get("kind") == "DaemonSet" for owner in owners) else "control plane")


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
    if restarts(now) > restarts(pod):
        return f"{name}: a container was restarted {when}"
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] != "True":
            lost = condition.get("reason", "") or condition.get("message", "")
            return f"{name} is not ready any more ({lost or 'no reason given'}); its node may be gone"
    return ""
