"""How a study's responses grow with its endpoints: exponents, marginal costs, knees, predictions.

The block is the unit, as everywhere: one slope from each pass over the sizes, then a test over the blocks. Only
blocks in which a treatment was measured at every size are included, and a size that the treatment could not hold is
excluded from its ladder and named. What lies beyond the largest measured size is a prediction and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from meshtrial.design.study import Load
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray
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
class Ladder:
    """One response of one treatment on all its sizes.

    Attributes
    ----------
    rps : float or None
        The rate, None where it grows with the size.
    endpoints : tuple of int
        Sizes, ascending.
    blocks : tuple of int
        Blocks in which every size was measured.
    values : tuple of tuple of float
        A row a block, a column a size; the response's stored unit.
    missing : tuple of int
        Planned sizes at which this treatment has no included run.
    """

    treatment: str
    response: str
    rps: float | None
    endpoints: tuple[int, ...]
    blocks: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    missing: tuple[int, ...]

    @property
    def x(self) -> FloatArray:
        """Sizes as an array."""
        return np.array(self.endpoints, dtype=float)

    @property
    def y(self) -> FloatArray:
        """Values as an array (blocks, sizes)."""
        return np.array(self.values, dtype=float).reshape(len(self.blocks), len(self.endpoints))

    def part(self, sizes: Sequence[int], blocks: Sequence[int]) -> FloatArray:
        """The values of these sizes and blocks only."""
        rows = [self.blocks.index(block) for block in blocks]
        columns = [self.endpoints.index(at) for at in sizes]
        return self.y[np.ix_(rows, columns)]

    def at_sizes(self, alpha: float) -> tuple[Slope | None, ...]:
        """Estimate and interval at every size; None with fewer than two blocks."""
        if len(self.blocks) < 2:
            return (None,) * len(self.endpoints)
        return tuple(slope_over_blocks(column, 0.0, alpha) for column in self.y.T)


@dataclass(frozen=True)
class Growth:
    """How a response grows; what cannot be computed is None, and ``why`` says so.

    Attributes
    ----------
    law : PowerLaw or None
        The exponent against endpoints, judged against 1.
    cost : Slope or None
        Of one more endpoint, in the stored unit.
    knee : Knee or None
        Where growth bends.
    curve : Curve or None
        The straight line or the power law, whichever lies closer: what is drawn and predicted with.
    """

    ladder: Ladder
    law: PowerLaw | None
    cost: Slope | None
    knee: Knee | None
    curve: Curve | None
    why: tuple[str, ...]

    def predict(self, endpoints: float, alpha: float) -> Slope | None:
        """The curve's value at a size, with its interval over blocks.

        Beyond the measured sizes it is an extrapolation.
        """
        return None if self.curve is None else slope_over_blocks(self.curve.at(endpoints), 0.0, alpha)


@dataclass(frozen=True)
class SlopeContrast:
    """Two treatments' growth of one response, paired by block.

    Attributes
    ----------
    exponent : Slope or None
        Difference of the exponents; None where a value is not positive.
    cost : Slope
        Difference of the cost of one more endpoint.
    """

    treatment: str
    baseline: str
    response: str
    exponent: Slope | None
    cost: Slope


def endpoints_of(load: Load) -> int:
    """Endpoints of a load: replicas of all tiers."""
    return _TIERS * load.replicas


def rates(data: StudyData) -> tuple[float | None, ...]:
    """Rates that were crossed with the sizes; one None where the rate grows with the size."""
    loads = data.plan.study.loads
    found = sorted({load.rps for load in loads})
    sizes = {load.replicas for load in loads}
    return tuple(found) if len(loads) == len(found) * len(sizes) else (None,)


def ladder(data: StudyData, treatment: str, response: str, rps: float | None = None) -> Ladder:
    """Collect one response over the sizes; at one rate where the study has several."""
    loads = [load for load in data.plan.study.loads if rps is None or load.rps == rps]
    size = {load.label: endpoints_of(load) for load in loads}
    rows = data.table.filter(
        pl.col("included")
        & (pl.col("treatment") == treatment)
        & (pl.col("response") == response)
        & pl.col("value").is_not_null()
        & pl.col("load").is_in(list(size))
    )
    known = {(size[load], block): value for load, block, value in rows.select("load", "block", "value").iter_rows()}
    present = sorted({at for at, _ in known})
    blocks = [b for b in sorted({b for _, b in known}) if all((at, b) in known for at in present)]
    values = tuple(tuple(float(known[at, block]) for at in present) for block in blocks)
    missing = tuple(at for at in sorted(set(size.values())) if at not in present)
    return Ladder(treatment, response, rps, tuple(present), tuple(blocks), values, missing)


def growth(data: StudyData, treatment: str, response: str, rps: float | None = None) -> Growth:
    """Analyse one response's growth."""
    found = ladder(data, treatment, response, rps)
    alpha, seed = data.plan.study.alpha, data.plan.study.seed
    why: list[str] = []
    if found.missing:
        sizes = ", ".join(map(str, found.missing))
        why.append(f"not measured at {sizes} endpoints, or excluded there: the ladder lacks these sizes")
    law = _tried(lambda: power_law(found.x, found.y, alpha=alpha, margin=LINEAR_MARGIN), "exponent", why)
    cost = _tried(lambda: marginal_cost(found.x, found.y, alpha=alpha), "marginal cost", why)
    knee = _tried(lambda: find_knee(found.x, found.y, np.random.default_rng(seed), alpha=alpha), "knee", why)
    return Growth(found, law, cost, knee, _tried(lambda: closest_curve(found.x, found.y), "curve", []), tuple(why))


def growths(data: StudyData, responses: Sequence[str]) -> list[Growth]:
    """Every treatment but the twin and rate that has the response at two sizes or more."""
    treatments = [t.name for t in data.plan.study.treatments if not t.twin]
    found = [
        growth(data, treatment, name, rps) for name in responses for treatment in treatments for rps in rates(data)
    ]
    return [one for one in found if len(one.ladder.endpoints) > 1 and _has_any(one.ladder)]


def compare(data: StudyData, treatment: str, baseline: str, response: str) -> SlopeContrast | None:
    """Two treatments' slopes on the sizes and blocks that both have; None where that is too little."""
    rate = rates(data)[0]
    one, other = (ladder(data, name, response, rate) for name in (treatment, baseline))
    sizes = [at for at in one.endpoints if at in other.endpoints]
    blocks = [block for block in one.blocks if block in other.blocks]
    if len(sizes) < 2 or len(blocks) < 2:
        return None
    t, b = one.part(sizes, blocks), other.part(sizes, blocks)
    x, alpha = np.array(sizes, dtype=float), data.plan.study.alpha
    exponent = _tried(lambda: compare_exponents(x, t, b, alpha=alpha), "", [])
    return SlopeContrast(treatment, baseline, response, exponent, marginal_cost(x, t - b, alpha=alpha))


def costs_of_both(data: StudyData, treatment: str, response: str) -> dict[str, Slope]:
    """Cost of one more endpoint and of 1000 more requests a second, each with the other held; empty at one rate."""
    crossed = [rate for rate in rates(data) if rate is not None]
    ladders = [ladder(data, treatment, response, rate) for rate in crossed]
    if len(crossed) < 2 or len({one.endpoints for one in ladders}) != 1:
        return {}
    blocks = [b for b in ladders[0].blocks if all(b in one.blocks for one in ladders)]
    if len(blocks) < 2:
        return {}
    sizes = ladders[0].endpoints
    y = np.concatenate([one.part(sizes, blocks) for one in ladders], axis=1)
    x = {
        "endpoint": np.tile(ladders[0].x, len(crossed)),
        "1000 rps": np.repeat(np.array(crossed) / 1e3, len(sizes)),
    }
    return _tried(lambda: marginal_costs(x, y, alpha=data.plan.study.alpha), "", []) or {}


def judged(found: Growth) -> str:
    """Verdict on the exponent in words, against 1.0; with too few blocks, how many it takes."""
    if found.law is None:
        return "not judged"
    slope = found.law.exponent
    if any(warning.code == "below-floor" for warning in slope.warnings):
        return f"inconclusive: at least {smallest_n(1, 1 - slope.confidence)} blocks"
    return found.law.verdict


def _has_any(one: Ladder) -> bool:
    return any(value != 0 for row in one.values for value in row)


def _tried(ask: Callable[[], T], what: str, why: list[str]) -> T | None:
    try:
        return ask()
    except UsageError as error:
        why.append(f"{what}: {error}")
        return None
