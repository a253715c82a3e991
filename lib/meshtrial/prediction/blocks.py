"""What recorded studies hold for a prediction: CPU by side of a call, memory by proxy, and distributions of latency.

A study is usable at its loads of a fixed rate with one application behind kept connections: a single hop. CPU is kept
for each block, so that a prediction carries the noise of blocks, and as the difference of two treatments in the same
block.

A sidecar belongs to the caller or to the callee by its component's name. Every other part of the data plane, such as
ztunnel, is a proxy of a node: half of what it uses per request is the caller's node's and half the callee's.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.responses import PARTS, QUANTILES, requests_needed
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference.values import FloatArray
from meshtrial.load import quantiles
from meshtrial.load.result import read_result
from meshtrial.prediction.ranges import OWN_EXPONENTS
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import ComponentUsage, RunRecord

CALLER, CALLEE, NODE, APP = range(4)
SIDES = 4
LEAST_BLOCKS = 2
# Probabilities at which the latencies of a run are kept, closer to each other in the tail.
PROBABILITIES = np.concatenate([np.linspace(0, 0.98, 491), 1 - np.geomspace(0.0199, 0.0005, 80)])


@dataclass(frozen=True, eq=False)
class Rung:
    """One load of one study, for a treatment (index 0 of the first axis) and its baseline (1)."""

    rps: float  # through each proxy
    protocol: str
    body_bytes: int  # request and response together
    connections: int  # open ones, busy and idle
    cpu_s: FloatArray  # (2, SIDES, blocks): CPU seconds per request
    proxy_bytes: FloatArray  # (2, 3, blocks): memory of one proxy of caller, callee and node; 0 without one
    control_cores: FloatArray  # (2, blocks)
    control_bytes: FloatArray  # (2, blocks)
    nodes: int  # proxies of nodes, 0 for a mesh without
    runs: tuple[tuple[RunRecord, ...], ...]  # by treatment and block


@dataclass(frozen=True)
class BuildingBlocks:
    """What one study holds about a treatment and a baseline."""

    data: StudyData
    blocks: tuple[int, ...]
    rungs: tuple[Rung, ...]
    treatments: tuple[str, str]
    _read: dict[int, FloatArray | None] = field(default_factory=dict, repr=False)  # by rung

    @property
    def name(self) -> str:
        """The study's folder."""
        return self.data.path.name

    @property
    def machines(self) -> int:
        """How many machines a call passes: one, or two where the cluster has more than one node."""
        return min(2, nodes_of(self.data))

    @property
    def own_exponent(self) -> float:
        """The exponent of a proxy's own rate in the rate at which its cost is read; see `OWN_EXPONENTS`."""
        return OWN_EXPONENTS[self.data.plan.study.backend]

    def latencies(self, rung: Rung) -> FloatArray | None:
        """Return a rung's latencies (2, blocks, probabilities) in seconds; None where no distribution is recorded."""
        if id(rung) not in self._read:
            self._read[id(rung)] = None
            with contextlib.suppress(RecordError):
                self._read[id(rung)] = np.array([[distribution(self.data, run) for run in one] for one in rung.runs])
        return self._read[id(rung)]

    def allows(self, q: float, rungs: Iterable[Rung]) -> bool:
        """Return whether every run of these rungs has enough requests for this quantile."""
        floor = requests_needed(q, self.data.plan.study.gates.sample_floor)
        runs = (run for rung in rungs for runs in rung.runs for run in runs)
        return all(run.responses.get("requests", 0.0) >= floor for run in runs)


def nodes_of(data: StudyData) -> int:
    """Return how many nodes a study's cluster had; 1 for one machine."""
    return len(data.environment.get("testbed", {}).get("nodes") or [""])


def is_single_hop(load: Load) -> bool:
    """Whether a load is usable: a fixed rate over kept connections to one application without unused services."""
    return (
        isinstance(load, FixedRate)
        and load.keepalive
        and load.protocol != "mixed"
        and load.headers == load.unused_services == 0
        and load.replicas == 1
    )


def building_blocks(data: StudyData, treatment: str, baseline: str) -> BuildingBlocks | None:
    """Return what a study holds about two treatments; None if it lacks one, or has fewer than two complete blocks."""
    pair = (treatment, baseline)
    if not set(pair) <= {one.name for one in data.plan.study.treatments}:
        return None
    known = {load: data.inclusions[load.label] for load in data.plan.study.loads if is_single_hop(load)}
    taken = {load: one for load, one in known.items() if not set(pair) & set(one.excluded)}
    if not taken:
        return None
    complete = sorted(set.intersection(*(set(one.blocks) for one in taken.values())))
    blocks = [b for b in complete if all(_is_metered(one.chosen[b, name]) for one in taken.values() for name in pair)]
    if len(blocks) < LEAST_BLOCKS:
        return None
    rungs = tuple(_rung(load, [[one.chosen[b, name] for b in blocks] for name in pair]) for load, one in taken.items())
    return BuildingBlocks(data, tuple(blocks), rungs, pair)


def _is_metered(run: RunRecord) -> bool:
    applications = sum(usage.role == "app" for usage in run.usage)
    return applications == 1 and "path_cpu_s_per_request" in run.responses


def side_of(usage: ComponentUsage) -> int:
    """Return whose part of the data plane a component is."""
    if usage.role == "app":
        return APP
    if "node proxy" in usage.component:
        return NODE
    if usage.role == "policy" or usage.component.startswith(("server", "waypoint", "relay")):
        return CALLEE
    return CALLER if usage.component.startswith("client") else NODE


def _nodes(used: Iterable[ComponentUsage]) -> int:
    """Return on how many nodes there are proxies; on one machine those of both ends are two components."""
    counts: Counter[str] = Counter()
    for usage in used:
        if side_of(usage) == NODE:
            counts[usage.component.removeprefix("client ").removeprefix("server ")] += usage.count
    return max(counts.values(), default=0)


def _rung(load: Load, runs: Sequence[Sequence[RunRecord]]) -> Rung:
    shape = (2, len(runs[0]))
    cpu, memory = np.zeros((2, SIDES, shape[1])), np.zeros((2, 3, shape[1]))
    control = np.zeros((2, *shape))
    nodes = 0
    for which, column in enumerate(runs):
        for block, run in enumerate(column):
            on_path = [usage for usage in run.usage if usage.role in PARTS["path"].members]
            whole = sum(usage.cpu_s for usage in on_path)
            own_nodes = _nodes(on_path)
            nodes = max(nodes, own_nodes)
            for usage in on_path:
                side = side_of(usage)
                share = usage.cpu_s / whole if whole else 0.0
                cpu[which, side, block] += share * run.responses["path_cpu_s_per_request"]
                if side != APP:
                    held = np.nan if usage.pss_bytes is None else usage.pss_bytes
                    memory[which, side, block] += held / (own_nodes if side == NODE else usage.count)
            control[0, which, block] = run.responses.get("control_plane_cpu_cores", 0.0)
            control[1, which, block] = run.responses.get("control_plane_memory_bytes", 0.0)
    body = load.payload_bytes + (load.response_bytes or load.payload_bytes)
    connections = load.connections + load.idle_connections
    used = cpu, memory, control[0], control[1]
    return Rung(load.asked_rps, load.protocol, body, connections, *used, nodes, tuple(map(tuple, runs)))


def _machine(data: StudyData) -> str:
    """Return the kind of machine or nodes that a study ran on."""
    testbed = data.environment.get("testbed", {})
    kinds = set()
    for node in testbed.get("nodes") or [testbed]:
        names = (node.get(key) for key in ("cpu_model", "instance_type", "architecture"))
        cpus = node.get("cpus") or node.get("capacity", {}).get("cpu", "unknown")
        kinds.add(" ".join([*(name for name in names if name), f"with {cpus} CPUs"]))
    return f"{data.plan.study.backend}, {' and '.join(sorted(kinds))}"


def distribution(data: StudyData, run: RunRecord) -> FloatArray:
    """Return a run's latencies in seconds at `PROBABILITIES`: exact from its requests, else from its histogram.

    A histogram of fortio is wide in places, so its cumulative shares are joined with the recorded quantiles, which are
    exact. RecordError if the run has neither.
    """
    try:
        requests = data.latency(run)
    except RecordError:
        return _of_histogram(data.run_folder(run), run)
    measured = quantiles.successful(requests).to_numpy()
    if not len(measured):
        raise RecordError(f"{data.run_folder(run)}: has no successful request")
    values: FloatArray = np.quantile(measured, PROBABILITIES)
    return values


def _of_histogram(folder: Path, run: RunRecord) -> FloatArray:
    parts = [read_result(path).latency.buckets for path in sorted(folder.glob("fortio*.json"))]
    if not all(parts) or not parts:
        raise RecordError(f"{folder}: has no histogram of its latencies")
    edges = [[buckets[0].start_s, *(bucket.end_s for bucket in buckets)] for buckets in parts]
    counts = [np.cumsum([0, *(bucket.count for bucket in buckets)]) for buckets in parts]
    x = np.unique(np.concatenate(edges))
    counted = sum(np.interp(x, *one) for one in zip(edges, counts, strict=True))
    share = np.asarray(counted) / sum(int(one[-1]) for one in counts)
    exact = [
        (run.responses[f"latency_{key}_s"], q) for key, q in QUANTILES.items() if f"latency_{key}_s" in run.responses
    ]
    points = sorted([*zip(x.tolist(), share.tolist(), strict=True), *exact])
    latencies, shares = np.array(points).T
    # A warm-up second that only the histogram counts may put a quantile on the wrong side of an edge.
    values: FloatArray = np.interp(PROBABILITIES, np.maximum.accumulate(shares), latencies)
    return values


def usable(studies: Sequence[StudyData], treatment: str, baseline: str) -> tuple[BuildingBlocks, ...]:
    """Return the building blocks of all studies that have both treatments.

    UsageError if there are none, or if the studies differ in their machines or applications: what a request costs
    there cannot be averaged.
    """
    found = [one for data in studies if (one := building_blocks(data, treatment, baseline))]
    if not found:
        names = sorted({one.name for data in studies for one in data.plan.study.treatments if not one.twin})
        raise UsageError(
            f"no study has complete blocks of {treatment} and {baseline} at a fixed rate with one application; "
            f"the studies have {', '.join(names)}"
        )
    factors = {
        "machine": {_machine(one.data) for one in found},
        "application": {run.app for one in found for runs in one.rungs[0].runs for run in runs},
    }
    for what, values in factors.items():
        if len(values) > 1:
            raise UsageError(
                f"the studies differ in {what}: {' and '.join(sorted(values))}; use those of one {what} together"
            )
    return tuple(found)
