"""What treatments cost in money, from prices that the user gives: none is built in.

Prices are no part of an experiment, so they are applied to the records afterwards: to every run first, and then
treatment and baseline are compared within blocks like any response. Intervals are not corrected; this describes and
decides nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meshtrial import stats
from meshtrial.errors import UsageError
from meshtrial.inference.values import FloatArray, included_blocks
from meshtrial.records.dataset import StudyData

HOURS_A_MONTH = 730.0
MILLION = 1e6
GIB = 2.0**30
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """What an hour costs, in any currency."""

    # Of one core and of one GiB of memory
    core_hour: float
    gib_hour: float

    def __post_init__(self) -> None:
        for name in ("core_hour", "gib_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 <= value <= 1e6):
                raise UsageError(f"{name} = {value!r}: must be a price of 0 or more")
        if self.core_hour == self.gib_hour == 0:
            raise UsageError("core_hour and gib_hour are both 0: give the prices that you pay, none is built in")


@dataclass(frozen=True)
class Amount:
    """An amount of money over the baseline's, with its interval over blocks."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class CostEstimate:
    """What a treatment costs more than the baseline at one load."""

    load: str
    treatment: str
    baseline: str
    blocks: int
    confidence: float
    # CPU and memory of app and data plane (node agents and policy servers among it) over a month at this load
    month: Amount
    # The same of the control plane, which does not grow with this application; None where none was metered
    control_plane: Amount | None
    million: Amount  # CPU of app and data plane for a million requests


def bills(data: StudyData, prices: Prices) -> tuple[CostEstimate, ...]:
    """Every treatment but the twin against the baseline, load by load; a searched load has no rate of its own."""
    study = data.plan.study
    several = []
    for load in (one.label for one in study.loads if not one.search):
        for treatment in (t.name for t in study.treatments if not t.twin and t != study.baseline):
            bill = _bill(data, prices, load, treatment)
            if bill is not None:
                several.append(bill)
    return tuple(several)


def _bill(data: StudyData, prices: Prices, load: str, treatment: str) -> CostEstimate | None:
    baseline = data.plan.study.baseline.name
    pair, metered = (treatment, baseline), ("path_cpu_cores", "path_memory_bytes", "path_cpu_s_per_request")
    runs = included_blocks(data, load).complete(pair, *metered)
    if len(runs.blocks) < 2:
        return None

    def of_both(response: str) -> FloatArray:
        return np.array([*runs.values(pair, response).values()])

    def monthly(part: str) -> FloatArray:
        cores, memory = of_both(f"{part}_cpu_cores"), of_both(f"{part}_memory_bytes")
        spent: FloatArray = HOURS_A_MONTH * (prices.core_hour * cores + prices.gib_hour * memory / GIB)
        return spent

    def added(money: FloatArray) -> stats.RankInterval:
        return stats.hodges_lehmann(money[0] - money[1], data.plan.study.alpha)

    month, control = added(monthly("path")), np.nan_to_num(monthly("control_plane"), nan=0.0)
    return CostEstimate(
        load=load,
        treatment=treatment,
        baseline=baseline,
        blocks=len(runs.blocks),
        confidence=month.confidence,
        month=_amount(month),
        control_plane=_amount(added(control)) if control[0].any() else None,
        million=_amount(added(of_both("path_cpu_s_per_request") * MILLION / _HOUR_S * prices.core_hour)),
    )


def _amount(money: stats.RankInterval) -> Amount:
    return Amount(money.estimate, money.low, money.high)
