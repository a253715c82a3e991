"""How responses grow with what a study varies, such as its endpoints: exponents, costs, knees, predictions, limits.

The block is the unit: one slope per pass over the sizes, then a test over the blocks. Only blocks in which a treatment
was measured at every size are included. A size that the treatment could not sustain is excluded from its ladder and
named. Beyond the largest measured size every value is a prediction.

`limits` shows where the machine, not the mesh, was the limit. Opinion: with less than a tenth of the machine idle,
requests wait for a CPU that a larger machine would have. Rates and latencies are then the machine's; memory, bytes
pushed and, less surely, CPU per request are still the mesh's.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from meshtrial.design.load import Load
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.stats.growth import (
    Curve,
    Knee,
    PowerLaw,
    Slope,
    closest_curve,
    compare_exponents,
    find_knee,
    marginal_cost,
    marginal_costs,
    power_law,
    slope_over_blocks,
)
from meshtrial.stats.multiplicity import smallest_n

LINEAR_MARGIN = 0.10
_TIERS = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Axis:
    """What a study varies, while everything else is fixed."""

    singular: str
    plural: str
    size_of: Callable[[Load], int]  # of a load
    free: tuple[str, ...]  # fields of a load that differ along it, are crossed with it, or follow from it
    step: int = 1000  # the increase whose cost is tabulated
    step_text: str = ""

    def loads(self, data: StudyData) -> list[Load]:
        """Return loads that differ in this alone: with as many sizes as possible, then with the largest application."""
        alike: dict[Hashable, list[Load]] = defaultdict(list)
        for load in data.plan.study.loads:
            fixed = (getattr(load, one.name) for one in fields(load) if one.name not in self.free)
            alike[type(load), *fixed].append(load)
        return max(alike.values(), key=lambda loads: (len({*map(self.size_of, loads)}), loads[0].replicas))

    @property
    def increase(self) -> str:
        """The increase whose cost is tabulated, in words."""
        return self.step_text or f"{self.step} {self.plural}"


def endpoints_of(load: Load) -> int:
    """Return the endpoints of a load: replicas of all tiers."""
    return _TIERS * load.replicas


_CROSSED = ("rps", "connections")  # in studies that scale out: with the sizes, and with unused services
ENDPOINTS = Axis("endpoint", "endpoints", endpoints_of, ("replicas", "generators", *_CROSSED))
UNUSED = Axis("unused service", "unused services", lambda load: load.unused_services, ("unused_services", *_CROSSED))
CONNECTIONS = Axis("connection", "connections", lambda load: load.connections, ("connections",))
IDLE = Axis("idle connection", "idle connections", lambda load: load.idle_connections, ("idle_connections",))
BODY = Axis("byte of body", "bytes of body", lambda load: load.payload_bytes, ("payload_bytes",), 1024, "1 KiB of body")
AXES = (ENDPOINTS, UNUSED, CONNECTIONS, IDLE, BODY)


def varies(data: StudyData, axis: Axis) -> bool:
    """Whether a study has two sizes or more along an axis."""
    return len({*map(axis.size_of, axis.loads(data))}) > 1


def varied(data: StudyData) -> Axis:
    """Return the first axis that a study varies, in the order of `AXES`; the endpoints if there is none."""
    return next((axis for axis in AXES if varies(data, axis)), ENDPOINTS)


@dataclass(frozen=True)
class SizeSeries:
    """One response of one treatment at all its sizes."""

    axis: Axis

    treatment: str
    response: str
    rps: float | None  # the rate; None if it grows with the size
    sizes: tuple[int, ...]  # ascending
    blocks: tuple[int, ...]  # in which every size was measured
    y: FloatArray  # (blocks, sizes): the response in its stored unit
    missing: tuple[int, ...]  # planned sizes without an included run of this treatment

    @property
    def x(self) -> FloatArray:
        """Sizes as an array."""
        return np.array(self.sizes, dtype=float)

    def at_sizes(self, alpha: float) -> tuple[Slope | None, ...]:
        """Return estimate and interval at every size; None with fewer than two blocks."""
        if len(self.blocks) < 2:
            return (None,) * len(self.sizes)
        return tuple(slope_over_blocks(column, 0.0, alpha) for column in self.y.T)


@dataclass(frozen=True)
class Growth:
    """How a response grows; what cannot be computed is None, and `why` gives the reasons."""

    ladder: SizeSeries
    law: PowerLaw | None
    cost: Slope | None  # of one more unit of size, in the response's stored unit
    knee: Knee | None
    curve: Curve | None  # the straight line or the power law, whichever fits better: drawn and used for predictions
    why: tuple[str, ...]

    def predict(self, size: float, alpha: float) -> Slope | None:
        """Return the curve's value at a size with its interval over blocks; beyond the sizes an extrapolation."""
        return None if self.curve is None else slope_over_blocks(self.curve.at(size), 0.0, alpha)


@dataclass(frozen=True)
class SlopeContrast:
    """The growth of one response for two treatments, paired by block."""

    treatment: str
    baseline: str
    response: str
    exponent: Slope | None  # difference of the exponents; None if a value is not positive
    cost: Slope  # difference of the costs of one more unit of size
    sizes: tuple[int, ...]  # at which both were measured


def rates(data: StudyData, axis: Axis = ENDPOINTS) -> tuple[float | None, ...]:
    """Return the rates that were crossed with the sizes; (None,) if the rate grows with the size."""
    loads = axis.loads(data)
    asked = sorted({load.asked_rps for load in loads})
    sizes = {axis.size_of(load) for load in loads}
    return tuple(asked) if len(loads) == len(asked) * len(sizes) else (None,)


def ladder(
    data: StudyData, treatment: str, response: str, rps: float | None = None, axis: Axis = ENDPOINTS
) -> SizeSeries:
    """Collect one response over the sizes, at one rate if the study has several."""
    loads = {axis.size_of(load): load.label for load in axis.loads(data) if rps is None or load.asked_rps == rps}
    blocks, sizes = np.unique(data.table["block"]), sorted(loads)
    y = np.empty((len(blocks), len(sizes)))
    for column, at in enumerate(sizes):
        runs = LoadBlocks.of(data.table, loads[at], blocks.tolist())
        y[:, column] = runs.values([treatment], response)[treatment]
    measured = np.isfinite(y).any(axis=0)
    whole = np.isfinite(y[:, measured]).all(axis=1) & measured.any()
    present, missing = (tuple(np.array(sizes)[mask].tolist()) for mask in (measured, ~measured))
    whole_y = y[np.ix_(whole, measured)]
    return SizeSeries(axis, treatment, response, rps, present, tuple(blocks[whole].tolist()), whole_y, missing)


def in_common(ladders: Sequence[SizeSeries]) -> tuple[SizeSeries, ...]:
    """Return the ladders on their common sizes and blocks; none if these are fewer than two of each."""
    sizes = tuple(at for at in ladders[0].sizes if all(at in one.sizes for one in ladders))
    blocks = tuple(block for block in ladders[0].blocks if all(block in one.blocks for one in ladders))
    if len(sizes) < 2 or len(blocks) < 2:
        return ()
    places = [np.ix_([*map(one.blocks.index, blocks)], [*map(one.sizes.index, sizes)]) for one in ladders]
    return tuple(
        replace(one, sizes=sizes, blocks=blocks, y=one.y[place]) for one, place in zip(ladders, places, strict=True)
    )


def growth(data: StudyData, treatment: str, response: str, rps: float | None = None, axis: Axis = ENDPOINTS) -> Growth:
    """Analyse the growth of one response."""
    rungs = ladder(data, treatment, response, rps, axis)
    alpha, seed = data.plan.study.alpha, data.plan.study.seed
    why: list[str] = []
    if rungs.missing:
        sizes = ", ".join(map(str, rungs.missing))
        why.append(f"not measured at {sizes} {axis.plural}, or excluded there: the ladder lacks these sizes")
    law = _attempt(lambda: power_law(rungs.x, rungs.y, alpha=alpha, margin=LINEAR_MARGIN), "exponent", why)
    cost = _attempt(lambda: marginal_cost(rungs.x, rungs.y, alpha=alpha), "marginal cost", why)
    knee = _attempt(lambda: find_knee(rungs.x, rungs.y, np.random.default_rng(seed), alpha=alpha), "knee", why)
    return Growth(rungs, law, cost, knee, _attempt(lambda: closest_curve(rungs.x, rungs.y), "curve", []), tuple(why))


def growths(data: StudyData, responses: Sequence[str], axis: Axis = ENDPOINTS) -> list[Growth]:
    """Analyse every treatment but the twin, and every rate, that has the response at two sizes or more."""
    if not varies(data, axis):
        return []
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    grown = [
        growth(data, treatment, name, rps, axis)
        for name in responses
        for treatment in treatments
        for rps in rates(data, axis)
    ]
    return [one for one in grown if len(one.ladder.sizes) > 1 and one.ladder.y.any()]


def compare(
    data: StudyData, treatment: str, baseline: str, response: str, axis: Axis = ENDPOINTS
) -> SlopeContrast | None:
    """Compare two treatments' slopes at common sizes and blocks; None if there are too few."""
    rate, alpha = rates(data, axis)[0], data.plan.study.alpha
    ladders = in_common([ladder(data, name, response, rate, axis) for name in (treatment, baseline)])
    if not ladders:
        return None
    one, other = ladders
    exponent = _attempt(lambda: compare_exponents(one.x, one.y, other.y, alpha=alpha), "", [])
    cost = marginal_cost(one.x, one.y - other.y, alpha=alpha)
    return SlopeContrast(treatment, baseline, response, exponent, cost, one.sizes)


def costs_of_both(data: StudyData, treatment: str, response: str) -> dict[str, Slope]:
    """Return the costs of one more endpoint and of 1000 more requests per second, the other fixed; {} at one rate."""
    crossed = [rate for rate in rates(data) if rate is not None]
    ladders: Sequence[SizeSeries] = [ladder(data, treatment, response, rate) for rate in crossed]
    if len(crossed) < 2 or len({one.sizes for one in ladders}) != 1 or not (ladders := in_common(ladders)):
        return {}
    y, sizes = np.concatenate([one.y for one in ladders], axis=1), ladders[0].x
    x = {"endpoint": np.tile(sizes, len(crossed)), "1000 rps": np.repeat(np.array(crossed) / 1e3, len(sizes))}
    return _attempt(lambda: marginal_costs(x, y, alpha=data.plan.study.alpha), "", []) or {}


def exponent_verdict(one: Growth) -> str:
    """Return the verdict on the exponent in words; with too few blocks, the number needed."""
    if one.law is None:
        return "not judged"
    slope = one.law.exponent
    if any(warning.code == "below-floor" for warning in slope.warnings):
        return f"inconclusive: at least {smallest_n(1, 1 - slope.confidence)} blocks"
    return one.law.verdict


def _attempt(compute: Callable[[], T], label: str, why: list[str]) -> T | None:
    try:
        return compute()
    except UsageError as error:
        why.append(f"{label}: {error}")
        return None


LEAST_IDLE = 0.10


@dataclass(frozen=True)
class Limit:
    """One treatment at one size and rate, over all its runs, repeats included."""

    treatment: str
    endpoints: int
    rps: float
    runs: int
    valid: int
    idle: float | None  # median idle share of the machine while measured
    achieved: float | None  # smallest achieved/requested rate
    requests: int
    failed: dict[str, int]  # failed requests by kind, over all runs
    throttled_s: float  # longest time for which an application was throttled
    gates: tuple[str, ...]  # failed checks, each with its count

    @property
    def by_machine(self) -> bool:
        """Whether the machine was the limit."""
        return self.idle is not None and self.idle < LEAST_IDLE

    @property
    def sentence(self) -> str:
        """The conclusion about this size, in words."""
        idle = "idle share unknown" if self.idle is None else f"{100 * self.idle:.0f} % of the machine idle"
        if self.by_machine:
            return f"{idle}: the machine was the limit; rates and latencies here are not the mesh's"
        if self.valid < self.runs:
            return f"{idle}, {self.runs - self.valid} of {self.runs} runs failed a check: look at their reasons"
        return f"{idle}: the machine was not the limit"


def limits(data: StudyData) -> list[Limit]:
    """Return every treatment at every load, as planned."""
    return [
        _limit(load, runs)
        for load in data.plan.study.loads
        for treatment in data.plan.study.treatments
        if (runs := [run for run in data.runs if run.load == load.label and run.treatment == treatment.name])
    ]


def _limit(load: Load, runs: Sequence[RunRecord]) -> Limit:
    busy = _all(runs, "machine_busy")
    achieved = _all(runs, "achieved_ratio")
    failed: Counter[str] = Counter()
    for run in runs:
        failed.update(run.failures or {kind: int(n) for kind, n in run.extra.get("failures", {}).items() if n})
    gates = Counter(gate.name for run in runs for gate in run.gates if not gate.passed)
    return Limit(
        treatment=runs[0].treatment,
        endpoints=endpoints_of(load),
        rps=load.asked_rps,
        runs=len(runs),
        valid=sum(run.valid for run in runs),
        idle=1 - float(np.median(busy)) if busy else None,
        achieved=min(achieved, default=None),
        requests=int(sum(_all(runs, "requests"))),
        failed=dict(failed),
        throttled_s=max((u.throttled_s or 0.0 for run in runs for u in run.usage), default=0.0),
        gates=tuple(f"{name} {count}×" for name, count in sorted(gates.items())),
    )


def _all(runs: Iterable[RunRecord], response: str) -> list[float]:
    return [run.responses[response] for run in runs if response in run.responses]
