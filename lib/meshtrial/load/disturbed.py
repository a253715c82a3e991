"""Responses of runs that are disturbed on purpose: by a restart, or by a rate that rises in steps.

Latencies as sent would hide a restart: while nothing answers, nothing is sent (coordinated omission). So only latencies
from the schedule are reported. Runs without a restart are measured in the same window, for comparison.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from meshtrial.design.load import Ramp
from meshtrial.design.study import Gates
from meshtrial.load import quantiles
from meshtrial.load.ingest import Measurement
from meshtrial.load.quantiles import successful

_BEYOND = 10  # requests that must lie beyond a step's quantile, which is descriptive only


def restart_responses(requests: pl.DataFrame, begin_s: float, length_s: float, floor: float) -> dict[str, float]:
    """Return ``failed_requests`` of a run, and ``longest_gap_s`` and ``latency_restart_window_*_s`` of a window of it.

    ``begin_s`` is by the clock of ``actual_start_s``. The sample floor applies to the window's requests.
    """
    failed = requests.filter(~pl.col("ok").fill_null(True)).height
    due = pl.coalesce("scheduled_start_s", "actual_start_s")
    inside = requests.filter(due.is_between(begin_s, begin_s + length_s, closed="left"))
    latencies = successful(inside, "corrected_latency_s").to_numpy()
    percentiles = quantiles.exact(latencies, floor, count=successful(inside).len())
    return {
        "failed_requests": float(failed),
        "longest_gap_s": longest_gap(requests, begin_s, length_s),
        **{f"latency_restart_window_{q}_s": value for q, value in percentiles.items()},
    }


def longest_gap(requests: pl.DataFrame, begin_s: float, length_s: float) -> float:
    """Return the longest time in seconds within a window in which no request succeeded, on any connection."""
    end_s = begin_s + length_s
    ended = pl.col("actual_start_s") + pl.col("latency_s")
    answers = requests.filter(pl.col("ok"), ended.is_between(begin_s, end_s)).select(ended.alias("at"))["at"]
    moments = pl.concat([pl.Series([begin_s]), answers.sort().cast(pl.Float64), pl.Series([end_s])])
    return float(moments.diff().max())  # type: ignore[arg-type]


@dataclass(frozen=True)
class RampStep:
    """One step of a ramp; rates are over all generators."""

    asked_rps: float
    achieved_rps: float
    requests: int
    failed: int
    p50_s: float | None  # quantiles are from the schedule, of successful requests; None for too few
    p99_s: float | None

    def kept(self, gates: Gates) -> bool:
        """Return whether the step's rate was served successfully, within the tolerance."""
        served = self.achieved_rps * (1 - self.failed / self.requests) if self.requests else 0.0
        return served >= (1 - gates.rate_tolerance) * self.asked_rps


def ramp_steps(measurement: Measurement, load: Ramp) -> tuple[RampStep, ...]:
    """Return the steps of a run whose load is a ramp, in order."""
    ramp = []
    for index in range(load.steps):
        records = measurement.generators[index * load.generators : (index + 1) * load.generators]
        step = measurement.requests.filter(pl.col("slice") == index)
        latencies = quantiles.exact(successful(step, "corrected_latency_s").to_numpy(), _BEYOND)
        achieved = math.fsum(record.achieved_rps for record in records)
        requests, failed = (sum(getattr(record, name) for record in records) for name in ("requests", "errors"))
        asked = load.part(index).asked_rps
        ramp.append(RampStep(asked, achieved, requests, failed, latencies.get("p50"), latencies.get("p99")))
    return tuple(ramp)


def ramp_responses(ramp: Sequence[RampStep], gates: Gates) -> dict[str, float]:
    """Return ``ramp_kept_rps``, the rate of the last step before the first that was not kept; empty without a ramp.

    If even the first step was not kept, it is half of that step's rate, which stands for any lower rate.
    """
    if not ramp:
        return {}
    kept = 0.5 * ramp[0].asked_rps
    for step in ramp:
        if not step.kept(gates):
            break
        kept = step.asked_rps
    return {"ramp_kept_rps": kept}
