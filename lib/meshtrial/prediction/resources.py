"""CPU and memory that a treatment adds to a system, as sums over the blocks of the studies.

A proxy's own rate is all that its replica sends and receives. Together with the rate of its machine it decides what a
request costs there. A call costs its caller's proxy, its callee's proxy and the nodes' proxies what it cost them
in the studies at that rate. The application's own change is counted with the callee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshtrial.design.system import System
from meshtrial.inference import scaling
from meshtrial.inference.values import FloatArray
from meshtrial.prediction.blocks import APP, CALLEE, CALLER, NODE, BuildingBlocks, Rung
from meshtrial.prediction.ranges import FARTHEST, Weights, rate_weights
from meshtrial.records.dataset import StudyData
from meshtrial.stats.growth import block_slopes

# A body up to this many bytes beyond the measured one fits into the same few segments and costs about the same.
SMALL_BODY_BYTES = 1024


class Layout:
    """A system as arrays: services (n,) and calls (c,)."""

    def __init__(self, system: System) -> None:
        services, calls = system.services.values(), system.calls
        self.names = tuple(system.services)
        place = {name: place for place, name in enumerate(self.names)}
        self.replicas = np.array([one.replicas for one in services], dtype=float)
        self.has_proxy = np.array([not one.outside for one in services])
        self.caller = np.array([place[call.caller] for call in calls])
        self.callee = np.array([place[call.callee] for call in calls])
        self.rps = np.array([call.rps for call in calls], dtype=float)
        self.protocol = np.array([call.protocol for call in calls])
        self.body_bytes = np.array([call.request_bytes + call.response_bytes for call in calls], dtype=float)
        self.connections = np.array([call.connections for call in calls], dtype=float)

    def sums(self, amounts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return amounts of calls (c,) by caller and by callee, (n,) each; services without a proxy have none."""
        n = len(self.names)
        by_caller, by_callee = np.bincount(self.caller, amounts, n), np.bincount(self.callee, amounts, n)
        return by_caller * self.has_proxy.astype(float), by_callee * self.has_proxy.astype(float)

    @property
    def proxy_rps(self) -> FloatArray:
        """Requests per second through the proxy of one replica of each service (n,)."""
        total: FloatArray = np.add(*self.sums(self.rps)) / self.replicas
        return total


@dataclass(frozen=True)
class Ladder:
    """The rungs of one protocol that differ in their rate alone, over all studies."""

    protocol: str
    rates: FloatArray  # ascending
    rungs: tuple[tuple[int, int, Rung], ...]  # (study, index of the rate, rung)
    body_bytes: int

    @classmethod
    def of(cls, studies: Sequence[BuildingBlocks], protocol: str) -> Ladder | None:
        """Return the ladder with the smallest bodies; None without any.

        If a rate was measured over several numbers of connections, the one closest to the most frequent number counts.
        """
        known = [(s, rung) for s, one in enumerate(studies) for rung in one.rungs if rung.protocol == protocol]
        if not known:
            return None
        body = min(rung.body_bytes for _, rung in known)
        smallest = [(s, rung) for s, rung in known if rung.body_bytes == body]
        counted = Counter(rung.connections for _, rung in smallest)
        usual = max(counted, key=lambda number: (counted[number], -number))
        at = {rung.rps: {other.connections for _, other in smallest if other.rps == rung.rps} for _, rung in smallest}
        connections = {rps: min(numbers, key=lambda number: abs(number - usual)) for rps, numbers in at.items()}
        rates = sorted(connections)
        rungs = [(s, rates.index(rung.rps), rung) for s, rung in smallest if rung.connections == connections[rung.rps]]
        return cls(protocol, np.array(rates), tuple(rungs), body)

    @property
    def studies_at(self) -> FloatArray:
        """How many rungs each rate has."""
        return np.bincount([place for _, place, _ in self.rungs], minlength=len(self.rates)).astype(float)


class Added:
    """What is added by study: the least and the most that the model allows, and why some services have no number."""

    def __init__(self, services: int, studies: Sequence[BuildingBlocks]) -> None:
        # For each study (services, blocks), at first zeros
        self.lowest, self.highest = ([np.zeros((services, len(one.blocks))) for one in studies] for _ in range(2))
        self.reasons: dict[str, str] = {}  # by service

    def add(self, study: int, values: FloatArray, lowest: FloatArray, highest: FloatArray | None = None) -> None:
        """Add the treatment's values (2, blocks) less the baseline's, each with the weights (services,) of its end."""
        (own, base), highest = values, lowest if highest is None else highest
        self.lowest[study] += np.outer(lowest, own) - np.outer(highest, base)
        self.highest[study] += np.outer(highest, own) - np.outer(lowest, base)

    def refuse(self, layout: Layout, which: NDArray[np.bool_], reason: str) -> None:
        """Leave out services (n,), for one reason; the first reason is kept."""
        for place in np.flatnonzero(which):
            self.reasons.setdefault(layout.names[place], reason)
            for part in (*self.lowest, *self.highest):
                part[place] = 0.0


def added_cpu(layout: Layout, studies: Sequence[BuildingBlocks], nodes: int) -> Added:
    """Return the cores that data plane and application take more, by service."""
    added = Added(len(layout.names), studies)
    refused: list[tuple[NDArray[np.bool_], str]] = []
    proxy_rps, machine_rps = layout.proxy_rps, machine_rps_of(layout, studies, nodes)
    for protocol in np.unique(layout.protocol):
        of_protocol = layout.protocol == protocol
        ladder = Ladder.of(studies, str(protocol))
        if ladder is None:
            refused.append((_ends(layout, of_protocol), f"no study measured {protocol}"))
            continue
        weights = rate_weights(proxy_rps, ladder.rates, machine_rps, studies[0].own_exponent)
        ends = _ends(layout, of_protocol) & layout.has_proxy
        node_weights = node_weights_of(layout, ladder, nodes)
        _add_rates(added, layout, of_protocol, ladder, weights, node_weights)
        refused += _add_bodies(added, layout, of_protocol, ladder, studies)
        has_sidecars = any(rung.proxy_bytes[:, (CALLER, CALLEE)].any() for *_, rung in ladder.rungs)
        if has_sidecars:
            most = f"its proxy's rate is more than {FARTHEST:g} times the highest measured, {ladder.rates[-1]:g} rps"
            refused.append((ends & weights.is_too_high, most))
        if node_weights is not None:
            most = f"the rate of each node's proxy is more than {FARTHEST:g} times the highest measured; give --nodes"
            refused.append((ends & node_weights.is_too_high, most))
    for which, reason in refused:
        added.refuse(layout, which, reason)
    return added


def _ends(layout: Layout, calls: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the services (n,) that make or answer one of these calls (c,)."""
    found = np.zeros(len(layout.names), dtype=bool)
    found[layout.caller[calls]] = found[layout.callee[calls]] = True
    return found


def machine_rps_of(layout: Layout, studies: Sequence[BuildingBlocks], nodes: int) -> float:
    """Return the rate of a single hop that makes a machine of the studies as busy as each of the system's nodes is.

    0 if ``nodes`` is 0: not known.
    """
    passed = float(np.sum(layout.sums(layout.rps))) / 2
    return passed * min(one.machines for one in studies) / nodes if nodes else 0.0


def node_weights_of(layout: Layout, ladder: Ladder, nodes: int) -> Weights | None:
    """Return the weights of the rate of each node's proxy, which both ends of a call pass; None without any."""
    count = max(rung.nodes for *_, rung in ladder.rungs)
    if not count:
        return None
    rate = float(np.sum(layout.sums(layout.rps))) / (nodes or count)
    return rate_weights(np.array([rate]), 2 * ladder.rates / count)


def _add_rates(
    added: Added,
    layout: Layout,
    calls: NDArray[np.bool_],
    ladder: Ladder,
    weights: Weights,
    node_weights: Weights | None,
) -> None:
    out, into = layout.sums(layout.rps * calls)
    for study, place, rung in ladder.rungs:
        share = 1 / ladder.studies_at[place]
        for side, rate in ((CALLER, out), (CALLEE, into)):
            ends = (rate * share * one[:, place] for one in (weights.lowest, weights.highest))
            added.add(study, rung.cpu_s[:, side], *ends)
        # An application is the same for both treatments, so only the change of its CPU is carried over.
        change = np.outer(into * share * weights.nearest[:, place], rung.cpu_s[0, APP] - rung.cpu_s[1, APP])
        added.lowest[study] += change
        added.highest[study] += change
        if node_weights is not None:
            half = (out + into) / 2 * share
            ends = (half * one[0, place] for one in (node_weights.lowest, node_weights.highest))
            added.add(study, rung.cpu_s[:, NODE], *ends)


def _add_bodies(
    added: Added, layout: Layout, calls: NDArray[np.bool_], ladder: Ladder, studies: Sequence[BuildingBlocks]
) -> list[tuple[NDArray[np.bool_], str]]:
    """Add CPU per byte of larger bodies; return the services whose bodies are larger than those measured."""
    slopes, largest = body_slopes(studies, ladder)
    beyond = np.where(calls, np.maximum(layout.body_bytes - ladder.body_bytes, 0), 0)
    beyond[beyond <= SMALL_BODY_BYTES] = 0
    out, into = layout.sums(layout.rps * beyond)
    for study, slope in slopes:
        for side, rate in ((CALLER, out), (CALLEE, into), (NODE, (out + into) / 2), (APP, into)):
            added.add(study, slope[:, side], rate / len(slopes))
    too_large = beyond > (largest - ladder.body_bytes if slopes else 0)
    reason = f"bodies of {ladder.protocol} were measured up to {largest:,} bytes, request and response together"
    return [(_ends(layout, too_large), reason)] if too_large.any() else []


def body_slopes(studies: Sequence[BuildingBlocks], ladder: Ladder) -> tuple[list[tuple[int, FloatArray]], int]:
    """Return CPU seconds per byte (2, sides, blocks) by study, and the largest measured body."""
    found, largest = [], ladder.body_bytes
    for study, one in enumerate(studies):
        base = {rung.rps: rung for place, _, rung in ladder.rungs if place == study}
        larger = (rung for rung in one.rungs if rung.body_bytes > ladder.body_bytes)
        above = [rung for rung in larger if rung.protocol == ladder.protocol and rung.rps in base]
        if above:
            more = np.array([rung.body_bytes - ladder.body_bytes for rung in above], dtype=float)
            costs = np.array([rung.cpu_s - base[rung.rps].cpu_s for rung in above])
            found.append((study, np.tensordot(more, costs, 1) / (more @ more)))
            largest = max(largest, *(rung.body_bytes for rung in above))
    return found, largest


def added_memory(layout: Layout, studies: Sequence[BuildingBlocks], nodes: int) -> Added:
    """Return the bytes that proxies hold, by service; those of nodes' proxies are in an additional last row."""
    n = len(layout.names)
    added = Added(n + 1, studies)
    connections = np.add(*layout.sums(layout.connections)) / layout.replicas
    measured = Counter(rung.connections for one in studies for rung in one.rungs)
    usual, most = max(measured, key=lambda number: (measured[number], -number)), max(measured)
    slopes = [(s, slope) for s, one in enumerate(studies) if (slope := _connection_slope(one)) is not None]
    proxies = np.append(layout.replicas * layout.has_proxy, 0.0)
    held = proxies * np.append(np.maximum(connections - usual, 0), 0.0)
    for study, one in enumerate(studies):
        rungs = [rung for rung in one.rungs if rung.connections == usual] or one.rungs
        share = 1 / len(studies)
        added.add(study, np.mean([_one_proxy(rung) for rung in rungs], axis=0), proxies * share)
        count = np.append(np.zeros(n), (nodes or max(rung.nodes for rung in rungs)) * share)
        added.add(study, np.mean([rung.proxy_bytes[:, NODE] for rung in rungs], axis=0), count)
    for study, slope in slopes:
        added.add(study, slope, held / len(slopes))
    has_sidecars = any(rung.proxy_bytes[:, (CALLER, CALLEE)].any() for one in studies for rung in one.rungs)
    if has_sidecars and (too_many := (connections > most) & layout.has_proxy).any():
        added.refuse(layout, too_many, f"its proxy has more than the {most} connections that were measured")
    return added


def _one_proxy(rung: Rung) -> FloatArray:
    """Return the memory of one sidecar (2, blocks), the mean of the caller's and the callee's; 0 without any."""
    sides = rung.proxy_bytes[:, (CALLER, CALLEE)]
    present = (sides > 0).sum(axis=1)
    mean: FloatArray = sides.sum(axis=1) / np.maximum(present, 1)
    return mean


def _connection_slope(one: BuildingBlocks) -> FloatArray | None:
    """Return a sidecar's bytes per connection (2, blocks), from rungs that differ in their connections alone."""
    groups: dict[tuple[float, str, int], list[Rung]] = {}
    for rung in one.rungs:
        groups.setdefault((rung.rps, rung.protocol, rung.body_bytes), []).append(rung)
    found = []
    for rungs in groups.values():
        x = np.array([rung.connections for rung in rungs], dtype=float)
        if len(set(x.tolist())) > 1:
            held = np.array([_one_proxy(rung) for rung in rungs])  # (rungs, 2, blocks)
            found.append([block_slopes(x, held[:, which].T) for which in (0, 1)])
    return np.mean(found, axis=0) if found else None


def configuration_slopes(studies: Sequence[StudyData], treatment: str, response: str) -> tuple[list[FloatArray], int]:
    """Return how a response grows with each unused service, by study and block, and the largest measured number."""
    found, largest = [], 0
    for data in studies:
        if treatment not in {one.name for one in data.plan.study.treatments} or scaling.varied(data) != scaling.UNUSED:
            continue
        rungs = scaling.ladder(data, treatment, response, scaling.rates(data, scaling.UNUSED)[0], scaling.UNUSED)
        if len(rungs.sizes) > 1 and len(rungs.blocks) > 1:
            found.append(block_slopes(rungs.x, rungs.y))
            largest = max(largest, rungs.sizes[-1])
    return found, largest
