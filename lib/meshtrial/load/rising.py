"""A rate that rises in steps: what was asked for and what was achieved in each, and the highest step that was kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from meshtrial.design.load import Ramp
from meshtrial.design.study import Gates
from meshtrial.load import quantiles
from meshtrial.load.ingest import Measurement
from meshtrial.load.quantiles import successful

_BEYOND = 10  # requests that must lie beyond a step's quantile, which describes and decides nothing


@dataclass(frozen=True)
class RampStep:
    """One step of a ramp."""

    asked_rps: float  # over all generators, as is what was achieved
    achieved_rps: float
    requests: int
    failed: int
    p50_s: float | None  # it and p99 from the schedule, of successful requests; None where too few lie beyond
    p99_s: float | None

    def kept(self, gates: Gates) -> bool:
        """Whether as many requests were served well as were asked for."""
        served = self.achieved_rps * (1 - self.failed / self.requests) if self.requests else 0.0
        return served >= (1 - gates.rate_tolerance) * self.asked_rps


def steps(measurement: Measurement, load: Ramp) -> tuple[RampStep, ...]:
    """The steps of a run whose load is a ramp, in their order."""
    ramp = []
    for index in range(load.steps):
        own = measurement.generators[index * load.generators : (index + 1) * load.generators]
        mine = measurement.requests.filter(pl.col("slice") == index)
        latencies = successful(mine, "corrected_latency_s").to_numpy()
        of_step = quantiles.exact(latencies, _BEYOND)
        achieved = math.fsum(record.achieved_rps for record in own)
        requests, failed = (sum(getattr(record, name) for record in own) for name in ("requests", "errors"))
        ramp.append(
            RampStep(load.part(index).asked_rps, achieved, requests, failed, of_step.get("p50"), of_step.get("p99"))
        )
    return tuple(ramp)


def responses(ramp: Sequence[RampStep], gates: Gates) -> dict[str, float]:
    """``ramp_kept_rps``: the rate of the last step before the first that was not kept; nothing without a ramp.

    Where not even the first was kept it is half of that step: a rate below it, of which nothing more is known.
    """
    if not ramp:
        return {}
    kept = 0.5 * ramp[0].asked_rps
    for step in ramp:
        if not step.kept(gates):
            break
        kept = step.asked_rps
    return {"ramp_kept_rps": kept}
