"""Wait for pods and objects, and explain why they do not start.

A problem that waiting cannot solve ends the wait within seconds, with the event's own text. The message of an error is
short enough for a line on a terminal. The evidence (``error.evidence``), which a run keeps in its ``logs/``, is
everything: events, states of the pods, logs of their containers and of those that crashed before them. Evidence is read
in one attempt, so that it delays no failure.
"""

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

# Evidence covers at most this many pods of a namespace, unready ones first, and the last mebibyte of each log.
_PODS = 20
_LOG_LINES, _LOG_CHARACTERS = 20_000, 1 << 20
_LAST_LINES = 3
_ONCE_S = 10.0  # for one attempt to read evidence
# Reasons for which a container waits normally.
_NORMAL = {"ContainerCreating", "PodInitializing"}


@contextmanager
def with_evidence(cluster: Cluster, namespaces: Iterable[str]) -> Iterator[None]:
    """Add the evidence of these namespaces to a TestbedError that leaves this block.

    Enter it inside the block that removes the namespaces on failure.
    """
    try:
        yield
    except TestbedError as error:
        error.evidence = {**gather_evidence(cluster, namespaces), **error.evidence}
        raise


def gather_evidence(cluster: Cluster, namespaces: Iterable[str]) -> dict[str, str]:
    """Return, by file name, the events, pods and logs of these namespaces that can be read now."""
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
        pods.sort(key=lambda pod: is_ready(pod) or pod.get("status", {}).get("phase") == "Succeeded")
        for pod in pods[:_PODS]:
            files |= pod_logs(cluster, pod)
    return files


def pods_now(cluster: Cluster, namespace: str) -> list[Json]:
    """Return the pods of a namespace; a silent API server is not waited for."""
    return pods_of(cluster, namespace, once_s=_ONCE_S)


def pod_logs(cluster: Cluster, pod: Json) -> dict[str, str]:
    """Return, by file name, the logs of a pod's containers and of those that ended before them."""
    metadata = pod["metadata"]
    files = {}
    for status in statuses(pod):
        name = f"failed-{metadata['namespace']}-{metadata['name']}-{status['name']}"
        previous_of = {f"{name}.log": "false"}
        if status.get("restartCount"):
            previous_of[f"{name}-previous.log"] = "true"
        for file, previous in previous_of.items():
            with suppress(TestbedError):
                text = log_of(cluster, pod, status["name"], _ONCE_S, previous=previous, tailLines=_LOG_LINES)
                if text:
                    files[file] = text[-_LOG_CHARACTERS:]
    return files


def warning_events(cluster: Cluster, namespace: str) -> list[Json]:
    """Return the warnings of a namespace, newest first; none where they cannot be read."""
    return sorted(_events(cluster, namespace, fieldSelector="type=Warning"), key=_moment, reverse=True)


def _events(cluster: Cluster, namespace: str, **query: str) -> list[Json]:
    try:
        return cluster.items(f"/api/v1/namespaces/{namespace}/events", _ONCE_S, **query)
    except TestbedError:
        return []


def failure_reason(cluster: Cluster, namespaces: Iterable[str]) -> str:
    """Return why something does not come up in these namespaces: the first bad pod, else the last warning."""
    events: list[Json] = []
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_now(cluster, namespace)
        except TestbedError:
            continue
        # Hooks first: Helm waits for nothing else meanwhile.
        for pod in sorted(pods, key=lambda item: not is_hook(item)):
            problem = pod_problem(pod)
            if problem:
                return "; ".join(part for part in (problem, last_log_lines(cluster, pod)) if part)
        events += warning_events(cluster, namespace)
    if not events:
        return ""
    newest = max(events, key=_moment)
    who = newest.get("involvedObject", {}).get("name", "?")
    return f"last warning: {who}: {newest.get('reason')}: {one_line(newest.get('message'))[:300]}"


def symptoms(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield what a pod reports: a reason as Kubernetes names it (empty for an ended container), and a text."""
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


def pod_problem(pod: Json) -> str:
    """Return what is wrong with a pod as it reports it, or an empty text."""
    words = next((words for reason, words in symptoms(pod) if reason not in _NORMAL), "")
    return f"pod {pod['metadata']['name']}: {words}" if words else ""


def last_log_lines(cluster: Cluster, pod: Json) -> str:
    """Return the last log lines of the pod's crashed container, else of one that runs and is not ready."""
    for container, previous, _ in sorted(_log_containers(pod), key=lambda candidate: candidate[2])[:3]:
        with suppress(TestbedError):
            words = one_line(log_of(cluster, pod, container, _ONCE_S, previous=previous, tailLines=_LAST_LINES))
            if words:
                return f"last log lines of {container}: {words[-400:]}"
    return ""


def _log_containers(pod: Json) -> Iterator[tuple[str, str, int]]:
    """Yield containers whose log may explain a pod: name, whether the previous log counts, and priority."""
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
    """Return whether the pod belongs to a Job, as the pods of Helm's hooks do."""
    return "Job" in owner_kinds(pod)


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
    """Return a text without line breaks."""
    return " ".join(str(text or "").split())


# --- waiting ----------------------------------------------------------------------------------------------------------

# Reasons that waiting does not repair, and what to do.
_FINAL = {
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
# What to do where the text names the cause.
_CAUSES = {
    "runAsNonRoot": "set runAsUser in its manifest or its chart's values, or take an image that names its user",
    "anti-affinity": "give generators and application nodes of their own: load_node_selector, app_node_selector",
}
_UNSCHEDULABLE, _AWAY = "unschedulable: ", "; nodes that are not ready: "
# A scheduler may still count pods that have just been deleted, above all after an outage of the API server, so a pod
# that finds no node is waited for this long. Every other reason is final. A node that is not ready may return: after
# 45 s without an API server, one was unreachable for another 80 s.
_UNSCHEDULABLE_S, _AWAY_S, _FINAL_S = 15.0, 90.0, 2.0


def gone(cluster: Cluster, path: str, uid: str, timeout_s: float) -> None:
    """Wait until the object with this uid is gone."""

    def remaining() -> Json | None:
        try:
            found = cluster.get(path)
        except NotFoundError:
            return None
        return found if found["metadata"]["uid"] == uid else None

    item = waiting.until(remaining, timeout_s, 0.3, lambda found: found is None)
    if item is not None:
        raise TestbedError(f"{path}: still exists after {timeout_s:g} s{_held_by(item)}")


def pods_ready(
    cluster: Cluster,
    namespace: str,
    selector: str,
    count: int,
    timeout_s: float,
    settle: Sequence[str] = (),
    state: str = "ready",
    is_done: Callable[[Json], bool] = is_ready,
) -> list[Json]:
    """Wait until at least ``count`` pods exist and all of them are ready, or in another state, and return them.

    An empty selector is every pod of the namespace. Reasons in ``settle`` are waited out (a mesh whose agents crash
    until its control plane is ready). TestbedError within seconds where waiting does not help, else at the time-out,
    with the pods' states and events.
    """
    lasting, since = "", 0.0  # the problem that the last reading had, and when it began

    def all_done(pods: Sequence[Json]) -> bool:
        nonlocal lasting, since
        if len(pods) >= count and all(map(is_done, pods)):
            return True
        problem = first_problem(pods, settle) or (_quota(cluster, namespace) if len(pods) < count else "")
        if _UNSCHEDULABLE in problem:
            problem += _away(cluster)
        if problem != lasting:
            lasting, since = problem, time.monotonic()
        patience_s = _AWAY_S if _AWAY in problem else _UNSCHEDULABLE_S if _UNSCHEDULABLE in problem else _FINAL_S
        if problem and time.monotonic() - since > patience_s:
            raise TestbedError(_explain(cluster, namespace, pods, problem))
        return False

    pods = waiting.until(lambda: live_pods(cluster, namespace, selector), timeout_s, 0.2, all_done)
    done = sum(map(is_done, pods))
    if done < max(count, len(pods)):
        missing = f"{done} of {max(count, len(pods))} pods {state} after {timeout_s:g} s"
        raise TestbedError(_explain(cluster, namespace, pods, "; ".join(filter(None, (missing, lasting)))))
    return pods


def first_problem(pods: Iterable[Json], settle: Sequence[str] = ()) -> str:
    """Return the first problem that waiting does not repair, or an empty text."""
    for pod in pods:
        for reason, text in symptoms(pod):
            if reason in _FINAL and reason not in settle:
                hints = (advice for cause, advice in _CAUSES.items() if cause in text)
                hint = next(hints, _FINAL[reason])
                return f"pod {pod['metadata']['name']}: {text}" + (f" ({hint})" if hint else "")
    return ""


def _lost_nodes(cluster: Cluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.items("/api/v1/nodes") if not is_ready(item)}


def _away(cluster: Cluster) -> str:
    # A scheduler's "untolerated taint" does not name the node. This account may not be allowed to list nodes.
    try:
        names = _lost_nodes(cluster)
    except TestbedError:
        return ""
    return _AWAY + ", ".join(sorted(names)) if names else ""


def _quota(cluster: Cluster, namespace: str) -> str:
    # A pod that quota or admission refuses does not exist: only its ReplicaSet has an event.
    for event in warning_events(cluster, namespace):
        if event.get("reason") == "FailedCreate":
            return f"{event['involvedObject'].get('name', '?')}: {event.get('message', '')}"
    return ""


def _explain(cluster: Cluster, namespace: str, pods: Sequence[Json], problem: str) -> str:
    lines = [f"namespace {namespace}: {problem}"]
    warnings = warning_events(cluster, namespace)
    events = [f"{event.get('reason')}: {one_line(event.get('message'))}" for event in warnings]
    more = [text for text in dict.fromkeys(events) if text not in problem][:2]
    if more:
        lines.append("events: " + " | ".join(text[:300] for text in more))
    # At the time-out, the log explains the failure even of a container that is allowed to crash for a while.
    lines.append(next((words for words in (last_log_lines(cluster, pod) for pod in pods) if words), ""))
    return "; ".join(line for line in lines if line)


def force_lost_pods(cluster: Cluster, namespace: str) -> None:
    """Delete at once the pods of nodes that are gone: no kubelet confirms their end, and the namespace would hang.

    This needs a right that ``rbac.yaml`` does not grant. Without it, the namespace goes when its node returns or is
    removed.
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
    """Wait until the condition returns an empty text; the last text becomes the error."""
    missing = waiting.until(condition, timeout_s, every_s, lambda text: not text)
    if missing:
        raise TestbedError(f"{missing} (after {timeout_s:g} s)")


# --- rolling restarts -------------------------------------------------------------------------------------------------

# kubectl's own annotation, so that the two do not conflict (kubectl/pkg/polymorphichelpers/objectrestarter.go).
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_KINDS = {"ReplicaSet": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}

Workload = tuple[str, str, str]  # namespace, plural kind, name


def workload_of(pod: Json) -> Workload:
    """Return what a pod belongs to; TestbedError for a pod that nothing would replace."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        if kind == "ReplicaSet":
            # A Deployment names its ReplicaSets after itself and the hash of their template.
            name = name.removesuffix("-" + label(pod, "pod-template-hash"))
        if kind in _KINDS:
            return str(metadata["namespace"]), _KINDS[kind], name
    raise TestbedError(f"pod {metadata['name']}: nothing would replace it after a restart")


def restart_pods(cluster: Cluster, pods: Sequence[Json], timeout_s: float) -> None:
    """Replace these pods as ``kubectl rollout restart`` does; return when as many others are ready.

    The annotation of the template is patched, so that the workload's own strategy replaces the pods. The pods show
    when it is done, not the workload's status, because every account may list pods.
    """
    replaced: dict[Workload, list[Json]] = {}
    for pod in pods:
        replaced.setdefault(workload_of(pod), []).append(pod)
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    template: dict[str, Any] = {"metadata": {"annotations": {RESTARTED_AT: stamp}}}
    for namespace, kind, name in replaced:
        cluster.merge(f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}", {"spec": {"template": template}})
    until(lambda: next(filter(None, (_not_replaced(cluster, *item) for item in replaced.items())), ""), timeout_s, 0.2)


def _not_replaced(cluster: Cluster, workload: Workload, before: Sequence[Json]) -> str:
    namespace, kind, name = workload
    now = pods_of(cluster, namespace)
    remaining = {uid(pod) for pod in now} & {uid(pod) for pod in before}
    of_workload = [pod for pod in now if owner_kinds(pod) & set(_KINDS) and workload_of(pod) == workload]
    new = [pod for pod in of_workload if uid(pod) not in remaining]
    ready = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in new)
    if remaining or ready < len(before):
        new_pods = f"{ready} of {len(before)} new pods ready"
        return f"{kind} {name} in {namespace}: {new_pods}, {len(remaining)} old ones remain"
    return ""
