"""Where the machine, not the mesh, was the limit: idle share, gates and failures at every size.

Opinion: with less than a tenth of the machine idle, requests wait for a CPU that a larger machine would have. Rates
and latencies there are the machine's; memory, bytes pushed and, less surely, CPU a request are still the mesh's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial.inference.scaling import endpoints_of
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord

LEAST_IDLE = 0.10


@dataclass(frozen=True)
class Limit:
    """One treatment at one size and rate, over every run that was made of it, the repeated ones too."""

    treatment: str
    endpoints: int
    rps: float
    runs: int
    valid: int
    idle: float | None  # median idle share of the machine in the measured window
    achieved: float | None  # smallest achieved/requested rate
    requests: int
    failed: dict[str, int]  # failed requests by kind, all runs together
    throttled_s: float  # longest time that an application was throttled
    gates: tuple[str, ...]  # gates that failed, each with how often

    @property
    def by_machine(self) -> bool:
        """Whether the machine was the limit."""
        return self.idle is not None and self.idle < LEAST_IDLE

    @property
    def sentence(self) -> str:
        """What to make of this size."""
        idle = "idle share unknown" if self.idle is None else f"{100 * self.idle:.0f} % of the machine idle"
        if self.by_machine:
            return f"{idle}: the machine was the limit; rates and latencies here are not the mesh's"
        if self.valid < self.runs:
            return f"{idle}, {self.runs - self.valid} of {self.runs} runs failed a check: look at their reasons"
        return f"{idle}: the machine was not the limit"


def limits(data: StudyData) -> list[Limit]:
    """Every treatment at every load, as planned."""
    return [
        _limit(treatment.name, endpoints_of(load), load.asked_rps, runs)
        for load in data.plan.study.loads
        for treatment in data.plan.study.treatments
        if (runs := [run for run in data.runs if run.load == load.label and run.treatment == treatment.name])
    ]


def _limit(treatment: str, endpoints: int, rps: float, runs: Sequence[RunRecord]) -> Limit:
    busy = _all(runs, "machine_busy")
    achieved = _all(runs, "achieved_ratio")
    failed: Counter[str] = Counter()
    for run in runs:
        failed.update(run.failures or {kind: int(n) for kind, n in run.extra.get("failures", {}).items() if n})
    gates = Counter(gate.name for run in runs for gate in run.gates if not gate.passed)
    return Limit(
        treatment=treatment,
        endpoints=endpoints,
        rps=rps,
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
