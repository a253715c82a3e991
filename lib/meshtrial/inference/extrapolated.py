"""What treatments cost in money at a size that was not measured, from a study that scales out.

In every block a straight line goes through what a treatment costs more than the baseline at each measured size; its
value at the size that is asked for is that block's prediction, and the interval is over the blocks. How far that holds
depends on how surely costs do not bend (`meshtrial.stats.growth.at_size`): where the measured sizes leave it open, the
interval is the envelope of straight lines, parabolas and power laws, and beyond twice the largest size there is none.

Limit: the number of nodes does not vary within a study, so what runs once a node (agents, node proxies) is in the fixed
part, as on the nodes of the study.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.errors import UsageError
from meshtrial.inference import scaling
from meshtrial.inference.money import GIB, HOURS_A_MONTH, Prices
from meshtrial.records.dataset import StudyData
from meshtrial.stats import growth
from meshtrial.stats.growth import Slope

CPU, MEMORY = "total_cpu_cores", "total_memory_bytes"
# Beyond this many times the largest measured size nothing that was seen there is an argument any more.
FARTHEST = 10


@dataclass(frozen=True)
class MonthAtSize:
    """What a treatment costs more than the baseline in a month, app and whole mesh together."""

    treatment: str
    baseline: str
    pods: int  # the size that was asked for
    sizes: tuple[int, ...]  # those that were measured
    rps: float | None  # the rate; None where it grows with the size
    blocks: int
    month: Slope | None  # predicted at `pods`; None where the measured sizes say nothing of that one
    bounded: bool  # whether curvature is shown to change the month by less than a tenth
    hundred: Slope  # of a hundred pods more, within the measured sizes


def at_size(data: StudyData, prices: Prices, pods: int) -> tuple[MonthAtSize, ...]:
    """Every treatment but the twin against the baseline.

    UsageError for a study of one size, and for a size that is none or too far beyond the measured ones.
    """
    study = data.plan.study
    sizes = sorted({scaling.endpoints_of(load) for load in study.loads})
    if len(sizes) < 2 or not _metered(data):
        raise UsageError(f"--pods: the study {study.name} measured one size; take a recorded scale_out study")
    most = FARTHEST * sizes[-1]
    if not 1 <= pods <= most:
        raise UsageError(f"--pods {pods}: must be 1 to {most}, {FARTHEST} times the largest size that was measured")
    treatments = [t.name for t in study.treatments if not t.twin and t != study.baseline]
    months = (_predicted(data, prices, name, pods) for name in treatments)
    return tuple(one for one in months if one is not None)


def _metered(data: StudyData) -> bool:
    return {CPU, MEMORY} <= set(data.table["response"].unique())


def _predicted(data: StudyData, prices: Prices, treatment: str, pods: int) -> MonthAtSize | None:
    baseline, rate = data.plan.study.baseline.name, scaling.rates(data)[-1]
    wanted = [(name, part) for name in (treatment, baseline) for part in (CPU, MEMORY)]
    ladders = scaling.in_common([scaling.ladder(data, name, part, rate) for name, part in wanted])
    if not ladders:
        return None
    cpu, memory, plain_cpu, plain_memory = (one.y for one in ladders)
    month, plain = (
        HOURS_A_MONTH * (prices.core_hour * cores + prices.gib_hour * held / GIB)
        for cores, held in ((cpu, memory), (plain_cpu, plain_memory))
    )
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
