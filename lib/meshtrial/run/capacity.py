"""Search the highest rate that a fresh deployment holds: a closed loop, an adaptive search, a confirming step.

The closed loop gives a starting point and is reported itself; it has no schedule, so it cannot fall behind. The search
raises or lowers the rate by a factor until one was held and one was not, then narrows the interval. A rate that fails
is tried once more, as every run is. The rates lie on a grid with an offset that is drawn for every run. If the grid
followed from the closed loop, two treatments of equal capacity but different closed loops would end on different rates
in every block, and the test would find a difference made by the grid. A rate held in a short step is then confirmed in
a longer one, because the best of several noisy steps is biased upwards; if it fails, the next lower rate is tried. The
capacity is the confirmed rate.

A rate is held if the achieved rate reaches it. fortio sends overdue requests as soon as it can, so a stall that is made
up for does not count. Late sends would distort latencies, but a search reports none; an objective limits latency.

The load generator must not be the limit. It is if a rate was not held and sends were late, although connections were
free. By Little's law rate times mean latency is the number of busy connections. The rate is then tried again over twice
as many connections, for as long as that carries more. If the generator is still the limit, the result is recorded as a
lower bound of the capacity.

With an objective (``p99<10ms``) a rate is held only if its latencies from the schedule meet that, too. The confirming
step requires that the upper confidence limit of the percentile meets it: the percentile itself would pass half of the
time at a rate where the true percentile equals the objective.
"""

import math
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate, Load, Objective
from meshtrial.design.responses import PARTS
from meshtrial.design.study import Gates
from meshtrial.errors import MeshtrialError
from meshtrial.load import quantiles
from meshtrial.load.quantiles import successful
from meshtrial.records.schema import GENERATOR_GATES, GateResult
from meshtrial.run import stage
from meshtrial.stats import LoadStep, RateSearch, bracket
from meshtrial.stats.saturation import tidy
from meshtrial.testbed.base import Deployment, Testbed

# Range of the search relative to the closed loop. An open rate is usually held only below it, because a late response
# leaves no time to catch up.
START, HIGHEST = 0.5, 1.5
FACTOR, RESOLUTION = 1.4, 0.025
CONFIDENCE = 0.95  # confidence with which a confirmed rate meets the objective
CONFIRM_LENGTH = 2.0  # steps
MOST_STEPS, MOST_CONFIRMING = 24, 6
# fortio needs two requests per connection, or it silently uses fewer connections.
REQUESTS_PER_CONNECTION = 2.1
MOST_CONNECTIONS = 128
# Share of busy connections above which the target is the limit; on two cores .88 to 1.00 were measured in that case.
BUSY = 0.85
# Requests beyond an objective's percentile in every step, and the longest step that they may require.
BEYOND, LONGEST_STEP_S = 10, 60.0
LATE, GENERATOR_LATE = "late", "generator late"


@dataclass(frozen=True)
class SearchStep:
    """One step of a search."""

    stage: str  # ``closed loop``, ``search`` or ``confirm``
    rate_rps: float | None  # requested; None in a closed loop
    achieved_rps: float
    kept: float | None  # achieved over requested rate
    failed: tuple[str, ...]  # run checks
    latency_p50_s: float | None  # None if too few requests lie beyond
    latency_p99_s: float | None
    generator_cpu: float | None  # share of its cores that the load generator used
    requests: int
    connections: int  # over all generators

    @property
    def held(self) -> bool:
        """Whether the rate was kept and every run check passed."""
        return not self.failed

    @property
    def limited_by_generator(self) -> bool:
        """Whether the load generator could not send the rate."""
        return bool(GENERATOR_GATES.intersection(self.failed))


@dataclass(frozen=True)
class Capacity:
    """The result of a search."""

    load: FixedRate  # of the confirming step
    confirmed: stage.Stage  # failed if no rate could be confirmed
    steps: tuple[SearchStep, ...]  # in the order in which they ran
    sent: int  # all requests sent to the deployment
    dither: float = 0.0  # offset of the grid, as a share of a search step

    @property
    def responses(self) -> dict[str, float]:
        """The run's responses, without latencies: treatments have different rates, so they are not comparable."""
        kept = {k: v for k, v in self.confirmed.responses.items() if not k.startswith("latency_")}
        name = "capacity_at_least_rps" if self.is_lower_bound else "capacity_rps"
        return kept | {name: self.load.rps, "closed_loop_rps": self.closed_rps}

    @property
    def closed_rps(self) -> float:
        """The rate of the closed loop."""
        return next(step.achieved_rps for step in self.steps if step.stage == "closed loop")

    @property
    def failed_above(self) -> SearchStep | None:
        """The lowest rate above the capacity that was not held; None if there was none."""
        above = [s for s in self.steps if not s.held and s.rate_rps is not None and s.rate_rps > self.load.rps]
        # Of several attempts at one rate, the one that achieved most shows the limit.
        return min(above, key=lambda step: (step.rate_rps or 0.0, -step.achieved_rps), default=None)

    @property
    def is_lower_bound(self) -> bool:
        """Whether the load generator could not send the next higher rate."""
        return self.failed_above is not None and self.failed_above.limited_by_generator

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of the run."""
        above, lines = self.failed_above, []
        if above is not None and above.limited_by_generator:
            lines.append(
                f"at {above.rate_rps:g} rps the load generator reached its own limit ({', '.join(above.failed)}): the "
                f"capacity is at least {self.load.rps:g} rps; give the generator more cores or connections"
            )
        elif self.load.rps < START * self.closed_rps:
            reason = f"; failed checks above it: {', '.join(above.failed)}" if above is not None else ""
            lines.append(
                f"the rate that was held, {self.load.rps:g} rps, is less than half the rate of the closed loop, "
                f"{self.closed_rps:.4g} rps{reason}"
            )
        generator, path = (
            self.confirmed.responses.get(f"{PARTS[role].key}_cpu_cores", 0.0) for role in ("load generator", "path")
        )
        if generator > path:
            lines.append(
                f"the load generator used {generator:.3g} cores, its target {path:.3g}: if they share cores, the "
                "load generator is part of the limit"
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``extra`` of the run's record."""
        above = self.failed_above
        return {
            "steps": [asdict(step) | {"failed": list(step.failed)} for step in self.steps],
            "low_rps": self.load.rps,
            "high_rps": None if above is None else above.rate_rps,
            "limited_by": [] if above is None else list(above.failed),
            "resolution": RESOLUTION,
            "dither": self.dither,
        }


@dataclass
class Search:
    """A search of the capacity of a deployment.

    The load's ``duration_s`` is the length of a step, its ``warmup_s`` that of the warm-up.
    """

    deployment: Deployment
    testbed: Testbed
    load: CapacitySearch
    gates: Gates
    folder: Path  # gets the files of the confirming step
    dither: float = 0.0  # from 0 to 1, the offset of the grid of rates

    def __post_init__(self) -> None:
        self.objective = Objective.parse(self.load.objective) if self.load.objective else None
        self.connections = self.load.connections  # needed so far
        self.steps: list[SearchStep] = []
        self.sent = 0

    def run(self) -> Capacity:
        """Return the capacity; MeshtrialError if no rate is held."""
        self.sent, self.resolution_s = stage.warm_up(self.deployment, closed := ClosedLoop.like(self.load), self.folder)
        self._stage("closed loop", closed)
        rate = self._search(self.steps[-1].achieved_rps)
        for attempt in range(1, MOST_CONFIRMING + 1):
            load = self._load_at(rate)
            load = replace(load, duration_s=CONFIRM_LENGTH * load.duration_s)
            measured = self._stage("confirm", load, keep=True)
            if not measured.failed or attempt == MOST_CONFIRMING:
                break
            forget(measured)
            # Each failure doubles the decrease, because the rate is seldom wrong by one step only.
            rate = tidy(rate / (1 + RESOLUTION) ** 2 ** (attempt - 1))
        return Capacity(load, measured, tuple(self.steps), self.sent, self.dither)

    def _search(self, closed_rps: float) -> float:
        """Return the highest rate held in a short step."""
        lowest = REQUESTS_PER_CONNECTION * self.load.connections / self.load.duration_s
        # The grid repeats with every factor, so an offset drawn within one search step is uniform within all of them.
        start = max(tidy(START * closed_rps * FACTOR**self.dither), lowest)
        search = RateSearch(
            start, max(HIGHEST * closed_rps, start), lowest, FACTOR, RESOLUTION, self.gates.rate_tolerance
        )
        history: list[LoadStep] = []
        while len(history) < MOST_STEPS and (rate := search.next_rate(history)) is not None:
            step = self._try_rate(rate)
            history.append(LoadStep(rate, step.kept or 0.0, not set(step.failed) - {"rate"}))
        low = bracket(history, tolerance=self.gates.rate_tolerance).low
        if low == 0:
            failed = ", ".join(sorted({name for step in self.steps for name in step.failed}))
            raise MeshtrialError(
                f"no rate was achieved, down to {min(step.rate for step in history):g} rps (failed checks: {failed}); "
                "lengthen the steps, or use fewer connections"
            )
        return low

    def _try_rate(self, rate: float) -> SearchStep:
        """Try a rate in a short step, over more connections as long as they increase the achieved rate."""
        best: SearchStep | None = None
        while True:
            load = self._load_at(rate)
            self._stage("search", load)
            step = self.steps[-1]
            if best is not None and not step.held and step.achieved_rps <= best.achieved_rps:
                self.connections = best.connections
                return best
            best, doubled = step, 2 * load.connections
            if GENERATOR_LATE not in step.failed or doubled > MOST_CONNECTIONS or self._load_at(rate, doubled) == load:
                return best
            self.connections = doubled

    def _load_at(self, rate: float, connections: int = 0) -> FixedRate:
        """Return an open load over the connections needed so far, but not more than fortio can use at this rate."""
        usable = int(rate * self.load.duration_s / REQUESTS_PER_CONNECTION)
        connections = max(self.load.connections, min(connections or self.connections, usable))
        return FixedRate.like(self.load, rps=rate, connections=connections, duration_s=self._step_s(rate))

    def _step_s(self, rate: float) -> float:
        """Return the length of a step, extended if an objective needs more requests beyond its percentile."""
        if self.objective is None:
            return self.load.duration_s
        needed = BEYOND / (1 - self.objective.q) / rate
        if needed > LONGEST_STEP_S:
            raise MeshtrialError(
                f"objective {self.objective.text}: at {rate:g} rps {BEYOND} requests beyond it need a step of "
                f"{needed:.0f} s; use a lower percentile"
            )
        return max(self.load.duration_s, needed)

    def _stage(self, name: str, load: Load, *, keep: bool = False) -> stage.Stage:
        folder = self.folder if keep else self.folder / "step"
        folder.mkdir(exist_ok=True)
        measured = stage.measure(self.deployment, self.testbed, load, self.gates, folder, self.resolution_s)
        measured = replace(measured, gates=_decisive(measured, load))
        if self.objective is not None and isinstance(load, FixedRate):
            check = _objective_check(measured, self.objective, CONFIDENCE if name == "confirm" else None)
            measured = replace(measured, gates=(*measured.gates, check))
        if not keep:
            shutil.rmtree(folder)
        self.sent += measured.sent
        self.steps.append(_step(name, load, measured, self.gates))
        return measured


def _decisive(measured: stage.Stage, load: Load) -> tuple[GateResult, ...]:
    """Return the checks that decide a search; lateness counts if a rate was not held with connections free."""
    ignored = {LATE}
    latency_s = measured.measurement.requests["latency_s"].mean()
    busy = latency_s * measured.responses["achieved_rps"] if isinstance(latency_s, float) else 0.0
    if "rate" not in measured.failed or busy >= BUSY * load.connections:
        ignored.add(GENERATOR_LATE)
    return tuple(gate for gate in measured.gates if gate.name not in ignored)


def _objective_check(measured: stage.Stage, objective: Objective, confidence: float | None) -> GateResult:
    """Check the objective by its percentile of the latencies from the schedule, or by its upper confidence limit."""
    latencies = successful(measured.measurement.requests, "corrected_latency_s").to_numpy()
    value = float(np.quantile(latencies, objective.q)) if len(latencies) else math.inf
    verb = "was"
    if confidence is not None:
        value, verb = quantiles.upper_limit(latencies, objective.q, confidence), f"is at most ({confidence:.0%})"
    passed = value < objective.limit_s
    limit_ms = 1e3 * objective.limit_s
    message = f"{objective.percentile} {verb} {1e3 * value:.3g} ms; the objective is below {limit_ms:g} ms"
    finite = value if math.isfinite(value) else None
    return GateResult("objective", finite, objective.limit_s, passed, "" if passed else message)


def forget(measured: stage.Stage) -> None:
    """Remove a stage's files, because fortio would append to an existing log."""
    for output in measured.outputs:
        for path in (output.json_path, output.access_log_path, output.json_path.with_suffix(".txt")):
            path.unlink(missing_ok=True)


def _step(name: str, load: Load, measured: stage.Stage, gates: Gates) -> SearchStep:
    latencies = quantiles.exact(successful(measured.measurement.requests).to_numpy(), gates.sample_floor)
    cpu = next((gate.value for gate in measured.gates if gate.name == "generator CPU"), None)
    return SearchStep(
        stage=name,
        rate_rps=load.rps if isinstance(load, FixedRate) else None,
        achieved_rps=measured.responses["achieved_rps"],
        kept=measured.responses.get("achieved_ratio"),
        failed=measured.failed,
        latency_p50_s=latencies.get("p50"),
        latency_p99_s=latencies.get("p99"),
        generator_cpu=cpu,
        requests=measured.sent,
        connections=load.connections,
    )
