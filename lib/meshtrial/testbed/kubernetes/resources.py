"""CPU, memory and throttling of every component over the load window, and the use of the nodes, from their kubelets.

https://kubernetes.io/docs/reference/instrumentation/node-metrics/ - both sources have the time of each reading, which
makes a window exact. cAdvisor's text has it in milliseconds and has the throttling. The summary has it in whole
seconds, and replaces the text where a container or the node is missing there.

A kubelet reads its containers every 10 to 15 s by default. A snapshot waits for every container's next reading, so two
snapshots around a load always cover it whole. ``window_s`` is the distance between the readings, not between the calls.
Successive readings are distinguished by the kubelet's own clock, so clocks of different machines are never compared.
"""

import contextlib
import datetime
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from meshtrial import waiting
from meshtrial.errors import TestbedError
from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.base import MachineUse
from meshtrial.testbed.kubernetes import placement
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.manifests import NOTE
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.pods import container_names
from meshtrial.typed import SHAPE_ERRORS

# --- what kubelets say ------------------------------------------------------------------------------------------------

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
    """One container's counters when the kubelet read them."""

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
    """Return the containers of ``/stats/summary`` that have a CPU sample."""
    samples: dict[Key, ContainerSample] = {}
    for pod in _items(data, "pods"):
        for container in _items(pod, "containers"):
            with contextlib.suppress(*SHAPE_ERRORS):  # a container without these fields is left out
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
    """Return the node's own counters in ``/stats/summary``."""
    try:
        cpu = data["node"]["cpu"]
        now = cpu.get("usageNanoCores")
        used = None if now is None else int(now) / 1e9
        return NodeSample(parse_time(cpu["time"]), int(cpu["usageCoreNanoSeconds"]) / 1e9, used)
    except SHAPE_ERRORS:
        return None


def parse_cadvisor(text: str) -> tuple[dict[Key, ContainerSample], dict[Key, float]]:
    """Return the containers of ``/metrics/cadvisor``, and their seconds under CFS throttling.

    A container without a CPU limit cannot be throttled; it has no such series and is left out there.
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
        # A restarted container may be listed twice for a while: the later reading is that of the running one.
        values[match["name"]][key] = max(values[match["name"]].get(key, (0.0, 0.0)), reading)
    samples = {
        key: ContainerSample(at, cpu_s, int(values[_MEMORY][key][1]) if key in values[_MEMORY] else None)
        for key, (at, cpu_s) in values[_CPU].items()
        if at > 0
    }
    return samples, {key: value for key, (_, value) in values[_THROTTLED].items()}


def parse_time(text: str) -> float:
    """Return seconds since 1970 of an RFC 3339 time; UTC without an offset."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


# --- meters -----------------------------------------------------------------------------------------------------------

_EVERY_S = 0.5
_WATCHED = 20  # enough for a mean; reading every node of a large cluster would itself be load
MEMORY_NOTE = "memory is the kubelet's working set of each container, not PSS"


@dataclass(frozen=True)
class MonitoredContainer:
    """A container that is metered, and what it counts as."""

    key: Key
    node: str
    component: str
    role: str


@dataclass(frozen=True)
class Pods:
    """The pods of a deployment, and those of its mesh."""

    workload: Sequence[Json]
    agents: Mapping[str, Sequence[Json]]
    control_plane: Mapping[str, Sequence[Json]]
    waypoints: Sequence[Json] = ()


def parts_of(pods: Pods, mesh: Mesh | None) -> tuple[MonitoredContainer, ...]:
    """Return every container with its component and role, except the load generator's, which measures itself."""
    parts: list[MonitoredContainer] = []
    for pod in pods.workload:
        labels = pod["metadata"].get("labels") or {}
        part, component = labels.get(f"{NOTE}part", "app"), labels.get(f"{NOTE}component", "app")
        for name in container_names(pod):
            if mesh is not None and name in mesh.proxy_containers:
                parts.append(_part(pod, name, f"{component} sidecar", "data plane"))
            elif mesh is not None and name in mesh.policy_containers:
                parts.append(_part(pod, name, f"{component} {name}", "policy"))
            elif part == "collector":
                parts.append(_part(pod, name, part, part))
            elif part != "load":
                parts.append(_part(pod, name, component, "app"))
    for pod in pods.waypoints:
        for name in container_names(pod):
            if mesh is not None and name in mesh.policy_containers:
                parts.append(_part(pod, name, f"waypoint {name}", "policy"))
            else:
                parts.append(_part(pod, name, "waypoint", "data plane"))
    # An agent works for the pods of its own node: agents of other nodes are not on the path.
    nodes = {pod["spec"].get("nodeName") for pod in [*pods.workload, *pods.waypoints]}
    for component, members in pods.agents.items():
        here = [pod for pod in members if pod["spec"].get("nodeName") in nodes]
        parts += [_part(pod, name, component, "data plane") for pod in here for name in container_names(pod)]
    for component, members in pods.control_plane.items():
        parts += [_part(pod, name, component, "control plane") for pod in members for name in container_names(pod)]
    return tuple(parts)


def _part(pod: Json, container: str, component: str, role: str) -> MonitoredContainer:
    metadata = pod["metadata"]
    key = (metadata["namespace"], metadata["name"], container)
    return MonitoredContainer(key, str(pod["spec"].get("nodeName", "")), component, role)


@dataclass(frozen=True)
class Reading:
    """The reports of some nodes' kubelets at one moment, and the nodes that did not answer."""

    samples: Mapping[Key, ContainerSample]
    throttled: Mapping[Key, float]
    silent: tuple[str, ...] = ()
    no_throttling: tuple[str, ...] = ()


def read_nodes(cluster: Cluster, nodes: Iterable[str]) -> Reading:
    """Read the kubelets of these nodes."""
    names = sorted(set(nodes))

    def ask(node: str) -> tuple[dict[Key, ContainerSample] | None, dict[Key, float] | None]:
        try:
            samples, throttled = parse_cadvisor(cluster.kubelet(node, "/metrics/cadvisor"))
        except TestbedError:
            samples, throttled = {}, None
        if samples:
            return samples, throttled
        try:
            return parse_summary(json.loads(cluster.kubelet(node, "/stats/summary"))), None
        except (TestbedError, ValueError):
            return None, None

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    samples: dict[Key, ContainerSample] = {}
    throttled: dict[Key, float] = {}
    for read, more in answers.values():
        samples.update(read or {})
        throttled.update(more or {})
    silent = tuple(node for node, (read, _) in answers.items() if read is None)
    without = tuple(node for node, (read, more) in answers.items() if read is not None and more is None)
    return Reading(samples, throttled, silent, without)


class Meter:
    """Snapshots of a deployment's components."""

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[MonitoredContainer],
        patience_s: float,
        read: Callable[..., Reading] = read_nodes,
    ) -> None:
        self._cluster = cluster
        self._parts = parts
        self._patience_s = patience_s
        self._read = read
        self.needed = True  # whether the run needs CPU: then a missing reading is an error
        self._last: dict[Key, float] = {}
        self.notes: list[str] = []  # what was missing
        # For each snapshot, the first and last reading by node, on the nodes' clocks.
        self.windows: list[dict[str, Any]] = []

    def snapshot(self) -> dict[str, ComponentUsage]:
        """Return the counters of every component at each container's next reading.

        A counter that decreased, or a missing reading, is a TestbedError: an older reading would precede the load's
        edge, and a sum without a container would be too small.
        """
        nodes = [part.node for part in self._parts]
        first = self._read(self._cluster, nodes)
        samples: dict[Key, ContainerSample] = {}
        throttled: dict[Key, float] = {}

        def read_again() -> Reading:
            reading = self._read(self._cluster, nodes)
            for part in self._parts:
                # The first new reading of each container counts: a later one is further from the load's edge.
                if part.key not in samples and _newer(first.samples.get(part.key), reading.samples.get(part.key)):
                    samples[part.key] = reading.samples[part.key]
                    if part.key in reading.throttled:
                        throttled[part.key] = reading.throttled[part.key]
            return reading

        parts = {part.key for part in self._parts}
        reading = waiting.until(read_again, self._patience_s, _EVERY_S, lambda _: parts <= set(samples))
        stale = [part for part in self._parts if part.key not in samples]
        self._note_missing(stale, reading)
        self._check(samples)
        self.windows.append(self._window(samples))
        return self._sum(samples, throttled)

    def _sum(self, samples: Mapping[Key, ContainerSample], throttled: Mapping[Key, float]) -> dict[str, ComponentUsage]:
        usage: dict[str, ComponentUsage] = {}
        for component in dict.fromkeys(part.component for part in self._parts):
            parts = [p for p in self._parts if p.component == component and p.key in samples]
            if not parts:
                continue
            read = [samples[p.key] for p in parts]
            memory = [s.memory_bytes for s in read]
            throttling = [throttled[p.key] for p in parts if p.key in throttled]
            usage[component] = ComponentUsage(
                component,
                parts[0].role,
                window_s=sum(s.at for s in read) / len(read),
                cpu_s=sum(s.cpu_s for s in read),
                pss_bytes=None if None in memory else sum(m for m in memory if m is not None),
                throttled_s=sum(throttling) if throttling else None,
                count=len(parts),
                largest_bytes=max((m for m in memory if m is not None), default=None),
            )
        return usage

    def _check(self, samples: Mapping[Key, ContainerSample]) -> None:
        for part in self._parts:
            sample = samples.get(part.key)
            if sample is None:
                continue
            if sample.cpu_s < self._last.get(part.key, 0.0):
                raise TestbedError(f"container {'/'.join(part.key)} was restarted during the run: its CPU counter fell")
            self._last[part.key] = sample.cpu_s

    def _note_missing(self, stale: Sequence[MonitoredContainer], reading: Reading) -> None:
        lines = [
            f"node {node}: its kubelet's metrics cannot be read (rights nodes/metrics and nodes/stats?)"
            for node in reading.silent
        ]
        lines += [f"node {node}: no throttling counters (/metrics/cadvisor)" for node in reading.no_throttling]
        missing = [p for p in stale if p.key not in reading.samples and p.node not in reading.silent]
        late = [p for p in stale if p.key in reading.samples]
        lines += [f"{'/'.join(p.key)}: no CPU sample" for p in missing]
        lines += [f"{'/'.join(p.key)}: no fresh CPU sample within {self._patience_s:g} s" for p in late]
        if stale and self.needed:
            raise TestbedError(
                f"CPU is unknown: {'; '.join(lines)}; sample_patience_s is how long a reading is waited for"
            )
        self.notes += [line for line in lines if line not in self.notes]

    def _window(self, samples: Mapping[Key, ContainerSample]) -> dict[str, Any]:
        window: dict[str, Any] = {}
        for node in dict.fromkeys(part.node for part in self._parts):
            times = [samples[p.key].at for p in self._parts if p.node == node and p.key in samples]
            if times:
                window[node] = {"first_unix_s": min(times), "last_unix_s": max(times)}
        return window


def _newer(before: ContainerSample | None, after: ContainerSample | None) -> bool:
    return after is not None and (before is None or after.at > before.at)


class NodeWatch:
    """Idle and busy shares, as the mean over the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cores: dict[str, float] = {}
        self._last: dict[str, NodeSample] = {}

    def idle(self) -> float | None:
        """Return the idle share over the last interval of the kubelets."""
        samples = self.read()
        busy = [s.cores_used / self._cores[n] for n, s in samples.items() if s.cores_used is not None]
        return None if not busy else max(0.0, 1.0 - sum(busy) / len(busy))

    def used_between(self) -> MachineUse | None:
        """Return the use since the last call, without stolen time; None without a new reading."""
        before, self._last = self._last, self.read()
        shares = [
            (sample.cpu_s - before[name].cpu_s) / (sample.at - before[name].at) / self._cores[name]
            for name, sample in self._last.items()
            if name in before and sample.at > before[name].at
        ]
        return MachineUse(busy=min(1.0, sum(shares) / len(shares))) if shares else None

    def read(self, names: list[str] | None = None) -> dict[str, NodeSample]:
        """Return the nodes' counters; a node that does not answer is left out."""
        if names is None:
            if not self._cores:
                self._cores = {n.name: n.room.cpu for n in placement.nodes(self._cluster)[:_WATCHED]}
            names = list(self._cores)
        samples = {}
        for name in names:
            with contextlib.suppress(TestbedError, ValueError):
                sample = parse_node(json.loads(self._cluster.kubelet(name, "/stats/summary")))
                if sample is not None:
                    samples[name] = sample
        return samples


def describe(item: Json) -> dict[str, Any]:
    """Return a node for ``environment.json``."""
    info, labels = item["status"]["nodeInfo"], item["metadata"].get("labels") or {}
    return {
        "name": item["metadata"]["name"],
        "kubelet": info.get("kubeletVersion"),
        "kernel": info.get("kernelVersion"),
        "os": info.get("osImage"),
        "runtime": info.get("containerRuntimeVersion"),
        "architecture": info.get("architecture"),
        "instance_type": labels.get("node.kubernetes.io/instance-type", ""),
        "capacity": {k: item["status"]["capacity"].get(k) for k in ("cpu", "memory", "pods")},
    }
