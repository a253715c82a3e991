"""The cost of treatments in money, at prices that the user gives; none is built in.

Prices are no part of an experiment, so they are applied to the records afterwards: first to every run, then treatment
and baseline are compared within blocks like any response. Intervals are not corrected and decide nothing.

For a study of several sizes, costs are predicted at a size that was not measured. In every block a straight line goes
through the added cost at each measured size, and its value at the requested size is that block's prediction. The range
depends on whether costs are shown not to bend (`meshtrial.stats.growth.at_size`). If that is open, the interval is the
envelope of straight lines, parabolas and power laws, and beyond twice the largest size there is none. Limit: a study
has a fixed number of nodes, so the cost of what runs once per node (agents, node proxies) is in the fixed part.
"""

import math
from dataclasses import dataclass

import numpy as np

from meshtrial import stats
from meshtrial.design.load import CapacitySearch
from meshtrial.design.study import Study
from meshtrial.errors import UsageError
from meshtrial.inference import scaling
from meshtrial.inference.values import FloatArray, included_blocks
from meshtrial.records.dataset import StudyData
from meshtrial.stats import growth
from meshtrial.stats.growth import Slope

HOURS_A_MONTH = 730.0
MILLION = 1e6
GIB = 2.0**30
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """Prices per hour, in any currency."""

    # The price of one core, and of one GiB of memory
    core_hour: float
    gib_hour: float

    def __post_init__(self) -> None:
        for name in ("core_hour", "gib_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 <= value <= 1e6):
                raise UsageError(f"{name} = {value!r}: must be a price of 0 or more")
        if self.core_hour == self.gib_hour == 0:
            raise UsageError("core_hour and gib_hour are both 0: give the prices that you pay; none is built in")


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a treatment above the baseline at one load, with intervals over blocks."""

    load: str
    treatment: str
    baseline: str
    blocks: int
    confidence: float
    # CPU and memory of application and data plane (with node agents and policy servers) in a month at this load
    month: stats.RankInterval
    # The same for the control plane, which does not grow with this application; None if none was metered
    control_plane: stats.RankInterval | None
    million: stats.RankInterval  # CPU of application and data plane for a million requests


def bills(data: StudyData, prices: Prices) -> tuple[CostEstimate, ...]:
    """Compare every treatment but the twin with the baseline at every load; a searched load has no fixed rate."""
    study = data.plan.study
    loads = [load.label for load in study.loads if not isinstance(load, CapacitySearch)]
    several = (_bill(data, prices, load, treatment) for load in loads for treatment in _compared(study))
    return tuple(bill for bill in several if bill is not None)


def _compared(study: Study) -> list[str]:
    return [t.name for t in study.treatments if not t.twin and t != study.baseline]


def _monthly(prices: Prices, cores: FloatArray, memory: FloatArray) -> FloatArray:
    spent: FloatArray = HOURS_A_MONTH * (prices.core_hour * cores + prices.gib_hour * memory / GIB)
    return spent


def _bill(data: StudyData, prices: Prices, load: str, treatment: str) -> CostEstimate | None:
    baseline = data.plan.study.baseline.name
    pair, metered = (treatment, baseline), ("path_cpu_cores", "path_memory_bytes", "path_cpu_s_per_request")
    runs = included_blocks(data, load).complete(pair, *metered)
    if len(runs.blocks) < 2:
        return None

    def of_both(response: str) -> FloatArray:
        return np.array([*runs.values(pair, response).values()])

    def monthly(part: str) -> FloatArray:
        return _monthly(prices, of_both(f"{part}_cpu_cores"), of_both(f"{part}_memory_bytes"))

    def added(money: FloatArray) -> stats.RankInterval:
        return stats.hodges_lehmann(money[0] - money[1], data.plan.study.alpha)

    month, control = added(monthly("path")), np.nan_to_num(monthly("control_plane"), nan=0.0)
    return CostEstimate(
        load=load,
        treatment=treatment,
        baseline=baseline,
        blocks=len(runs.blocks),
        confidence=month.confidence,
        month=month,
        control_plane=added(control) if control[0].any() else None,
        million=added(of_both("path_cpu_s_per_request") * MILLION / _HOUR_S * prices.core_hour),
    )


CPU, MEMORY = "total_cpu_cores", "total_memory_bytes"
# Largest multiple of the largest measured size at which a prediction may be requested.
FARTHEST = 10


@dataclass(frozen=True)
class MonthAtSize:
    """The cost of a treatment above the baseline in a month, application and whole mesh together."""

    treatment: str
    baseline: str
    pods: int  # the requested size
    sizes: tuple[int, ...]  # the measured sizes
    rps: float | None  # the rate; None if it grows with the size
    blocks: int
    month: Slope | None  # predicted at `pods`; None if the measured sizes allow no prediction
    bounded: bool  # whether curvature is shown to change the month by less than a tenth
    hundred: Slope  # cost of a hundred more pods, within the measured sizes


def at_size(data: StudyData, prices: Prices, pods: int) -> tuple[MonthAtSize, ...]:
    """Predict every treatment but the twin against the baseline.

    Raise UsageError for a study of one size, and for a size below 1 or too far beyond the measured ones.
    """
    study = data.plan.study
    sizes = sorted({scaling.endpoints_of(load) for load in study.loads})
    if len(sizes) < 2 or not {CPU, MEMORY} <= set(data.table["response"].unique()):
        raise UsageError(f"--pods: the study {study.name} measured one size; use a recorded scale_out study")
    most = FARTHEST * sizes[-1]
    if not 1 <= pods <= most:
        raise UsageError(f"--pods {pods}: must be 1 to {most}, {FARTHEST} times the largest size that was measured")
    months = (_predicted(data, prices, name, pods) for name in _compared(study))
    return tuple(one for one in months if one is not None)


def _predicted(data: StudyData, prices: Prices, treatment: str, pods: int) -> MonthAtSize | None:
    baseline, rate = data.plan.study.baseline.name, scaling.rates(data)[-1]
    needed = [(name, part) for name in (treatment, baseline) for part in (CPU, MEMORY)]
    ladders = scaling.in_common([scaling.ladder(data, name, part, rate) for name, part in needed])
    if not ladders:
        return None
    cpu, memory, plain_cpu, plain_memory = (one.y for one in ladders)
    month, plain = _monthly(prices, cpu, memory), _monthly(prices, plain_cpu, plain_memory)
    x, alpha = ladders[0].x, data.plan.study.alpha
    predicted = growth.at_size(x, month, plain, pods, alpha=alpha)
    return MonthAtSize(
        treatment=treatment,
        baseline=baseline,
        pods=pods,
        sizes=ladders[0].sizes,
        rps=rate,
        blocks=len(month),
        month=predicted.slope,
        bounded=predicted.bounded,
        hundred=growth.marginal_cost(x / 100, month - plain, alpha=alpha),
    )
