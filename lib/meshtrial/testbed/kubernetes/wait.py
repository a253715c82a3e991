"""Waiting with reasons: what will not come true by waiting is said at once, with the event's own text."""

import time
from collections.abc import Callable, Iterable, Sequence

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes import evidence
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.pods import is_ready, live_pods, pods_of

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
    "Unschedulable": "",
    "Failed": "",
}
# What to do next where the words name the cause.
_CAUSES = {
    "runAsNonRoot": "set runAsUser in its manifest or its chart's values, or take an image that names its user",
    "anti-affinity": "give generators and application nodes of their own: load_node_selector, app_node_selector",
}
_UNSCHEDULABLE, _AWAY = "unschedulable: ", "; nodes that are not ready: "
# A scheduler may still count pods that have just been deleted (its view lags, most of all when the API server was
# away), so a pod that finds no node is given this long; everything else in the list above is final. A node that is
# not ready may come back: 45 s without an API server left one unreachable for 80 s more.
_UNSCHEDULABLE_S, _AWAY_S, _FINAL_S = 15.0, 90.0, 2.0


class _Problem:
    """A problem that has lasted without a break for as long as its kind may take to go away."""

    def __init__(self) -> None:
        self.words, self._since = "", 0.0

    def final(self, words: str) -> bool:
        now = time.monotonic()
        if words != self.words:
            self.words, self._since = words, now
        patience_s = _AWAY_S if _AWAY in words else _UNSCHEDULABLE_S if _UNSCHEDULABLE in words else _FINAL_S
        return bool(words) and now - self._since > patience_s


def gone(cluster: Cluster, path: str, uid: str, timeout_s: float) -> None:
    """Wait until the object with this uid is gone."""

    def still_exists() -> Json | None:
        try:
            there = cluster.get(path)
        except NotFoundError:
            return None
        return there if there["metadata"]["uid"] == uid else None

    left = waiting.until(still_exists, timeout_s, 0.3, lambda there: there is None)
    if left is not None:
        raise TestbedError(f"{path}: still there after {timeout_s:g} s{_held_by(left)}")


def pods_ready(
    cluster: Cluster, namespace: str, selector: str, count: int, timeout_s: float, settle: Sequence[str] = ()
) -> list[Json]:
    """Wait until this many pods are ready, and return them.

    At least so many, all there are; an empty selector is every pod of the namespace. Reasons to ``settle`` are waited
    out (a mesh whose agents crash until its control plane stands). What cannot come up is told within seconds, else at
    the time-out, with the pods' states and events.
    """
    return _pods(cluster, namespace, selector, count, timeout_s, settle, "ready", is_ready)


def pods_placed(cluster: Cluster, namespace: str, selector: str, count: int, timeout_s: float) -> None:
    """Wait until this many pods have a node; what stops them is said within seconds."""

    def is_placed(pod: Json) -> bool:
        return bool(pod["spec"].get("nodeName"))

    _pods(cluster, namespace, selector, count, timeout_s, (), "placed", is_placed)


def _pods(
    cluster: Cluster,
    namespace: str,
    selector: str,
    count: int,
    timeout_s: float,
    settle: Sequence[str],
    state: str,
    has_it: Callable[[Json], bool],
) -> list[Json]:
    lasting = _Problem()

    def have_it(pods: Sequence[Json]) -> bool:
        if len(pods) >= count and all(map(has_it, pods)):
            return True
        problem = first_problem(pods, settle) or (_quota(cluster, namespace) if len(pods) < count else "")
        if _UNSCHEDULABLE in problem:
            problem += _away(cluster)
        if lasting.final(problem):
            raise TestbedError(_explain(cluster, namespace, pods, problem))
        return False

    pods = waiting.until(lambda: live_pods(cluster, namespace, selector), timeout_s, 0.2, have_it)
    having = sum(map(has_it, pods))
    if having < max(count, len(pods)):
        late = f"{having} of {max(count, len(pods))} pods {state} after {timeout_s:g} s"
        raise TestbedError(_explain(cluster, namespace, pods, "; ".join(filter(None, (late, lasting.words)))))
    return pods


def first_problem(pods: Iterable[Json], settle: Sequence[str] = ()) -> str:
    """The first thing that waiting will not mend; empty when there is none."""
    for pod in pods:
        for reason, words in evidence.symptoms(pod):
            if reason in _HOPELESS and reason not in settle:
                told = (step for cause, step in _CAUSES.items() if cause in words)
                next_step = next(told, _HOPELESS[reason])
                return f"pod {pod['metadata']['name']}: {words}" + (f" ({next_step})" if next_step else "")
    return ""


def _lost_nodes(cluster: Cluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.items("/api/v1/nodes") if not is_ready(item)}


def _away(cluster: Cluster) -> str:
    # Schedulers say "untolerated taint" and not whose; nodes may be hidden from who runs this, then nothing is added.
    try:
        lost = _lost_nodes(cluster)
    except TestbedError:
        return ""
    return _AWAY + ", ".join(sorted(lost)) if lost else ""


def _quota(cluster: Cluster, namespace: str) -> str:
    # A pod refused by quota or admission does not exist: only the ReplicaSet's events tell.
    for event in evidence.warnings(cluster, namespace):
        if event.get("reason") == "FailedCreate":
            return f"{event['involvedObject'].get('name', '?')}: {event.get('message', '')}"
    return ""


def _explain(cluster: Cluster, namespace: str, pods: Sequence[Json], problem: str) -> str:
    lines = [f"namespace {namespace}: {problem}"]
    warned = evidence.warnings(cluster, namespace)
    events = [f"{event.get('reason')}: {evidence.one_line(event.get('message'))}" for event in warned]
    fresh = [text for text in dict.fromkeys(events) if text not in problem][:2]
    if fresh:
        lines.append("events: " + " | ".join(text[:300] for text in fresh))
    # Also of a container that is waited for although it crashes: at the time-out its words are what explains it.
    lines.append(next((words for words in (evidence.last_log_lines(cluster, pod) for pod in pods) if words), ""))
    return "; ".join(line for line in lines if line)


def force_lost_pods(cluster: Cluster, namespace: str) -> None:
    """Delete at once what stands on nodes that are gone: no kubelet is there to confirm, the namespace would hang.

    Needs a right that ``rbac.yaml`` does not give; without it the namespace goes when its node is back or removed.
    """
    try:
        lost = _lost_nodes(cluster)
        for pod in pods_of(cluster, namespace) if lost else ():
            if pod["spec"].get("nodeName") in lost:
                path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                cluster.delete(path, grace_s=0, uid=pod["metadata"]["uid"])
    except TestbedError:
        return


def _held_by(item: Json) -> str:
    for condition in item.get("status", {}).get("conditions") or []:
        if condition.get("status") == "True":
            return f": {condition.get('message', '')}"
    finalizers = item["metadata"].get("finalizers") or item.get("spec", {}).get("finalizers") or []
    return f": held by {', '.join(finalizers)}" if finalizers else ""


def until(condition: Callable[[], str], timeout_s: float, every_s: float) -> None:
    """Wait until the condition returns an empty text; the last text is the error's."""
    missing = waiting.until(condition, timeout_s, every_s, lambda text: not text)
    if missing:
        raise TestbedError(f"{missing} (after {timeout_s:g} s)")
