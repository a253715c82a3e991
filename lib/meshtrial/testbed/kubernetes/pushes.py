"""How long a control plane takes to bring a change to its proxies, by its own histogram (Prometheus' text format).

Read before a deployment is applied and when it answers: what lies between are the pushes that it caused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meshtrial import network
from meshtrial.testbed.kubernetes import probing
from meshtrial.testbed.kubernetes.client import Cluster, Json
from meshtrial.testbed.kubernetes.execs import PodRef
from meshtrial.testbed.kubernetes.meshdata import Pushes

RESPONSE = "convergence_s"
_TAIL = 0.99


@dataclass(frozen=True)
class Histogram:
    """Counters of a Prometheus histogram, summed over its label sets and pods."""

    count: float = 0.0
    total_s: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)  # upper bound in seconds to what is at or below it

    def since(self, before: Histogram) -> Histogram:
        """What was observed after an earlier reading; everything where a counter began anew."""
        if self.count < before.count:
            return self
        buckets = {bound: number - before.buckets.get(bound, 0.0) for bound, number in self.buckets.items()}
        return Histogram(self.count - before.count, self.total_s - before.total_s, buckets)


def parse(text: str, name: str) -> Histogram:
    """Read one histogram of a page."""
    number = r"([0-9.eE+-]+)"
    buckets: dict[float, float] = {}
    for bound, value in re.findall(
        rf'(?m)^{re.escape(name)}_bucket\{{[^}}]*le="([0-9.eE+-]+)"[^}}]*\}} {number}$', text
    ):
        buckets[float(bound)] = buckets.get(float(bound), 0.0) + float(value)

    def summed(suffix: str) -> float:
        numbers = re.findall(rf"(?m)^{re.escape(name)}_{suffix}(?:\{{[^}}]*\}})? {number}$", text)
        return sum(map(float, numbers))

    return Histogram(summed("count"), summed("sum"), buckets)


def read(cluster: Cluster, probe: PodRef, pods: Sequence[Json], pushes: Pushes) -> Histogram:
    """The histogram now, over all pods of the control plane; a page that is empty counts nothing."""
    urls = [network.url(pod["status"].get("podIP", ""), pushes.url) for pod in pods]
    return parse("\n".join(probing.scrape(cluster, probe, urls)), pushes.histogram) if urls else Histogram()


def described(seen: Histogram) -> dict[str, Any]:
    """For ``run.json``: how many, their mean, and the bound below which 99 % of them lie; empty without any."""
    if seen.count <= 0:
        return {}
    enough = [bound for bound, number in sorted(seen.buckets.items()) if number >= _TAIL * seen.count]
    tail = {"p99_at_most_s": enough[0]} if enough else {}
    return {"count": int(seen.count), "mean_s": seen.total_s / seen.count, **tail}
