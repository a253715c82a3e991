"""The highest rate that a fresh deployment keeps: a closed loop, an adaptive search, a confirming stage.

The closed loop says where to look, and is a number of its own: it has no schedule, so it cannot fall behind.
The search asks rates that double back to one that failed and one that was kept; a rate that fails is asked
again once, as every run is. The rates that it can ask lie on a grid whose place is drawn for every run: were it that
of the closed loop, two treatments with one capacity and different closed loops would end on different rates in every
block, and be called different by the grid alone. What was kept in a short step is then confirmed in a longer one,
because the best of several noisy steps flatters; where that fails the next lower rate is tried. The capacity is the
rate that was confirmed.

A rate is kept when as many requests were served a second as were asked for: fortio sends what is overdue as soon as it
can, so a stall costs a rate nothing that is made up for. Late sends spoil latencies, which a search does not give; how
late answers may be is what an objective says.

The load generator must never be what is measured. Where a rate was not kept, sends were late and connections were
free (Little's law: rate times mean latency is how many of them were busy), its timers were the limit: the rate is
asked again over twice as many connections, as often as that carries more. Where the generator still is the limit,
what was found is no capacity but a rate that the treatment holds at the least, and is recorded as that.

With an objective (``p99<10ms``) a rate is held only if its latencies from the schedule keep that too; the capacity is
then the highest rate under the objective. It is confirmed by the upper limit of that percentile and not by the
percentile itself, which lies below the objective half of the time where the true one is exactly there.
"""

import math
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial.design.responses import PARTS
from meshtrial.design.study import Gates, Load, Objective
from meshtrial.errors import MeshtrialError
from meshtrial.load import quantiles
from meshtrial.load.quantiles import successful
from meshtrial.records.schema import GENERATOR_GATES, GateResult
from meshtrial.run import stage
from meshtrial.stats import LoadStep, RateSearch, bracket
from meshtrial.stats.saturation import tidy
from meshtrial.testbed.base import Deployment, Testbed

# An open rate is held below what a closed loop reaches, for a late answer leaves no time to catch up.
START, HIGHEST = 0.5, 1.5
FACTOR, RESOLUTION = 1.4, 0.025
CONFIDENCE = 0.95  # with which an objective is kept where a rate is confirmed
CONFIRM_LENGTH = 2.0  # steps
MOST_STEPS, MOST_CONFIRMING = 24, 6
# fortio needs two requests a connection, or it silently uses fewer connections.
REQUESTS_A_CONNECTION = 2.1
MOST_CONNECTIONS = 128
# A rate that was not kept with all connections busy is the target's: on two cores .88 to 1.00 of them were then.
BUSY = 0.85
# Requests beyond an objective's percentile in every step, and how long a step may become for them.
BEYOND, LONGEST_STEP_S = 10, 60.0
LATE, GENERATOR_LATE = "late", "generator late"


@dataclass(frozen=True)
class SearchStep:
    """One step of a search."""

    stage: str  # ``closed loop``, ``search`` or ``confirm``
    rate_rps: float | None  # asked for; None in a closed loop
    achieved_rps: float
    kept: float | None  # achieved over requested rate
    failed: tuple[str, ...]  # gates
    latency_p50_s: float | None  # of the step's own requests; None where too few lie beyond
    latency_p99_s: float | None
    generator_cpu: float | None  # share of its cores that the load generator used
    requests: int
    connections: int  # over all generators

    @property
    def held(self) -> bool:
        """Whether the rate was kept and every gate passed."""
        return not self.failed

    @property
    def generators_fault(self) -> bool:
        """Whether the load generator could not carry it."""
        return bool(GENERATOR_GATES.intersection(self.failed))


@dataclass(frozen=True)
class Capacity:
    """What a search found."""

    load: Load  # the confirming stage's
    confirmed: stage.Stage  # its gates failed where no rate could be confirmed
    steps: tuple[SearchStep, ...]  # in the order in which they ran
    sent: int  # requests that the deployment has seen in all of it
    dither: float = 0.0  # where its grid lay, as a share of a step of the search

    @property
    def responses(self) -> dict[str, float]:
        """The run's numbers, without latencies: at a rate of each treatment's own they compare nothing."""
        kept = {k: v for k, v in self.confirmed.responses.items() if not k.startswith("latency_")}
        name = "capacity_at_least_rps" if self.generators_limit else "capacity_rps"
        return kept | {name: self.load.rps, "closed_loop_rps": self.closed_rps}

    @property
    def closed_rps(self) -> float:
        """What the closed loop reached."""
        return next(step.achieved_rps for step in self.steps if step.stage == "closed loop")

    @property
    def failed_above(self) -> SearchStep | None:
        """The lowest rate above the capacity that was not held; None where none was asked."""
        above = [s for s in self.steps if not s.held and s.rate_rps is not None and s.rate_rps > self.load.rps]
        # Of the attempts at one rate the one that carried the most says what stood in the way.
        return min(above, key=lambda step: (step.rate_rps or 0.0, -step.achieved_rps), default=None)

    @property
    def generators_limit(self) -> bool:
        """Whether it was the load generator that could not carry the next higher rate."""
        return self.failed_above is not None and self.failed_above.generators_fault

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the run should know."""
        above, lines = self.failed_above, []
        if above is not None and above.generators_fault:
            lines.append(
                f"at {above.rate_rps:g} rps the load generator was at its own limit ({', '.join(above.failed)}): the "
                f"capacity is at least {self.load.rps:g} rps; give the generator more cores or connections"
            )
        elif self.load.rps < START * self.closed_rps:
            why = f"; above it failed: {', '.join(above.failed)}" if above is not None else ""
            lines.append(
                f"the rate that was kept, {self.load.rps:g} rps, is less than half of what the closed loop reached, "
                f"{self.closed_rps:.4g} rps{why}"
            )
        generator, path = (
            self.confirmed.responses.get(f"{PARTS[role].key}_cpu_cores", 0.0) for role in ("load generator", "path")
        )
        if generator > path:
            lines.append(
                f"the load generator used {generator:.3g} cores, what it loads {path:.3g}: where they share cores, the "
                "capacity is partly the generator's"
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """For the run's record, under ``extra``."""
        above = self.failed_above
        return {
            "steps": [asdict(step) | {"failed": list(step.failed)} for step in self.steps],
            "low_rps": self.load.rps,
            "high_rps": None if above is None else above.rate_rps,
            "limited_by": [] if above is None else list(above.failed),
            "resolution": RESOLUTION,
            "dither": self.dither,
        }


def find(
    deployment: Deployment, testbed: Testbed, load: Load, gates: Gates, folder: Path, dither: float = 0.0
) -> Capacity:
    """Search the capacity of a deployment, and leave the confirming stage's files in ``folder``.

    The load's ``duration_s`` is the length of a step, its ``warmup_s`` that of the closed loop before everything.
    ``dither``, from 0 to 1, is where the grid of rates lies. MeshtrialError when no rate at all is kept.
    """
    objective = Objective.parse(load.objective) if load.objective else None
    plain = replace(load, search=False, objective="", rps=0.0)
    return _Finder(deployment, testbed, plain, gates, folder, objective, load.connections, dither).run()


@dataclass
class _Finder:
    deployment: Deployment
    testbed: Testbed
    load: Load
    gates: Gates
    folder: Path
    objective: Objective | None
    connections: int  # as many as were needed so far
    dither: float = 0.0
    steps: list[SearchStep] = field(default_factory=list)
    sent: int = 0
    resolution_s: float = 0.0

    def run(self) -> Capacity:
        self.sent, self.resolution_s = stage.warm_up(self.deployment, self.load, self.folder)
        self.stage("closed loop", self.load)
        rate = self.search(self.steps[-1].achieved_rps)
        for attempt in range(1, MOST_CONFIRMING + 1):
            load = self.at(rate)
            load = replace(load, duration_s=CONFIRM_LENGTH * load.duration_s)
            measured = self.stage("confirm", load, keep=True)
            if not measured.failed or attempt == MOST_CONFIRMING:
                break
            forget(measured)
            # Each failure goes down twice as far as the last: what is wrong is seldom the last step alone.
            rate = tidy(rate / (1 + RESOLUTION) ** 2 ** (attempt - 1))
        return Capacity(load, measured, tuple(self.steps), self.sent, self.dither)

    def search(self, closed_rps: float) -> float:
        """The highest rate kept in a short step."""
        lowest = REQUESTS_A_CONNECTION * self.load.connections / self.load.duration_s
        # Whole steps of the search divide into equal ones, so that a grid drawn within one of them is drawn within all.
        start = max(tidy(START * closed_rps * FACTOR**self.dither), lowest)
        search = RateSearch(
            start, max(HIGHEST * closed_rps, start), lowest, FACTOR, RESOLUTION, self.gates.rate_tolerance
        )
        history: list[LoadStep] = []
        while len(history) < MOST_STEPS and (rate := search.next_rate(history)) is not None:
            step = self.ask(rate)
            history.append(LoadStep(rate, step.kept or 0.0, not set(step.failed) - {"rate"}))
        low = bracket(history, tolerance=self.gates.rate_tolerance).low
        if low == 0:
            failed = ", ".join(sorted({name for step in self.steps for name in step.failed}))
            raise MeshtrialError(
                f"no rate was kept, down to {min(rung.rate for rung in history):g} rps (gates failed: {failed}); "
                "lengthen the steps, or use fewer connections"
            )
        return low

    def ask(self, rate: float) -> SearchStep:
        """Ask for a rate in a short step, over more connections as long as those carry more of it."""
        best: SearchStep | None = None
        while True:
            load = self.at(rate)
            self.stage("search", load)
            step = self.steps[-1]
            if best is not None and not step.held and step.achieved_rps <= best.achieved_rps:
                self.connections = best.connections
                return best
            best, doubled = step, 2 * load.connections
            if GENERATOR_LATE not in step.failed or doubled > MOST_CONNECTIONS or self.at(rate, doubled) == load:
                return best
            self.connections = doubled

    def at(self, rate: float, connections: int = 0) -> Load:
        """An open rate over as many connections as were needed so far, and as fortio can use at this one."""
        usable = int(rate * self.load.duration_s / REQUESTS_A_CONNECTION)
        connections = max(self.load.connections, min(connections or self.connections, usable))
        return replace(self.load, rps=rate, connections=connections, duration_s=self.length(rate))

    def length(self, rate: float) -> float:
        """Seconds of a step: longer where an objective needs requests beyond its percentile, not than anybody waits."""
        if self.objective is None:
            return self.load.duration_s
        needed = BEYOND / (1 - self.objective.q) / rate
        if needed > LONGEST_STEP_S:
            raise MeshtrialError(
                f"objective {self.objective.text}: at {rate:g} rps a step would take {needed:.0f} s to hold {BEYOND} "
                "requests beyond it; take a lower percentile"
            )
        return max(self.load.duration_s, needed)

    def stage(self, name: str, load: Load, *, keep: bool = False) -> stage.Stage:
        inside = self.folder if keep else self.folder / "step"
        inside.mkdir(exist_ok=True)
        measured = stage.measure(self.deployment, self.testbed, load, self.gates, inside, self.resolution_s)
        measured = replace(measured, gates=_decisive(measured, load))
        if self.objective is not None and not load.closed_loop:
            judged = _judged(measured, self.objective, CONFIDENCE if name == "confirm" else None)
            measured = replace(measured, gates=(*measured.gates, judged))
        if not keep:
            shutil.rmtree(inside)
        self.sent += measured.sent
        self.steps.append(_step(name, load, measured, self.gates))
        return measured


def _decisive(measured: stage.Stage, load: Load) -> tuple[GateResult, ...]:
    """The gates by which a search decides: lateness is heard where a rate was not kept though connections were free."""
    ignored = {LATE}
    latency_s = measured.measurement.requests["latency_s"].mean()
    busy = latency_s * measured.responses["achieved_rps"] if isinstance(latency_s, float) else 0.0
    if "rate" not in measured.failed or busy >= BUSY * load.connections:
        ignored.add(GENERATOR_LATE)
    return tuple(gate for gate in measured.gates if gate.name not in ignored)


def _judged(measured: stage.Stage, objective: Objective, confidence: float | None) -> GateResult:
    """The objective as a gate of a stage: its percentile of the latencies from the schedule, or its upper limit."""
    latencies = successful(measured.measurement.requests, "corrected_latency_s").to_numpy()
    value = float(np.quantile(latencies, objective.q)) if len(latencies) else math.inf
    said = "was"
    if confidence is not None:
        value, said = quantiles.upper_limit(latencies, objective.q, confidence), f"is at most ({confidence:.0%})"
    passed = value < objective.limit_s
    limit_ms = 1e3 * objective.limit_s
    message = f"{objective.percentile} {said} {1e3 * value:.3g} ms; the objective is below {limit_ms:g} ms"
    known = value if math.isfinite(value) else None
    return GateResult("objective", known, objective.limit_s, passed, "" if passed else message)


def forget(measured: stage.Stage) -> None:
    """Remove a stage's files, so that the next one finds the names free: fortio appends to a log that is there."""
    for output in measured.outputs:
        for path in (output.json_path, output.access_log_path, output.json_path.with_suffix(".txt")):
            path.unlink(missing_ok=True)


def _step(name: str, load: Load, measured: stage.Stage, gates: Gates) -> SearchStep:
    latencies = quantiles.exact(successful(measured.measurement.requests).to_numpy(), gates.sample_floor)
    cpu = next((gate.value for gate in measured.gates if gate.name == "generator CPU"), None)
    return SearchStep(
        stage=name,
        rate_rps=None if load.closed_loop else load.rps,
        achieved_rps=measured.responses["achieved_rps"],
        kept=measured.responses.get("achieved_ratio"),
        failed=measured.failed,
        latency_p50_s=latencies.get("p50"),
        latency_p99_s=latencies.get("p99"),
        generator_cpu=cpu,
        requests=measured.sent,
        connections=load.connections,
    )
