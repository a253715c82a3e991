"""How a study's responses grow with its endpoints, or with what else it varies: exponents, costs, knees, predictions.

The block is the unit, as everywhere: one slope from each pass over the sizes, then a test over the blocks. Only
blocks in which a treatment was measured at every size are included, and a size that the treatment could not hold is
excluded from its ladder and named. What lies beyond the largest measured size is a prediction and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from meshtrial.design.load import Load
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.records.dataset import StudyData
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
    """What a study varies; along it everything else that it varies is held."""

    one: str  # what a reader calls one of them
    many: str
    of: Callable[[Load], int]  # a load's number of them
    held: Callable[[Load], int]  # of what is crossed with it; the loads with the smallest are taken

    def loads(self, data: StudyData) -> list[Load]:
        """A study's loads along it."""
        loads = data.plan.study.loads
        least = min(map(self.held, loads))
        return [load for load in loads if self.held(load) == least]


def endpoints_of(load: Load) -> int:
    """Endpoints of a load: replicas of all tiers."""
    return _TIERS * load.replicas


ENDPOINTS = Axis("endpoint", "endpoints", endpoints_of, lambda load: load.unused_services)
# At the largest size, where most proxies are told of them.
UNUSED = Axis(
    "service that nobody calls",
    "services that nobody calls",
    lambda load: load.unused_services,
    lambda load: -load.replicas,
)


def varied(data: StudyData) -> Axis:
    """What a study varies: its endpoints, or at one size of them the services that nobody calls."""
    of = {axis.many: {axis.of(load) for load in axis.loads(data)} for axis in (ENDPOINTS, UNUSED)}
    return UNUSED if len(of[ENDPOINTS.many]) == 1 and len(of[UNUSED.many]) > 1 else ENDPOINTS


@dataclass(frozen=True)
class SizeSeries:
    """One response of one treatment on all its sizes."""

    axis: Axis  # what the sizes are of

    treatment: str
    response: str
    rps: float | None  # the rate, None where it grows with the size
    sizes: tuple[int, ...]  # ascending
    blocks: tuple[int, ...]  # blocks in which every size was measured
    y: FloatArray  # (blocks, sizes): the response in its stored unit
    missing: tuple[int, ...]  # planned sizes at which this treatment has no included run

    @property
    def x(self) -> FloatArray:
        """Sizes as an array."""
        return np.array(self.sizes, dtype=float)

    def at_sizes(self, alpha: float) -> tuple[Slope | None, ...]:
        """Estimate and interval at every size; None with fewer than two blocks."""
        if len(self.blocks) < 2:
            return (None,) * len(self.sizes)
        return tuple(slope_over_blocks(column, 0.0, alpha) for column in self.y.T)


@dataclass(frozen=True)
class Growth:
    """How a response grows; what cannot be computed is None, and ``why`` says so."""

    ladder: SizeSeries
    law: PowerLaw | None  # the exponent against sizes, judged against 1
    cost: Slope | None  # of one more of what is varied, in the stored unit
    knee: Knee | None  # where growth bends
    curve: Curve | None  # the straight line or the power law, whichever lies closer: what is drawn and predicted with
    why: tuple[str, ...]

    def predict(self, size: float, alpha: float) -> Slope | None:
        """The curve's value at a size, with its interval over blocks.

        Beyond the measured sizes it is an extrapolation.
        """
        return None if self.curve is None else slope_over_blocks(self.curve.at(size), 0.0, alpha)


@dataclass(frozen=True)
class SlopeContrast:
    """Two treatments' growth of one response, paired by block."""

    treatment: str
    baseline: str
    response: str
    exponent: Slope | None  # difference of the exponents; None where a value is not positive
    cost: Slope  # difference of the cost of one more of what is varied
    sizes: tuple[int, ...]  # on which both were measured


def rates(data: StudyData, axis: Axis = ENDPOINTS) -> tuple[float | None, ...]:
    """Rates that were crossed with the sizes; one None where the rate grows with the size."""
    loads = axis.loads(data)
    asked = sorted({load.asked_rps for load in loads})
    sizes = {axis.of(load) for load in loads}
    return tuple(asked) if len(loads) == len(asked) * len(sizes) else (None,)


def ladder(
    data: StudyData, treatment: str, response: str, rps: float | None = None, axis: Axis = ENDPOINTS
) -> SizeSeries:
    """Collect one response over the sizes; at one rate where the study has several."""
    loads = {axis.of(load): load.label for load in axis.loads(data) if rps is None or load.asked_rps == rps}
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
    """The same on the sizes and blocks that all of them have; none where these are fewer than two of each."""
    sizes = tuple(at for at in ladders[0].sizes if all(at in one.sizes for one in ladders))
    blocks = tuple(block for block in ladders[0].blocks if all(block in one.blocks for one in ladders))
    if len(sizes) < 2 or len(blocks) < 2:
        return ()
    places = [np.ix_([*map(one.blocks.index, blocks)], [*map(one.sizes.index, sizes)]) for one in ladders]
    return tuple(
        replace(one, sizes=sizes, blocks=blocks, y=one.y[place]) for one, place in zip(ladders, places, strict=True)
    )


def growth(data: StudyData, treatment: str, response: str, rps: float | None = None, axis: Axis = ENDPOINTS) -> Growth:
    """Analyse one response's growth."""
    rungs = ladder(data, treatment, response, rps, axis)
    alpha, seed = data.plan.study.alpha, data.plan.study.seed
    why: list[str] = []
    if rungs.missing:
        sizes = ", ".join(map(str, rungs.missing))
        why.append(f"not measured at {sizes} {axis.many}, or excluded there: the ladder lacks these sizes")
    law = _tried(lambda: power_law(rungs.x, rungs.y, alpha=alpha, margin=LINEAR_MARGIN), "exponent", why)
    cost = _tried(lambda: marginal_cost(rungs.x, rungs.y, alpha=alpha), "marginal cost", why)
    knee = _tried(lambda: find_knee(rungs.x, rungs.y, np.random.default_rng(seed), alpha=alpha), "knee", why)
    return Growth(rungs, law, cost, knee, _tried(lambda: closest_curve(rungs.x, rungs.y), "curve", []), tuple(why))


def growths(data: StudyData, responses: Sequence[str], axis: Axis = ENDPOINTS) -> list[Growth]:
    """Every treatment but the twin and rate that has the response at two sizes or more."""
    if len({axis.of(load) for load in axis.loads(data)}) < 2:
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
    """Two treatments' slopes on the sizes and blocks that both have; None where that is too little."""
    rate, alpha = rates(data, axis)[0], data.plan.study.alpha
    ladders = in_common([ladder(data, name, response, rate, axis) for name in (treatment, baseline)])
    if not ladders:
        return None
    one, other = ladders
    exponent = _tried(lambda: compare_exponents(one.x, one.y, other.y, alpha=alpha), "", [])
    cost = marginal_cost(one.x, one.y - other.y, alpha=alpha)
    return SlopeContrast(treatment, baseline, response, exponent, cost, one.sizes)


def costs_of_both(data: StudyData, treatment: str, response: str) -> dict[str, Slope]:
    """Cost of one more endpoint and of 1000 more requests a second, each with the other held; empty at one rate."""
    crossed = [rate for rate in rates(data) if rate is not None]
    ladders: Sequence[SizeSeries] = [ladder(data, treatment, response, rate) for rate in crossed]
    if len(crossed) < 2 or len({one.sizes for one in ladders}) != 1 or not (ladders := in_common(ladders)):
        return {}
    y, sizes = np.concatenate([one.y for one in ladders], axis=1), ladders[0].x
    x = {"endpoint": np.tile(sizes, len(crossed)), "1000 rps": np.repeat(np.array(crossed) / 1e3, len(sizes))}
    return _tried(lambda: marginal_costs(x, y, alpha=data.plan.study.alpha), "", []) or {}


def judged(one: Growth) -> str:
    """Verdict on the exponent in words, against 1.0; with too few blocks, how many it takes."""
    if one.law is None:
        return "not judged"
    slope = one.law.exponent
    if any(warning.code == "below-floor" for warning in slope.warnings):
        return f"inconclusive: at least {smallest_n(1, 1 - slope.confidence)} blocks"
    return one.law.verdict


def _tried(ask: Callable[[], T], what: str, why: list[str]) -> T | None:
    try:
        return ask()
    except UsageError as error:
        why.append(f"{what}: {error}")
        return None
