"""Waiting with reasons: what will not come true by waiting is said at once, with the event's own text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import evidence
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError

# Reasons after which no waiting helps, and what to do next.
_HOPELESS = {
    "ImagePullBackOff": "check images=NAME=REFERENCE and the node's access to the registry",
    "ErrImagePull": "check images=NAME=REFERENCE and the node's access to the registry",
    "ErrImageNeverPull": "load the image onto every node, or set image_pull_policy=IfNotPresent",
    "InvalidImageName": "check images=NAME=REFERENCE",
    "CrashLoopBackOff": "its last log lines follow, where it wrote any",
    "CreateContainerConfigError": "a ConfigMap or Secret that it names is missing",
    "CreateContainerError": "the container runtime refused it",
    "RunContainerError": "the container runtime refused it",
}
_AS_ROOT = "set runAsUser in its manifest or its chart's values, or take an image that names its user"

_UNSCHEDULABLE = "unschedulable: "
# A scheduler may still count pods that have just been deleted (its view lags, most of all when the API server was
# away), so a pod that finds no node is given this long; everything else in the list above is final.
_UNSCHEDULABLE_S, _FINAL_S = 15.0, 2.0


class _Standing:
    """A problem that has stood without a break for as long as its kind may take to go away."""

    def __init__(self) -> None:
        self._problem, self._since = "", 0.0

    def final(self, problem: str) -> bool:
        now = time.monotonic()
        if problem != self._problem:
            self._problem, self._since = problem, now
        patience = _UNSCHEDULABLE_S if _UNSCHEDULABLE in problem else _FINAL_S
        return bool(problem) and now - self._since > patience


def gone(cluster: Cluster, path: str, uid: str, timeout_s: float) -> None:
    """Wait until the object with this uid is gone."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = cluster.get(path)
        except NotFoundError:
            return
        if found["metadata"]["uid"] != uid:
            return
        if time.monotonic() > deadline:
            raise TestbedError(f"{path}: still there after {timeout_s:g} s{_held_by(found)}")
        time.sleep(0.3)


def pods_ready(
    cluster: Cluster, namespace: str, selector: str, count: int, timeout_s: float, settle: Sequence[str] = ()
) -> list[Json]:
    """Wait until this many pods are ready, and return them.

    Parameters
    ----------
    selector : str
        Label selector; empty for every pod of the namespace.
    count : int
        At least so many; pods that are being deleted do not count.
    settle : sequence of str
        Reasons that are waited out (a mesh whose agents crash until its control plane stands).

    Raises
    ------
    TestbedError
        Within seconds for a pod that cannot come up, else at the time-out, with the pods' states and events.
    """
    began, standing = time.monotonic(), _Standing()
    while True:
        pods = live_pods(cluster, namespace, selector)
        if len(pods) >= count and all(is_ready(pod) for pod in pods):
            return pods
        problem = first_problem(pods, settle) or (_quota(cluster, namespace) if len(pods) < count else "")
        if standing.final(problem):
            raise TestbedError(_explain(cluster, namespace, pods, problem))
        if time.monotonic() - began > timeout_s:
            ready = sum(is_ready(pod) for pod in pods)
            raise TestbedError(
                _explain(
                    cluster, namespace, pods, f"{ready} of {max(count, len(pods))} pods ready after {timeout_s:g} s"
                )
            )
        time.sleep(0.2)


def pods_placed(cluster: Cluster, namespace: str, selector: str, count: int, timeout_s: float) -> None:
    """Wait until this many pods have a node; what stops them is said within seconds."""
    began, standing = time.monotonic(), _Standing()
    while True:
        pods = live_pods(cluster, namespace, selector)
        if len(pods) >= count and all(pod["spec"].get("nodeName") for pod in pods):
            return
        problem = first_problem(pods) or (_quota(cluster, namespace) if len(pods) < count else "")
        waited = time.monotonic() - began
        if standing.final(problem) or waited > timeout_s:
            raise TestbedError(_explain(cluster, namespace, pods, problem or f"no node after {timeout_s:g} s"))
        time.sleep(0.2)


def live_pods(cluster: Cluster, namespace: str, selector: str = "") -> list[Json]:
    """Pods that are not being deleted."""
    query = {"labelSelector": selector} if selector else {}
    found = cluster.items(f"/api/v1/namespaces/{namespace}/pods", **query)
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def is_ready(pod: Json) -> bool:
    """Whether the pod runs and its Ready condition is true."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def first_problem(pods: Iterable[Json], settle: Sequence[str] = ()) -> str:
    """The first thing that waiting will not mend; empty when there is none."""
    for pod in pods:
        problem = _problem(pod, settle)
        if problem:
            return f"pod {pod['metadata']['name']}: {problem}"
    return ""


def _problem(pod: Json, settle: Sequence[str]) -> str:
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return f"{status.get('reason', 'failed')}: {status.get('message', 'no message')}"
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable" and "Unschedulable" not in settle:
            message = str(condition.get("message", ""))
            pools = "give generators and application nodes of their own: load_node_selector, app_node_selector"
            return _UNSCHEDULABLE + message + (f" ({pools})" if "anti-affinity" in message else "")
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in _HOPELESS and reason not in settle:
            message = str(waiting.get("message", ""))
            next_step = _AS_ROOT if "runAsNonRoot" in message else _HOPELESS[reason]
            return f"container {container['name']}: {reason}: {message} ({next_step})"
    return ""


def _quota(cluster: Cluster, namespace: str) -> str:
    # A pod refused by quota or admission does not exist: only the ReplicaSet's events tell.
    for event in recent_events(cluster, namespace):
        if event.get("reason") == "FailedCreate":
            return f"{event['involvedObject'].get('name', '?')}: {event.get('message', '')}"
    return ""


def recent_events(cluster: Cluster, namespace: str) -> list[Json]:
    """Warnings of a namespace, newest first; none where they may not be read."""
    try:
        found = cluster.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector="type=Warning")
    except TestbedError:
        return []
    return sorted(found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), reverse=True)


def _explain(cluster: Cluster, namespace: str, pods: Sequence[Json], problem: str) -> str:
    lines = [f"namespace {namespace}: {problem}"]
    events = [
        f"{e.get('reason')}: {' '.join(str(e.get('message', '')).split())}" for e in recent_events(cluster, namespace)
    ]
    fresh = [text for text in dict.fromkeys(events) if text not in problem][:2]
    if fresh:
        lines.append("events: " + " | ".join(text[:300] for text in fresh))
    # Also of a container that is waited for although it crashes: at the time-out its words are what explains it.
    lines.append(next((words for words in (evidence.last_words(cluster, pod) for pod in pods) if words), ""))
    return "; ".join(line for line in lines if line)


def force_lost_pods(cluster: Cluster, namespace: str) -> None:
    """Delete at once what stands on nodes that are gone: no kubelet is there to confirm, the namespace would hang.

    Needs a right that ``rbac.yaml`` does not give; without it the namespace goes when its node is back or removed.
    """
    try:
        lost = {
            item["metadata"]["name"]
            for item in cluster.items("/api/v1/nodes")
            if not any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions") or [])
        }
        pods = cluster.items(f"/api/v1/namespaces/{namespace}/pods") if lost else []
        for pod in pods:
            if pod["spec"].get("nodeName") in lost:
                path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                cluster.delete(path, grace_s=0, uid=pod["metadata"]["uid"])
    except TestbedError:
        return


def _held_by(found: Json) -> str:
    for condition in found.get("status", {}).get("conditions") or []:
        if condition.get("status") == "True":
            return f": {condition.get('message', '')}"
    finalizers = found["metadata"].get("finalizers") or found.get("spec", {}).get("finalizers") or []
    return f": held by {', '.join(finalizers)}" if finalizers else ""


def until(condition: Callable[[], str], timeout_s: float, every_s: float = 0.3) -> None:
    """Wait until the condition returns an empty text; the last text is the error's."""
    deadline = time.monotonic() + timeout_s
    while True:
        missing = condition()
        if not missing:
            return
        if time.monotonic() > deadline:
            raise TestbedError(f"{missing} (after {timeout_s:g} s)")
        time.sleep(every_s)
