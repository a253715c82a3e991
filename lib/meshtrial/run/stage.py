"""One stage of load on a deployment: call the load generators, read their results, apply the run checks.

A run is a warm-up and one measured stage; a capacity search is a series of shorter ones. Both use this module, so the
same checks decide everywhere whether a rate was held.

While the load runs, the deployment is sampled once per second, restarted or changed. When the load ends, also by an
error, no new sample, restart or change begins. Those that have begun are completed first, because the deployment is
stopped next.
"""

import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import polars as pl

from meshtrial.design.changes import steps
from meshtrial.design.load import ChangesUnderLoad, FixedRate, Load, Ramp, RestartUnderLoad
from meshtrial.design.responses import PARTS, QUANTILES, REGISTRY
from meshtrial.design.study import Gates
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load import disturbed, fortio, ingest, propagation
from meshtrial.load import gates as load_gates
from meshtrial.load.generators import GeneratorOutput
from meshtrial.records import series
from meshtrial.records.schema import ComponentUsage, GateResult, Proof
from meshtrial.testbed.base import Deployment, Facts, MachineUse, Testbed, usage_between

# In a shorter run the busiest second is close to the mean.
_SECONDS_FOR_A_PEAK = 3
SAMPLED_EVERY_S = 1.0
T = TypeVar("T")


class Intervention(Generic[T]):
    """Work in a thread of its own while a load runs; it gets an event that is set when the load is over."""

    def __init__(self, work: Callable[[threading.Event], T]) -> None:
        self._work = work
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="intervention")

    def __enter__(self) -> Self:
        self._future: Future[T] = self._pool.submit(self._work, self._over)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()

    def result(self) -> T:
        """Return what the work returned, or raise its error, after the load."""
        return self._future.result()


def sampling(
    deployment: Deployment,
    slice_index: int = 0,
    every_s: float = SAMPLED_EVERY_S,
    clock: Callable[[], float] = time.monotonic,
) -> Intervention[pl.DataFrame]:
    """Sample CPU and memory of a deployment; the table has the columns :data:`meshtrial.records.series.COLUMNS`.

    It is empty if a testbed's readings are too slow for that.
    """

    def work(over: threading.Event) -> pl.DataFrame:
        samples: dict[str, list[series.UsageSample]] = defaultdict(list)
        began, turn = clock(), 0
        # Wait until a multiple of the interval, so that samples do not drift.
        while (samples or not turn) and not over.wait(max(0.0, began + turn * every_s - clock())):
            turn += 1
            # A component that has ended fails its own check, so sampling just stops here.
            with suppress(MeshtrialError, OSError):
                at_s = clock() - began
                for component, (cpu_s, memory_bytes) in deployment.sample().items():
                    samples[component].append(series.UsageSample(at_s, cpu_s, memory_bytes))
        return series.of_samples(samples, slice_index)

    return Intervention(work)


@dataclass(frozen=True)
class Restarted:
    """A restart, with times of this machine's clock."""

    began_unix_s: float  # when it was requested
    ended_unix_s: float  # when it served again
    proofs: tuple[Proof, ...]


def restarting(deployment: Deployment, part: str, at_s: float) -> Intervention[Restarted | None]:
    """Return the restart of a part ``at_s`` seconds after the load begins; nothing if ``part`` is empty."""

    def work(over: threading.Event) -> Restarted | None:
        if not part:
            return None
        if over.wait(at_s):
            raise TestbedError(f"restart of {part}: the load ended before the restart; lengthen duration_s")
        began = time.time()
        proofs = deployment.restart(part)
        return Restarted(began, time.time(), proofs)

    return Intervention(work)


def changing(deployment: Deployment, load: Load) -> Intervention[tuple[propagation.AppliedChange, ...]]:
    """Return a load's changes, which are made one after another.

    Every change has its time slot in every treatment. The slot stays empty if a deployment does not support the change.
    """
    if not isinstance(load, ChangesUnderLoad) or not load.changes:
        return Intervention(lambda _: ())
    known = frozenset(deployment.changes())  # before the load begins, so that asking does not delay the first change

    def work(over: threading.Event) -> tuple[propagation.AppliedChange, ...]:
        made, began = [], time.monotonic()
        for number, step in enumerate(steps(load.changes, load.change_cycles), start=1):
            if over.wait(max(0.0, began + number * load.change_every_s - time.monotonic())):
                raise TestbedError(f"change {step.name}: the load ended before the change; lengthen change_every_s")
            if step.change in known:
                made.append(propagation.AppliedChange(step, deployment.change(step.change, step.on)))
        return tuple(made)

    return Intervention(work)


def churning(deployment: Deployment, load: Load) -> Intervention[None]:
    """Return a load's background changes, which no request meets, on a fixed schedule that catches up."""
    if not isinstance(load, ChangesUnderLoad) or not load.churn_per_min:
        return Intervention(lambda _: None)

    def work(over: threading.Event) -> None:
        began, made = time.monotonic(), 0
        while not over.wait(max(0.0, began + made * 60 / load.churn_per_min - time.monotonic())):
            deployment.churn(made)
            made += 1
        expected = load.churn_per_min / 60 * load.duration_s
        if made < expected / 2:
            raise TestbedError(
                f"churn_per_min = {load.churn_per_min:g}: only {made} of {expected:.0f} background changes "
                "were made during the run; set a lower number"
            )

    return Intervention(work)


@dataclass(frozen=True)
class Stage:
    """The results of one stage."""

    measurement: ingest.Measurement
    usage: tuple[ComponentUsage, ...]  # of every component, including the load generators
    gates: tuple[GateResult, ...]
    responses: dict[str, float]  # latencies, qualities, CPU and memory
    outputs: tuple[GeneratorOutput, ...]
    # over time, columns :data:`meshtrial.records.series.COLUMNS`
    course: pl.DataFrame = field(default_factory=series.empty)
    restarted: Restarted | None = None  # None without a restart
    ramp: tuple[disturbed.RampStep, ...] = ()  # steps of a rising rate
    changes: tuple[propagation.Propagation, ...] = ()  # changes made under load, and when requests followed them
    sent: int = 0  # requests that the deployment's counters must show

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the failed run checks."""
        return tuple(gate.name for gate in self.gates if not gate.passed)


def warm_up(deployment: Deployment, load: Load, folder: Path, concurrent: int = 1) -> tuple[int, float]:
    """Load without measuring. Return the number of requests sent, and a suitable histogram resolution in seconds.

    ``concurrent`` deployments that are warmed up at the same time share one load's rate, if that is enough for all
    connections.
    """
    if isinstance(load, FixedRate):
        shared = load.rps / concurrent
        if shared * min(load.warmup_s, load.duration_s) > 3 * load.connections:
            load = replace(load, rps=shared)
    calls = fortio.calls(load, "warmup")
    if not calls:
        return 0, fortio.DEFAULT_RESOLUTION_S
    warm_up_folder = folder / "warm-up"
    warm_up_folder.mkdir()
    outputs = deployment.generate(calls, warm_up_folder, _limit_s(load.warmup_s))
    warm = ingest.ingest(outputs, load.unsliced, 0)
    shutil.rmtree(warm_up_folder)
    return requests_sent(warm, load), fortio.resolution_for(warm.requests["latency_s"].to_numpy())


def measure(
    deployment: Deployment, testbed: Testbed, load: Load, gates: Gates, folder: Path, resolution_s: float
) -> Stage:
    """Measure all slices of a load, one after another."""
    slices = Slices(deployment, testbed, load, gates, folder, resolution_s)
    for _ in range(load.parts):
        slices.take()
    return slices.finish()


@dataclass
class Slices:
    """The slices of one deployment, measured one at a time, alternating with those of concurrent deployments.

    A slice is :meth:`begin`, :meth:`run` and :meth:`end`; the first and the last read counters and may be called from
    any thread. Between two slices :meth:`rest` keeps the deployment warm.
    """

    deployment: Deployment
    testbed: Testbed
    load: Load
    gates: Gates
    folder: Path
    resolution_s: float
    restart: str = ""
    used: list[MachineUse] = field(default_factory=list)  # one per slice
    _before: Mapping[str, ComponentUsage] = field(default_factory=dict)
    _restarted: Restarted | None = None
    _made: tuple[propagation.AppliedChange, ...] = ()
    _outputs: list[tuple[GeneratorOutput, ...]] = field(default_factory=list)
    _usage: list[tuple[ComponentUsage, ...]] = field(default_factory=list)
    _sampled: list[pl.DataFrame] = field(default_factory=list)
    _after: Mapping[str, ComponentUsage] = field(default_factory=dict)

    def take(self) -> None:
        """Measure the next slice of a single deployment."""
        self.testbed.used_between()
        self.begin()
        self.run()
        self.end()
        self.note(self.testbed.used_between())

    def begin(self) -> None:
        """Stop keeping the deployment warm and read all counters before the next slice."""
        if fortio.trickle(self.load) is not None:
            self.deployment.keep_warm(None)
        self._before = self.deployment.snapshot()

    def run(self) -> None:
        """Send the load of one slice."""
        calls = fortio.calls(self.load, "measure", slice_index=len(self._outputs), resolution_s=self.resolution_s)
        length_s = self.load.part(len(self._outputs)).call_s
        at_s = self.load.restart_at_s if isinstance(self.load, RestartUnderLoad) else 0.0
        restart = restarting(self.deployment, self.restart, at_s)
        changes, churn = changing(self.deployment, self.load), churning(self.deployment, self.load)
        with sampling(self.deployment, len(self._outputs)) as samples, restart, changes, churn:
            self._outputs.append(self.deployment.generate(calls, self.folder, _limit_s(length_s)))
        self._restarted = restart.result()
        churn.result()
        self._made = changes.result()
        self._sampled.append(samples.result())

    def end(self) -> None:
        """Read the counters after the slice."""
        self._usage.append(usage_between(self._before, self.deployment.snapshot()))

    def note(self, used: MachineUse | None) -> None:
        """Keep the machine's use during the last slice."""
        if used is not None:
            self.used.append(used)

    def rest(self) -> None:
        """Keep the deployment warm until its next slice."""
        self.deployment.keep_warm(fortio.trickle(self.load))

    def read_after(self) -> None:
        """Wait for the load's ``after_s`` and read all counters again, to see what the load has left behind."""
        if self.load.after_s:
            time.sleep(self.load.after_s)
            self._after = self.deployment.snapshot()

    def finish(self) -> Stage:
        """Read the results of the load generators, compute responses and apply the run checks."""
        load, gates = self.load, self.gates
        outputs = tuple(output for part in self._outputs for output in part)
        usage = (*summed(self._usage), *(output.usage for output in outputs))
        measurement = ingest.ingest_slices(self._outputs, load, gates.sample_floor)
        changes = propagation.measure(measurement.requests, self._made, measurement.start_unix_s)
        if changes and isinstance(load, ChangesUnderLoad):
            measurement = propagation.with_responses(measurement, changes, load)
        responses = dict(measurement.responses)
        responses |= machine_responses(self.used, sum(part.cpu_s for part in usage))
        responses |= half_medians(measurement.requests)
        sampled = pl.concat(self._sampled)
        # The usage of replaced pods is unknown, so there may be nothing to sum up.
        if any(self._usage):
            bytes_each = load.payload_bytes if load.echoes else 0
            responses |= usage_responses(usage, measurement.responses["requests"], bytes_each)
            responses |= peak_responses(sampled, usage)
        if self._after and "data_plane_memory_bytes" in (held := usage_responses(self._after.values(), 0)):
            responses["data_plane_memory_after_bytes"] = held["data_plane_memory_bytes"]
        responses |= self._around(measurement)
        ramp = disturbed.ramp_steps(measurement, load) if isinstance(load, Ramp) else ()
        responses |= disturbed.ramp_responses(ramp, gates)
        throttled = [u.throttled_s for u in usage if u.role == "app" and u.throttled_s is not None]
        judged = load_gates.evaluate(
            measurement,
            load,
            gates,
            load_gates.Machine(
                generator_cpu_s=sum(output.usage.cpu_s for output in outputs),
                window_s=sum(max((output.usage.window_s for output in part), default=0.0) for part in self._outputs),
                cpus=self.testbed.generator_cpus(),
                throttled_s=sum(throttled) if throttled else None,
                foreign_load=responses.get("foreign_load"),
            ),
            disturbed=bool(self.restart) or isinstance(load, Ramp | ChangesUnderLoad),
        )
        if changes and isinstance(load, ChangesUnderLoad):
            judged = (*judged, propagation.check(changes, load))
        course = pl.concat([series.of_requests(measurement.requests), sampled])
        sent = requests_sent(measurement, load)
        return Stage(measurement, usage, judged, responses, outputs, course, self._restarted, ramp, changes, sent)

    def _around(self, measurement: ingest.Measurement) -> dict[str, float]:
        """Return responses around the restart, or around the same moment in treatments without one."""
        if not isinstance(self.load, RestartUnderLoad):
            return {}
        begin_s, took = self.load.restart_at_s, {}
        if self._restarted is not None:
            begin_s = self._restarted.began_unix_s - measurement.start_unix_s
            took = {"restart_s": self._restarted.ended_unix_s - self._restarted.began_unix_s}
        floor = self.gates.sample_floor
        return took | disturbed.restart_responses(measurement.requests, begin_s, self.load.around_s, floor)


def requests_sent(measurement: ingest.Measurement, load: Load) -> int:
    """Return the number of requests that a deployment has met; a stream is one, however many events it brings."""
    return sum(one.connections if load.streams else one.requests for one in measurement.generators)


def machine_responses(slices: Sequence[MachineUse], components_s: float) -> dict[str, float]:
    """Return the machine's use over slices of equal length, and the share of other programs.

    ``components_s`` are CPU seconds of all components, including load generators, over all slices.
    """
    stolen = [used.stolen for used in slices if used.stolen is not None]
    responses = {}
    if slices:
        responses["machine_busy"] = sum(used.busy for used in slices) / len(slices)
    if stolen:
        responses["machine_stolen"] = sum(stolen) / len(stolen)
    total_s = sum(used.total_s or 0.0 for used in slices)
    foreign = [used.foreign_s(components_s / len(slices)) for used in slices]
    known = [seconds for seconds in foreign if seconds is not None]
    if total_s > 0 and len(known) == len(slices):
        responses["foreign_load"] = sum(known) / total_s
    return responses


def summed(slices: Sequence[Sequence[ComponentUsage]]) -> tuple[ComponentUsage, ...]:
    """Return the usage of each component over several slices: sums of times and counters, and the last memory."""
    total = {usage.component: usage for usage in slices[0]}
    for part in slices[1:]:
        for usage in part:
            before = total[usage.component]
            total[usage.component] = replace(
                usage,
                window_s=before.window_s + usage.window_s,
                cpu_s=before.cpu_s + usage.cpu_s,
                throttled_s=_plus(before.throttled_s, usage.throttled_s),
                switches=_plus(before.switches, usage.switches),
            )
    return tuple(total.values())


def _plus(one: float | None, other: float | None) -> Any:
    return None if one is None or other is None else one + other


def half_medians(requests: pl.DataFrame) -> dict[str, float]:
    """Return the median latency of the first and the second half of a run; they differ if it was not warm."""
    sent = requests.select("actual_start_s", "latency_s", "ok").filter(pl.col("ok"))
    if sent.height < 2:
        return {}
    middle = (sent["actual_start_s"].min() + sent["actual_start_s"].max()) / 2  # type: ignore[operator]
    early = pl.col("actual_start_s") <= middle
    halves = {"first": sent.filter(early)["latency_s"].median(), "second": sent.filter(~early)["latency_s"].median()}
    return {f"latency_p50_{half}_half_s": value for half, value in halves.items() if isinstance(value, float)}


def usage_responses(usage: Iterable[ComponentUsage], requests: float, bytes_each: int = 0) -> dict[str, float]:
    """Return CPU and context switches per request, cores and memory by part; ``path`` is all that a request passes.

    ``bytes_each`` is the size of a request, for CPU per GiB; 0 if it does not apply.
    """
    usage = list(usage)
    responses: dict[str, float] = {}
    # The share of the data plane is reported for every treatment, even if it is zero; other parts only if present.
    for part in PARTS.values():
        counted = [u for u in usage if u.role in part.members]
        if counted or part.role == "data plane":
            responses |= _part_responses(part.key, counted, requests)
            if bytes_each and requests > 0:
                gib = requests * bytes_each / 2**30
                responses[f"{part.key}_cpu_s_per_gib"] = sum(u.cpu_s for u in counted) / gib
    proxies = [u.largest_bytes for u in usage if u.role == "data plane"]
    known = [value for value in proxies if value is not None]
    if len(known) == len(proxies):
        responses["proxy_largest_memory_bytes"] = float(max(known, default=0))
    return responses


def deployment_responses(facts: Facts, measured: Mapping[str, float], deploy_s: float) -> dict[str, float]:
    """Return responses of a deployment itself: readiness, sums over endpoints, latency beyond deliberate holds.

    Raw latencies in ``measured`` are kept, too; their ratio would be dominated by the holds.
    """
    responses = {name: float(value) for name, value in facts.responses.items() if name in REGISTRY}
    if facts.fresh:
        responses["ready_time_s"] = deploy_s if facts.ready_s is None else facts.ready_s
    for q in QUANTILES:
        raw, name = measured.get(f"latency_{q}_s", 0.0), f"latency_net_{q}_s"
        if name in REGISTRY and 0 < facts.hold_s < raw:
            responses[name] = raw - facts.hold_s
    for kind in ("cpu_cores", "memory_bytes") if facts.endpoints else ():
        path, proxies = measured.get(f"path_{kind}"), measured.get(f"data_plane_{kind}")
        if path is not None:
            responses[f"total_{kind}"] = path + measured.get(f"control_plane_{kind}", 0.0)
        if proxies is not None and facts.proxies:
            responses[f"proxy_{kind}"] = proxies / facts.proxies
    return responses


def peak_responses(sampled: pl.DataFrame, usage: Iterable[ComponentUsage]) -> dict[str, float]:
    """Return the CPU use of each part of the system in its busiest second, summed over its components.

    ``sampled`` has the columns of :data:`meshtrial.records.series.COLUMNS`; ``usage`` gives the role of components.
    """
    roles = {u.component: u.role for u in usage}
    cpu = sampled.filter(pl.col("measure") == "cpu_cores")
    responses = {}
    for part in PARTS.values():
        names = [component for component, role in roles.items() if role in part.members]
        busiest = cpu.filter(pl.col("component").is_in(names)).group_by("slice", "second").agg(pl.col("value").sum())
        name = f"{part.key}_peak_cpu_cores"
        if name in REGISTRY and busiest.height >= _SECONDS_FOR_A_PEAK:
            responses[name] = float(busiest["value"].max())  # type: ignore[arg-type]
    return responses


def _part_responses(name: str, parts: Sequence[ComponentUsage], requests: float) -> dict[str, float]:
    responses = {f"{name}_cpu_cores": sum(u.cpu_s / u.window_s for u in parts if u.window_s > 0)}
    switches = [u.switches for u in parts if u.switches is not None]
    if requests > 0:
        responses[f"{name}_cpu_s_per_request"] = sum(u.cpu_s for u in parts) / requests
        # The counts of ended threads are missing, so a difference may be negative and is then discarded.
        if len(switches) == len(parts) and all(value >= 0 for value in switches):
            responses[f"{name}_switches_per_request"] = sum(switches) / requests
    memory = [u.pss_bytes for u in parts if u.pss_bytes is not None]
    if len(memory) == len(parts):
        responses[f"{name}_memory_bytes"] = float(sum(memory))
    return responses


def _limit_s(seconds: float) -> float:
    """Return a time-out for a load generator, with reserve for outstanding requests and stalls of the machine."""
    return 30 + 3 * seconds
