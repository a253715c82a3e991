"""Waiting with reasons: what will not come true by waiting is said at once, with the event's own text."""

import datetime
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.pods import is_ready, label, live_pods, log_of, owner_kinds, pods_of, statuses, uid

# --- evidence ---------------------------------------------------------------------------------------------------------

_PODS = 20
_LOG_LINES, _LOG_CHARACTERS = 20_000, 1 << 20
_LAST_LINES = 3
_ONCE_S = 10.0  # whoever waits for this has a failure to report
# What a container waits for in the normal course of things.
_NORMAL = {"ContainerCreating", "PodInitializing"}


@contextmanager
def with_evidence(cluster: Cluster, namespaces: Iterable[str]) -> Iterator[None]:
    """A TestbedError that leaves this block carries the evidence of these namespaces.

    Enter it inside of whatever removes the namespaces on failure.
    """
    try:
        yield
    except TestbedError as error:
        error.evidence = {**gather_evidence(cluster, namespaces), **error.evidence}
        raise


def gather_evidence(cluster: Cluster, namespaces: Iterable[str]) -> dict[str, str]:
    """File name to text: events, pods and logs of these namespaces; what cannot be had now is left out."""
    files: dict[str, str] = {}
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_now(cluster, namespace)
        except TestbedError:
            continue
        events = "".join(map(_event_line, sorted(_events(cluster, namespace), key=_moment)))
        for key, text in (("pods", "".join(map(_pod_line, pods))), ("events", events)):
            if text:
                files[f"failed-{namespace}-{key}.txt"] = text
        for pod in sorted(pods, key=_is_fine)[:_PODS]:
            files |= pod_logs(cluster, pod)
    return files


def pods_now(cluster: Cluster, namespace: str) -> list[Json]:
    """The pods of a namespace now; a server that is silent is not waited for."""
    return pods_of(cluster, namespace, once_s=_ONCE_S)


def pod_logs(cluster: Cluster, pod: Json) -> dict[str, str]:
    """Logs of a pod's containers, and of those that ended before them."""
    metadata = pod["metadata"]
    files = {}
    for status in statuses(pod):
        name = f"failed-{metadata['namespace']}-{metadata['name']}-{status['name']}"
        wanted = {f"{name}.log": "false"}
        if status.get("restartCount"):
            wanted[f"{name}-previous.log"] = "true"
        for file, previous in wanted.items():
            with suppress(TestbedError):
                text = log_of(cluster, pod, status["name"], _ONCE_S, previous=previous, tailLines=_LOG_LINES)
                if text:
                    files[file] = text[-_LOG_CHARACTERS:]
    return files


def warning_events(cluster: Cluster, namespace: str) -> list[Json]:
    """Warnings of a namespace, newest first; none where they may not be read."""
    return sorted(_events(cluster, namespace, fieldSelector="type=Warning"), key=_moment, reverse=True)


def _events(cluster: Cluster, namespace: str, **query: str) -> list[Json]:
    try:
        return cluster.items(f"/api/v1/namespaces/{namespace}/events", _ONCE_S, **query)
    except TestbedError:
        return []


def failure_reason(cluster: Cluster, namespaces: Iterable[str]) -> str:
    """Why something does not come up there, in a line: the first bad pod with its last words, else a warning."""
    warned: list[Json] = []
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_now(cluster, namespace)
        except TestbedError:
            continue
        # Hooks first: whoever waits for one waits for nothing else.
        for pod in sorted(pods, key=lambda item: not is_hook(item)):
            said = trouble(pod)
            if said:
                return "; ".join(part for part in (said, last_words(cluster, pod)) if part)
        warned += warning_events(cluster, namespace)
    if not warned:
        return ""
    newest = max(warned, key=_moment)
    who = newest.get("involvedObject", {}).get("name", "?")
    return f"last warning: {who}: {newest.get('reason')}: {one_line(newest.get('message'))[:300]}"


def symptoms(pod: Json) -> Iterator[tuple[str, str]]:
    """What a pod says of itself: a reason as Kubernetes names it (none for a container that ended), and words."""
    status = pod.get("status", {})
    failed = status.get("phase") == "Failed"
    if failed and status.get("reason"):
        yield "Failed", f"{status['reason']}: {one_line(status.get('message')) or 'no message'}"
    for container in statuses(pod):
        name, state = container["name"], container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        crashed = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason"):
            yield waiting["reason"], f"container {name}: {waiting['reason']}: {one_line(waiting.get('message'))}"
        bad = ended if ended.get("exitCode") else crashed if not container.get("ready") else {}
        if bad.get("exitCode"):
            code = f"{bad.get('reason', 'ended')}, exit {bad['exitCode']}"
            yield "", f"container {name}: {code} {one_line(bad.get('message'))}".rstrip()
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable":
            yield "Unschedulable", f"unschedulable: {one_line(condition.get('message'))}"
    if failed and not status.get("reason"):
        yield "Failed", "failed: no message"


def trouble(pod: Json) -> str:
    """What is wrong with a pod, in its own words; empty where nothing is."""
    words = next((words for reason, words in symptoms(pod) if reason not in _NORMAL), "")
    return f"pod {pod['metadata']['name']}: {words}" if words else ""


def last_words(cluster: Cluster, pod: Json) -> str:
    """The last log lines of the pod's container that crashed, else of one that runs and is not ready; may be empty."""
    for container, previous, _ in sorted(_speakers(pod), key=lambda speaker: speaker[2])[:3]:
        with suppress(TestbedError):
            words = one_line(log_of(cluster, pod, container, _ONCE_S, previous=previous, tailLines=_LAST_LINES))
            if words:
                return f"last log lines of {container}: {words[-400:]}"
    return ""


def _speakers(pod: Json) -> Iterator[tuple[str, str, int]]:
    """Containers that may say why a pod is not ready: name, whether the log before counts, and how late to ask."""
    for container in statuses(pod):
        state = container.get("state") or {}
        before = (container.get("lastState") or {}).get("terminated") or {}
        if (state.get("terminated") or {}).get("exitCode"):
            yield container["name"], "false", 0
        elif container.get("ready"):
            continue
        elif before.get("exitCode"):
            yield container["name"], "true", 0
        elif "running" in state:
            yield container["name"], "false", 1


def is_hook(pod: Json) -> bool:
    """Whether it belongs to a Job, as the pods of Helm's hooks do."""
    return "Job" in owner_kinds(pod)


def _is_fine(pod: Json) -> bool:
    return is_ready(pod) or pod.get("status", {}).get("phase") == "Succeeded"


def _pod_line(pod: Json) -> str:
    status, spec = pod.get("status", {}), pod.get("spec", {})
    lines = [f"{pod['metadata']['name']} on {spec.get('nodeName') or 'no node'}: {status.get('phase', '?')}"]
    for condition in status.get("conditions") or []:
        if condition["status"] != "True" and (condition.get("reason") or condition.get("message")):
            lines.append(f"  {condition['type']}: {condition.get('reason', '')} {one_line(condition.get('message'))}")
    for container in statuses(pod):
        state = json.dumps(container.get("state") or {}, sort_keys=True)
        before = json.dumps(container["lastState"], sort_keys=True) if container.get("lastState") else ""
        restarts = f", {container['restartCount']} restarts, before: {before}" if container.get("restartCount") else ""
        lines.append(f"  {container['name']} ({container.get('image', '?')}): {state}{restarts}")
    return "\n".join(lines) + "\n"


def _event_line(event: Json) -> str:
    about = event.get("involvedObject", {})
    times = f" (x{event['count']})" if (event.get("count") or 1) > 1 else ""
    who = f"{about.get('kind', '?')}/{about.get('name', '?')}"
    return (
        f"{_moment(event)} {event.get('type')} {event.get('reason')} {who}{times}: {one_line(event.get('message'))}\n"
    )


def _moment(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def one_line(text: object) -> str:
    """A text without its line breaks; empty for none."""
    return " ".join(str(text or "").split())


# --- waiting ----------------------------------------------------------------------------------------------------------

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

    def is_left() -> Json | None:
        try:
            there = cluster.get(path)
        except NotFoundError:
            return None
        return there if there["metadata"]["uid"] == uid else None

    left = waiting.until(is_left, timeout_s, 0.3, lambda there: there is None)
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
        for reason, words in symptoms(pod):
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
    for event in warning_events(cluster, namespace):
        if event.get("reason") == "FailedCreate":
            return f"{event['involvedObject'].get('name', '?')}: {event.get('message', '')}"
    return ""


def _explain(cluster: Cluster, namespace: str, pods: Sequence[Json], problem: str) -> str:
    lines = [f"namespace {namespace}: {problem}"]
    warned = warning_events(cluster, namespace)
    events = [f"{event.get('reason')}: {one_line(event.get('message'))}" for event in warned]
    fresh = [text for text in dict.fromkeys(events) if text not in problem][:2]
    if fresh:
        lines.append("events: " + " | ".join(text[:300] for text in fresh))
    # Also of a container that is waited for although it crashes: at the time-out its words are what explains it.
    lines.append(next((words for words in (last_words(cluster, pod) for pod in pods) if words), ""))
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


# --- rolling restarts -------------------------------------------------------------------------------------------------

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


def restart_pods(cluster: Cluster, pods: Sequence[Json], timeout_s: float) -> None:
    """Replace these pods; returns when all are gone and as many others are ready, else says what is missing."""
    old: dict[Workload, list[Json]] = {}
    for pod in pods:
        old.setdefault(workload_of(pod), []).append(pod)
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    template: dict[str, Any] = {"metadata": {"annotations": {RESTARTED_AT: stamp}}}
    for namespace, kind, name in old:
        cluster.merge(f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}", {"spec": {"template": template}})
    until(lambda: next(filter(None, (_not_replaced(cluster, *item) for item in old.items())), ""), timeout_s, 0.2)


def _not_replaced(cluster: Cluster, workload: Workload, before: Sequence[Json]) -> str:
    namespace, kind, name = workload
    now = pods_of(cluster, namespace)
    left = {uid(pod) for pod in now} & {uid(pod) for pod in before}
    fresh = [pod for pod in _pods_of_workload(now, workload) if uid(pod) not in left]
    ready = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in fresh)
    if left or ready < len(before):
        return f"{kind} {name} in {namespace}: {ready} of {len(before)} new pods ready, {len(left)} old ones left"
    return ""


def _pods_of_workload(pods: Iterable[Json], workload: Workload) -> list[Json]:
    return [pod for pod in pods if owner_kinds(pod) & set(_KINDS) and workload_of(pod) == workload]
