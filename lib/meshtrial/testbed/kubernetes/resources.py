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
from meshtrial.testbed.kubernetes.pods import PART, container_names, label
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
    throttled_s: float | None = None  # CFS throttling; None without a CPU limit, and in /stats/summary


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


def parse_cadvisor(text: str) -> dict[Key, ContainerSample]:
    """Return the containers of ``/metrics/cadvisor``."""
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
        if all(map(math.isfinite, reading)):
            # A restarted container may be listed twice for a while: the later reading is that of the running one.
            values[match["name"]][key] = max(values[match["name"]].get(key, (0.0, 0.0)), reading)
    samples = {}
    for key, (at, cpu_s) in values[_CPU].items():
        if at > 0:
            _, memory = values[_MEMORY].get(key, (0.0, None))
            _, throttled_s = values[_THROTTLED].get(key, (0.0, None))
            samples[key] = ContainerSample(at, cpu_s, None if memory is None else int(memory), throttled_s)
    return samples


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


def parts_of(
    mesh: Mesh | None,
    workload: Sequence[Json],
    waypoints: Sequence[Json],
    agents: Mapping[str, Sequence[Json]],
    control_plane: Mapping[str, Sequence[Json]],
) -> tuple[MonitoredContainer, ...]:
    """Return every container with its component and role, except the load generator's, which measures itself."""
    parts: list[MonitoredContainer] = []

    def add(pod: Json, container: str, component: str, role: str) -> None:
        metadata = pod["metadata"]
        key = (metadata["namespace"], metadata["name"], container)
        parts.append(MonitoredContainer(key, str(pod["spec"].get("nodeName", "")), component, role))

    proxies, policies = (mesh.proxy_containers, mesh.policy_containers) if mesh is not None else ((), ())
    for pod in workload:
        part, component = label(pod, PART) or "app", label(pod, f"{NOTE}component") or "app"
        for name in container_names(pod):
            if name in proxies:
                add(pod, name, f"{component} sidecar", "data plane")
            elif name in policies:
                add(pod, name, f"{component} {name}", "policy")
            elif part == "collector":
                add(pod, name, part, part)
            elif part != "load":
                add(pod, name, component, "app")
    for pod in waypoints:
        for name in container_names(pod):
            policy = name in policies
            add(pod, name, f"waypoint {name}" if policy else "waypoint", "policy" if policy else "data plane")
    # An agent works for the pods of its own node: agents of other nodes are not on the path.
    nodes = {pod["spec"].get("nodeName") for pod in [*workload, *waypoints]}
    for component, members in agents.items():
        for pod in members:
            for name in container_names(pod) if pod["spec"].get("nodeName") in nodes else ():
                add(pod, name, component, "data plane")
    for component, members in control_plane.items():
        for pod in members:
            for name in container_names(pod):
                add(pod, name, component, "control plane")
    return tuple(parts)


@dataclass(frozen=True)
class Reading:
    """The reports of some nodes' kubelets at one moment, and the nodes that did not answer."""

    samples: Mapping[Key, ContainerSample]
    silent: tuple[str, ...] = ()
    no_throttling: tuple[str, ...] = ()


def read_nodes(cluster: Cluster, nodes: Iterable[str]) -> Reading:
    """Read the kubelets of these nodes."""
    names = sorted(set(nodes))

    def ask(node: str) -> tuple[dict[Key, ContainerSample] | None, bool]:
        """Return what a kubelet reports, and whether that is cAdvisor's text."""
        with contextlib.suppress(TestbedError):
            if samples := parse_cadvisor(cluster.kubelet(node, "/metrics/cadvisor")):
                return samples, True
        with contextlib.suppress(TestbedError, ValueError):
            return parse_summary(json.loads(cluster.kubelet(node, "/stats/summary"))), False
        return None, False

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    samples: dict[Key, ContainerSample] = {}
    for read, _ in answers.values():
        samples |= read or {}
    silent = tuple(node for node, (read, _) in answers.items() if read is None)
    return Reading(samples, silent, tuple(n for n, (_, whole) in answers.items() if not whole and n not in silent))


class Meter:
    """Snapshots of a deployment's components."""

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[MonitoredContainer],
        patience_s: float,
        read: Callable[[Cluster, Iterable[str]], Reading] = read_nodes,
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
        first = self._read(self._cluster, nodes).samples
        samples: dict[Key, ContainerSample] = {}

        def read_again() -> Reading:
            reading = self._read(self._cluster, nodes)
            for key in [part.key for part in self._parts if part.key in reading.samples]:
                # The first new reading of each container counts: a later one is further from the load's edge.
                if key not in samples and (key not in first or reading.samples[key].at > first[key].at):
                    samples[key] = reading.samples[key]
            return reading

        reading = waiting.until(
            read_again, self._patience_s, _EVERY_S, lambda _: all(part.key in samples for part in self._parts)
        )
        read = [part for part in self._parts if part.key in samples]
        self._note_missing([part for part in self._parts if part not in read], reading)
        for part in read:
            if samples[part.key].cpu_s < self._last.get(part.key, 0.0):
                raise TestbedError(f"container {'/'.join(part.key)} was restarted during the run: its CPU counter fell")
            self._last[part.key] = samples[part.key].cpu_s
        times: dict[str, list[float]] = {}
        components: dict[str, list[MonitoredContainer]] = {}
        for part in read:
            times.setdefault(part.node, []).append(samples[part.key].at)
            components.setdefault(part.component, []).append(part)
        self.windows.append({node: {"first_unix_s": min(at), "last_unix_s": max(at)} for node, at in times.items()})
        return {
            name: _summed(name, parts[0].role, [samples[part.key] for part in parts])
            for name, parts in components.items()
        }

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


def _summed(component: str, role: str, samples: Sequence[ContainerSample]) -> ComponentUsage:
    memory = [s.memory_bytes for s in samples if s.memory_bytes is not None]
    throttled = [s.throttled_s for s in samples if s.throttled_s is not None]
    return ComponentUsage(
        component,
        role,
        window_s=sum(s.at for s in samples) / len(samples),
        cpu_s=sum(s.cpu_s for s in samples),
        pss_bytes=sum(memory) if len(memory) == len(samples) else None,
        throttled_s=sum(throttled) if throttled else None,
        count=len(samples),
        largest_bytes=max(memory, default=None),
    )


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
