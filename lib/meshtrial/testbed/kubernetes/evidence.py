"""What a cluster says about something that did not come up, taken before it is removed.

The message of an error is for a line on a terminal; the evidence that goes with it (``error.evidence``) is
everything: events, states of the pods, logs of their containers and of those that crashed before them. A run
keeps it in its own ``logs/``. Looking never makes things worse: an API server that is silent is asked once.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.pods import is_ready, log_of, owner_kinds, pods_of, statuses

# At most so many pods of a namespace, those that are not ready first; of each log the last mebibyte.
_PODS = 20
_LOG_LINES, _LOG_CHARACTERS = 20_000, 1 << 20
_LAST_LINES = 3
_ONCE_S = 10.0  # whoever waits for this has a failure to report
# What a container waits for in the normal course of things.
_NORMAL = {"ContainerCreating", "PodInitializing"}


@contextmanager
def kept(cluster: Cluster, namespaces: Iterable[str]) -> Iterator[None]:
    """A TestbedError that leaves this block carries the evidence of these namespaces.

    Enter it inside of whatever removes the namespaces on failure.
    """
    try:
        yield
    except TestbedError as error:
        error.evidence = {**gather(cluster, namespaces), **error.evidence}
        raise


def gather(cluster: Cluster, namespaces: Iterable[str]) -> dict[str, str]:
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
            files |= logs_of(cluster, pod)
    return files


def pods_now(cluster: Cluster, namespace: str) -> list[Json]:
    """The pods of a namespace now; a server that is silent is not waited for."""
    return pods_of(cluster, namespace, once_s=_ONCE_S)


def logs_of(cluster: Cluster, pod: Json) -> dict[str, str]:
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


def warnings(cluster: Cluster, namespace: str) -> list[Json]:
    """Warnings of a namespace, newest first; none where they may not be read."""
    return sorted(_events(cluster, namespace, fieldSelector="type=Warning"), key=_moment, reverse=True)


def _events(cluster: Cluster, namespace: str, **query: str) -> list[Json]:
    try:
        return cluster.items(f"/api/v1/namespaces/{namespace}/events", _ONCE_S, **query)
    except TestbedError:
        return []


def reason(cluster: Cluster, namespaces: Iterable[str]) -> str:
    """Why something does not come up there, in a line: the first bad pod with its last words, else a warning."""
    warned: list[Json] = []
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_now(cluster, namespace)
        except TestbedError:
            continue
        # Hooks first: whoever waits for one waits for nothing else.
        for pod in sorted(pods, key=lambda item: not is_hook(item)):
            said = pod_problem(pod)
            if said:
                return "; ".join(part for part in (said, last_log_lines(cluster, pod)) if part)
        warned += warnings(cluster, namespace)
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


def pod_problem(pod: Json) -> str:
    """What is wrong with a pod, in its own words; empty where nothing is."""
    words = next((words for reason, words in symptoms(pod) if reason not in _NORMAL), "")
    return f"pod {pod['metadata']['name']}: {words}" if words else ""


def last_log_lines(cluster: Cluster, pod: Json) -> str:
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
