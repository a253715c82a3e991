"""What kubelets say about containers: cAdvisor's metrics and the summary API, parsed. Pure functions.

https://kubernetes.io/docs/reference/instrumentation/node-metrics/ - both carry the time of each reading, which is
what makes a window exact. cAdvisor's text has it in milliseconds and has the throttling; the summary has it in
whole seconds, and serves where the text lacks a container or the node.
"""

import contextlib
import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshtrial.typed import SHAPE_ERRORS

Key = tuple[str, str, str]  # namespace, pod, container
_THROTTLED = "container_cpu_cfs_throttled_seconds_total"
_CPU = "container_cpu_usage_seconds_total"
_MEMORY = "container_memory_working_set_bytes"
_LINE = re.compile(
    rf"^(?P<name>{_CPU}|{_MEMORY}|{_THROTTLED})\{{(?P<labels>[^}}]*)\}} (?P<value>\S+)(?: (?P<ms>\d+))?", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class ContainerSample:
    """One container's counters at the moment that the kubelet read them."""

    at: float  # the kubelet's own clock, seconds since 1970
    cpu_s: float  # since the container started
    memory_bytes: int | None  # working set: what the kubelet evicts by and ``kubectl top`` shows


@dataclass(frozen=True)
class NodeSample:
    """A node's own CPU."""

    at: float
    cpu_s: float
    cores_used: float | None  # over the kubelet's last interval


def parse_summary(data: Mapping[str, Any]) -> dict[Key, ContainerSample]:
    """Containers of ``/stats/summary``; those without a CPU sample yet are left out."""
    samples: dict[Key, ContainerSample] = {}
    for pod in _items(data, "pods"):
        for container in _items(pod, "containers"):
            with contextlib.suppress(*SHAPE_ERRORS):  # a container without what is asked is as good as none
                ref, cpu = pod["podRef"], container["cpu"]
                memory = (container.get("memory") or {}).get("workingSetBytes")
                samples[str(ref["namespace"]), str(ref["name"]), str(container["name"])] = ContainerSample(
                    parse_time(cpu["time"]),
                    int(cpu["usageCoreNanoSeconds"]) / 1e9,
                    None if memory is None else int(memory),
                )
    return samples


def _items(data: Any, name: str) -> list[Any]:
    items = data.get(name) if isinstance(data, Mapping) else None
    return items if isinstance(items, list) else []


def parse_node(data: Mapping[str, Any]) -> NodeSample | None:
    """The node's own counters of ``/stats/summary``."""
    try:
        cpu = data["node"]["cpu"]
        now = cpu.get("usageNanoCores")
        used = None if now is None else int(now) / 1e9
        return NodeSample(parse_time(cpu["time"]), int(cpu["usageCoreNanoSeconds"]) / 1e9, used)
    except SHAPE_ERRORS:
        return None


def parse_cadvisor(text: str) -> tuple[dict[Key, ContainerSample], dict[Key, float]]:
    """Containers of ``/metrics/cadvisor``, and their seconds under CFS throttling.

    A container without a CPU limit has no throttling series: it cannot be throttled, and is left out there.
    """
    values: dict[str, dict[Key, tuple[float, float]]] = {_CPU: {}, _MEMORY: {}, _THROTTLED: {}}
    for match in _LINE.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        if not labels.get("container") or not labels.get("pod") or labels["container"] == "POD":
            continue
        key = (labels.get("namespace", ""), labels["pod"], labels["container"])
        try:
            reading = (float(match["ms"] or 0) / 1e3, float(match["value"]))
        except (ValueError, OverflowError):
            continue
        if not all(map(math.isfinite, reading)):
            continue
        # Of a restarted container both may be shown for a while: the later reading is the living one's.
        values[match["name"]][key] = max(values[match["name"]].get(key, (0.0, 0.0)), reading)
    samples = {
        key: ContainerSample(at, cpu_s, int(values[_MEMORY][key][1]) if key in values[_MEMORY] else None)
        for key, (at, cpu_s) in values[_CPU].items()
        if at > 0
    }
    return samples, {key: value for key, (_, value) in values[_THROTTLED].items()}


def parse_time(text: str) -> float:
    """RFC 3339, to seconds since 1970; UTC where it does not say."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
