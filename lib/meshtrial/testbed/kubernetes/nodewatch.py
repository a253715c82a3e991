"""The nodes themselves: what they are, and how busy they were, by their kubelets' own readings."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from meshtrial.errors import TestbedError
from meshtrial.testbed.base import MachineUse
from meshtrial.testbed.kubernetes import preflight
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.kubelet import NodeSample, parse_node

_WATCHED = 20  # enough for a mean; a question to every node of a large cluster would be load of its own


class NodeWatch:
    """Idle and busy shares, as the mean over the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cores: dict[str, float] = {}
        self._last: dict[str, NodeSample] = {}

    def idle(self) -> float | None:
        """Idle share over the kubelets' last interval."""
        samples = self.read()
        busy = [s.cores_used / self._cores[n] for n, s in samples.items() if s.cores_used is not None]
        return None if not busy else max(0.0, 1.0 - sum(busy) / len(busy))

    def used_between(self) -> MachineUse | None:
        """Use since the last call; None where no new reading came meanwhile. Stolen time kubelets do not tell."""
        before, self._last = self._last, self.read()
        shares = [
            (sample.cpu_s - before[name].cpu_s) / (sample.at - before[name].at) / self._cores[name]
            for name, sample in self._last.items()
            if name in before and sample.at > before[name].at
        ]
        return MachineUse(busy=min(1.0, sum(shares) / len(shares))) if shares else None

    def read(self, names: list[str] | None = None) -> dict[str, NodeSample]:
        """The nodes' counters; a node that does not answer is left out."""
        if names is None:
            if not self._cores:
                self._cores = {n.name: n.cpu for n in preflight.nodes(self._cluster)[:_WATCHED]}
            names = list(self._cores)
        found = {}
        for name in names:
            with contextlib.suppress(TestbedError, ValueError):
                data = json.loads(self._cluster.text(f"/api/v1/nodes/{name}/proxy/stats/summary"))
                sample = parse_node(data)
                if sample is not None:
                    found[name] = sample
        return found


def describe(item: Json) -> dict[str, Any]:
    """A node for ``environment.json``."""
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
