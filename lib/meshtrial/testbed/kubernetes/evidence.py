"""What a cluster says about something that did not come up, taken before it is removed.

The message of an error is for a line on a terminal; the evidence that goes with it (``error.evidence``) is
everything: events, states of the pods, logs of their containers and of those that crashed before them. A run
keeps it in its own ``logs/``. Looking never makes things worse: an API server that is silent is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from meshtrial.errors import TestbedError
from meshtrial.testbed.kubernetes.client import Cluster, Json

# At most so many pods of a namespace, those that are not ready first; of each log the last mebibyte.
_PODS = 20
_LOG_LINES, _LOG_CHARACTERS = 20_000, 1 << 20
_TIMEOUT = (1.0, 10.0)
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
    found: dict[str, str] = {}
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_of(cluster, namespace)
        except TestbedError:
            continue
        for key, text in (("pods", "".join(map(_pod_line, pods))), ("events", events_text(cluster, namespace))):
            if text:
                found[f"failed-{namespace}-{key}.txt"] = text
        for pod in sorted(pods, key=_is_fine)[:_PODS]:
            found |= logs_of(cluster, pod)
    return found


def pods_of(cluster: Cluster, namespace: str) -> list[Json]:
    """The pods of a namespace now; a server that is silent is not waited for."""
    return _items(cluster, f"/api/v1/namespaces/{namespace}/pods")


def logs_of(cluster: Cluster, pod: Json) -> dict[str, str]:
    """Logs of a pod's containers, and of those that ended before them."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    found = {}
    for status in statuses(pod):
        name = f"failed-{metadata['namespace']}-{metadata['name']}-{status['name']}"
        wanted = {f"{name}.log": "false"}
        if status.get("restartCount"):
            wanted[f"{name}-previous.log"] = "true"
        for file, previous in wanted.items():
            query = {"container": status["name"], "previous": previous, "tailLines": _LOG_LINES}
            with suppress(TestbedError):
                text = _ask(cluster, path, query).decode(errors="replace")
                if text:
                    found[file] = text[-_LOG_CHARACTERS:]
    return found


def events_text(cluster: Cluster, namespace: str) -> str:
    """Every event of a namespace, a line each, in the order of time."""
    try:
        events = _items(cluster, f"/api/v1/namespaces/{namespace}/events")
    except TestbedError:
        return ""
    return "".join(_event_line(event) for event in sorted(events, key=_moment))


def reason(cluster: Cluster, namespaces: Iterable[str]) -> str:
    """Why something does not come up there, in a line: the first bad pod with its last words, else a warning."""
    warnings: list[Json] = []
    for namespace in dict.fromkeys(namespaces):
        try:
            pods = pods_of(cluster, namespace)
        except TestbedError:
            continue
        # Hooks first: whoever waits for one waits for nothing else.
        for pod in sorted(pods, key=lambda item: not is_hook(item)):
            said = trouble(pod)
            if said:
                return "; ".join(part for part in (said, last_words(cluster, pod)) if part)
        with suppress(TestbedError):
            query = {"fieldSelector": "type=Warning"}
            warnings += _items(cluster, f"/api/v1/namespaces/{namespace}/events", query)
    if not warnings:
        return ""
    newest = max(warnings, key=_moment)
    who = newest.get("involvedObject", {}).get("name", "?")
    return f"last warning: {who}: {newest.get('reason')}: {_line(newest.get('message'))[:300]}"


def trouble(pod: Json) -> str:
    """What is wrong with a pod, in its own words; empty where nothing is."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        return f"pod {name}: {status['reason']}: {_line(status.get('message'))}"
    for container in statuses(pod):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        crashed = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") and waiting["reason"] not in _NORMAL:
            return f"pod {name}: container {container['name']}: {waiting['reason']}: {_line(waiting.get('message'))}"
        bad = ended if ended.get("exitCode") else crashed if not container.get("ready") else {}
        if bad.get("exitCode"):
            code = f"{bad.get('reason', 'ended')}, exit {bad['exitCode']}"
            return f"pod {name}: container {container['name']}: {code} {_line(bad.get('message'))}".rstrip()
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable":
            return f"pod {name}: unschedulable: {_line(condition.get('message'))}"
    return ""


def last_words(cluster: Cluster, pod: Json, lines: int = 3) -> str:
    """The last log lines of the pod's container that crashed, else of one that runs and is not ready; may be empty."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    for container, previous, _ in sorted(_speakers(pod), key=lambda found: found[2])[:3]:
        query = {"container": container, "previous": previous, "tailLines": lines}
        with suppress(TestbedError):
            words = _line(_ask(cluster, path, query).decode(errors="replace"))
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


def statuses(pod: Json) -> list[Json]:
    """States of the init containers and containers."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def is_hook(pod: Json) -> bool:
    """Whether it belongs to a Job, as the pods of Helm's hooks do."""
    return any(owner.get("kind") == "Job" for owner in pod["metadata"].get("ownerReferences") or [])


def _is_fine(pod: Json) -> bool:
    status = pod.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    return ready or status.get("phase") == "Succeeded"


def _items(cluster: Cluster, path: str, query: Mapping[str, Any] | None = None) -> list[Json]:
    found: list[Json] = json.loads(_ask(cluster, path, query or {})).get("items") or []
    return found


def _ask(cluster: Cluster, path: str, query: Mapping[str, Any]) -> bytes:
    # Once, and not for long: whoever waits for this has a failure to report.
    return cluster.call(f"get {path}", lambda: cluster.request("GET", path, query, timeout=_TIMEOUT), 0.0)


def _pod_line(pod: Json) -> str:
    status, spec = pod.get("status", {}), pod.get("spec", {})
    lines = [f"{pod['metadata']['name']} on {spec.get('nodeName') or 'no node'}: {status.get('phase', '?')}"]
    for condition in status.get("conditions") or []:
        if condition["status"] != "True" and (condition.get("reason") or condition.get("message")):
            lines.append(f"  {condition['type']}: {condition.get('reason', '')} {_line(condition.get('message'))}")
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
    return f"{_moment(event)} {event.get('type')} {event.get('reason')} {who}{times}: {_line(event.get('message'))}\n"


def _moment(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _line(text: object) -> str:
    return " ".join(str(text or "").split())
