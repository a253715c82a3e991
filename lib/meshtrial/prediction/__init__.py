"""What a treatment adds to a system of one's own: cores, memory, money and latency, predicted from recorded studies.

The studies measured single hops; the system is described by `meshtrial.design.system`. Everything is added up block by
block, so that intervals carry the noise of blocks, and from three equal studies on that of sessions. A rate, a body or
a number of connections outside of the measured ones gives an envelope or no number, never an extrapolated one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshtrial.design.responses import MARKED
from meshtrial.design.system import System, calls_of
from meshtrial.errors import UsageError
from meshtrial.inference.money import GIB, HOURS_A_MONTH, Prices
from meshtrial.inference.values import FloatArray
from meshtrial.prediction import latency
from meshtrial.prediction.blocks import APP, CALLER, NODE, PROBABILITIES, BuildingBlocks, Rung, building_blocks, usable
from meshtrial.prediction.ranges import (
    CPU_ERROR,
    FARTHEST,
    LATENCY_ERROR,
    Estimate,
    Weights,
    combined,
    envelope,
    rate_weights,
)
from meshtrial.prediction.resources import (
    SMALL_BODY_BYTES,
    Added,
    Ladder,
    Layout,
    added_cpu,
    added_memory,
    configuration_slopes,
    machine_rps_of,
    node_weights_of,
)
from meshtrial.records.dataset import StudyData

ALPHA = 0.05  # of every interval
PERCENTILES = {one.key: one.q for one in MARKED if one.q <= 0.99}


@dataclass(frozen=True)
class ServiceCost:
    """The cost that is added at one service, over all its replicas."""

    cores: Estimate | None  # None if they cannot be predicted; `reason` says why
    reason: str = ""
    share: float | None = None  # added CPU over the application's own, if the system file has the latter


@dataclass(frozen=True)
class PathLatency:
    """What is added to the latency of a path, in seconds, by percentile (`p50`)."""

    added: Mapping[str, Estimate]
    reason: str = ""  # why a percentile is missing


@dataclass(frozen=True)
class Options:
    """Settings of a prediction; 0 means that a setting is not given."""

    core_hour: float = 0.0  # prices, without which no money is shown
    gib_hour: float = 0.0
    # What each proxy requests of the scheduler: Istio's default is 0.1 cores and 0.125 GiB (istio/istio#17045)
    request_cores: float = 0.0
    request_gib: float = 0.0
    nodes: int = 0  # number that carry the system; 0: as many node proxies as in the studies
    # CPU per request of the studies' application on the target, at the highest measured rate. CPU is multiplied by its
    # ratio to that of the studies' baseline.
    app_cpu_us: float = 0.0
    # Standard deviation of measured over predicted amounts; those of generated systems if it is not given
    model_error: float | None = None

    def __post_init__(self) -> None:
        for name in ("request_cores", "request_gib", "nodes", "app_cpu_us"):
            if not 0 <= getattr(self, name) <= 1e6:
                raise UsageError(f"{name} = {getattr(self, name):g}: must be 0 or more")
        if self.model_error is not None and not 0 <= self.model_error < 1:
            raise UsageError(f"model_error = {self.model_error:g}: must be a share from 0 to 1, such as 0.08")
        if (self.request_cores or self.request_gib) and not self.prices:
            raise UsageError("what proxies request is shown as money: give the prices core_hour and gib_hour too")

    @property
    def prices(self) -> Prices | None:
        """The prices; None if there are none."""
        return Prices(self.core_hour, self.gib_hour) if self.core_hour or self.gib_hour else None


_NOTHING_GIVEN = Options()


@dataclass(frozen=True)
class Prediction:
    """What a treatment adds to a system, compared with a baseline."""

    treatment: str
    baseline: str
    services: Mapping[str, ServiceCost]
    cores: Estimate | None  # data plane and application, of the services that have a number
    control_plane_cores: Estimate
    memory_bytes: Estimate | None  # of all proxies
    memory_reason: str  # why it has no number
    control_plane_bytes: Estimate | None
    proxies: int  # the treatment's sidecars
    nodes: int  # its proxies of nodes
    month: Estimate | None  # CPU and memory of data plane and control plane at the given prices
    month_requested: float | None  # what its proxies request more than the baseline's, at these prices
    paths: Mapping[str, PathLatency]
    studies: tuple[str, ...]
    blocks: int  # over all studies
    confidence: float
    is_between_sessions: bool  # whether the intervals are those of another session
    assumptions: tuple[str, ...]

    @property
    def left_out(self) -> tuple[str, ...]:
        """The services without a number, which no sum contains."""
        return tuple(name for name, one in self.services.items() if one.cores is None)


def predict(
    system: System, records: Sequence[StudyData], treatment: str, baseline: str = "", options: Options = _NOTHING_GIVEN
) -> Prediction:
    """Predict what a treatment adds, compared with a baseline (by default that of the first study).

    UsageError if no study has both treatments, or the studies cannot be used together.
    """
    if not records:
        raise UsageError("no study is given; name the folder of at least one recorded study")
    baseline = baseline or records[0].plan.study.baseline.name
    if treatment == baseline:
        raise UsageError(f"{treatment}: is compared with itself; name another treatment or baseline")
    return _Predicting(system, records, usable(records, treatment, baseline), treatment, baseline, options).all()


def predict_all(
    system: System,
    records: Sequence[StudyData],
    treatment: str = "",
    baseline: str = "",
    options: Options = _NOTHING_GIVEN,
) -> tuple[Prediction, ...]:
    """Predict one treatment, or every treatment of the studies that can be compared with the baseline.

    UsageError as `predict`, and if no treatment can be compared.
    """
    if treatment or not records:
        return (predict(system, records, treatment, baseline, options),)
    baseline = baseline or records[0].plan.study.baseline.name
    named = dict.fromkeys(one.name for data in records for one in data.plan.study.treatments if not one.twin)
    found = [name for name in named if name != baseline and any(building_blocks(d, name, baseline) for d in records)]
    if not found:
        found = [next((name for name in named if name != baseline), baseline)]  # `predict` refuses it with the reason
    return tuple(predict(system, records, name, baseline, options) for name in found)


@dataclass(frozen=True)
class _Predicting:
    system: System
    records: Sequence[StudyData]
    studies: tuple[BuildingBlocks, ...]
    treatment: str
    baseline: str
    options: Options

    def all(self) -> Prediction:
        options, prices = self.options, self.options.prices
        layout = Layout(self.system)
        speed = self._speed()
        cpu = added_cpu(layout, self.studies, options.nodes)
        services = {name: self._service(place, name, cpu, speed) for place, name in enumerate(layout.names)}
        has_any = len(cpu.reasons) < len(layout.names)
        cores = self._total(cpu, speed, CPU_ERROR) if has_any else None
        memory, memory_reason, configured = self._memory(layout)
        control_cores, control_bytes = self._control_plane(speed)
        sidecars = int((layout.replicas * layout.has_proxy).sum())
        (proxies, nodes), others = ((sidecars * self._has_sidecars(which), self._nodes_of(which)) for which in (0, 1))
        month = month_requested = None
        if prices and cores and memory and not cpu.reasons:
            core, byte = prices.core_hour * HOURS_A_MONTH, prices.gib_hour * HOURS_A_MONTH / GIB
            bought = (cores.scaled(core), control_cores.scaled(core), memory.scaled(byte), control_bytes.scaled(byte))
            # The sum of the half-widths, because amounts of the same blocks are not independent.
            total = None if None in (one.value for one in bought) else sum(one.value or 0.0 for one in bought)
            month = Estimate(total, sum(one.low for one in bought), sum(one.high for one in bought))
        if options.request_cores or options.request_gib:
            each = options.core_hour * options.request_cores + options.gib_hour * options.request_gib
            month_requested = (proxies + nodes - sum(others)) * HOURS_A_MONTH * each
        return Prediction(
            self.treatment,
            self.baseline,
            services,
            cores,
            control_cores,
            memory,
            memory_reason,
            control_bytes,
            proxies,
            nodes,
            month,
            month_requested,
            {name: self._path(name, layout) for name in self.system.paths},
            tuple(one.name for one in self.studies),
            sum(len(one.blocks) for one in self.studies),
            1 - ALPHA,
            self._are_sessions() and len(self.studies) > 2,
            self._assumptions(configured),
        )

    def _combined(self, parts: Sequence[FloatArray], model_error: float = 0.0) -> Estimate:
        """Return the estimate with a model's own error, in place of which another one may be given."""
        given = self.options.model_error
        return combined(parts, ALPHA, model_error if given is None else given, self._are_sessions())

    def _are_sessions(self) -> bool:
        """Return whether every study measured the same loads, so that each predicts the whole alone."""
        measured = [{(r.rps, r.protocol, r.body_bytes, r.connections) for r in one.rungs} for one in self.studies]
        return all(one == measured[0] for one in measured)

    def _has_sidecars(self, which: int) -> bool:
        """Return whether the treatment (0) or the baseline (1) has sidecars."""
        return any(rung.proxy_bytes[which, :NODE].any() for one in self.studies for rung in one.rungs)

    def _nodes_of(self, which: int) -> int:
        """Return how many proxies of nodes the treatment (0) or the baseline (1) has."""
        of_nodes = [rung for one in self.studies for rung in one.rungs if rung.proxy_bytes[which, NODE].any()]
        return (self.options.nodes or max(rung.nodes for rung in of_nodes)) if of_nodes else 0

    def _speed(self) -> float:
        """Return the CPU per request on the target over that in the studies."""
        if not self.options.app_cpu_us:
            return 1.0
        top = [max(one.rungs, key=lambda rung: rung.rps).cpu_s[1, APP].mean() for one in self.studies]
        return self.options.app_cpu_us * 1e-6 / float(np.mean(top))

    def _total(self, added: Added, factor: float = 1.0, model_error: float = 0.0) -> Estimate:
        both = (added.lowest, added.highest)
        return envelope(*(self._combined([factor * one.sum(axis=0) for one in end], model_error) for end in both))

    def _service(self, place: int, name: str, added: Added, speed: float) -> ServiceCost:
        if reason := added.reasons.get(name):
            return ServiceCost(None, reason)
        both = (added.lowest, added.highest)
        cores = envelope(*(self._combined([speed * one[place] for one in end], CPU_ERROR) for end in both))
        rps = sum(call.rps for call in self.system.calls if call.callee == name)
        own_s = (self.system.services[name].cpu_us or 0.0) * 1e-6 * rps
        return ServiceCost(cores, share=cores.value / own_s if own_s and cores.value is not None else None)

    def _memory(self, layout: Layout) -> tuple[Estimate | None, str, bool]:
        """Return the proxies' memory, why it has no number, and whether the configuration of all services is in it."""
        added = added_memory(layout, self.studies, self.options.nodes)
        if added.reasons:
            name, reason = next(iter(added.reasons.items()))
            return None, f"{reason} ({name})", False
        if not all(np.isfinite(part).all() for part in added.lowest):
            return None, "the studies could not read the memory of every proxy", False
        parts, is_complete = [part.sum(axis=0) for part in added.lowest], True
        proxies = float((layout.replicas * layout.has_proxy).sum())
        for which, name in enumerate((self.treatment, self.baseline)):
            if not self._has_sidecars(which):
                continue
            slopes, largest = configuration_slopes(self.records, name, "proxy_memory_bytes")
            if slopes and len(layout.names) <= FARTHEST * largest:
                sign = 1 if which == 0 else -1
                parts += [sign * proxies * len(layout.names) * slope / len(slopes) for slope in slopes]
            else:
                is_complete = False
        memory = combined(parts, ALPHA, self.options.model_error or 0.0) if is_complete else self._total(added)
        return memory, "", is_complete

    def _control_plane(self, speed: float) -> tuple[Estimate, Estimate]:
        cores, held = [], []
        for one in self.studies:
            share = 1 / (len(one.rungs) * len(self.studies))
            cores.append(speed * share * sum(rung.control_cores[0] - rung.control_cores[1] for rung in one.rungs))
            held.append(share * sum(rung.control_bytes[0] - rung.control_bytes[1] for rung in one.rungs))
        return self._combined(cores), self._combined(held)

    def _path(self, name: str, layout: Layout) -> PathLatency:
        steps = self.system.paths[name]
        parts: dict[str, list[FloatArray]] = {}
        # Studies of different loads complement each other; their blocks are joined in the order in which they ran.
        groups = [[one] for one in self.studies] if self._are_sessions() else [list(self.studies)]
        for group in groups:
            used: list[Rung] = []
            try:
                hops = {pair: self._hop(pair, layout, group, used) for pair in dict.fromkeys(calls_of(steps))}
            except UsageError as error:
                return PathLatency({}, str(error))
            allowed = {key: q for key, q in PERCENTILES.items() if all(one.allows(q, used) for one in group)}
            own, base = np.moveaxis(latency.quantiles_of_path(steps, hops, [*allowed.values()]), 1, 0)
            for key, values in zip(allowed, own - base, strict=True):
                parts.setdefault(key, []).append(values / len(groups))
        whole = {key: values for key, values in parts.items() if len(values) == len(groups)}
        missing = [key for key in PERCENTILES if key not in whole]
        reason = f"runs have too few requests for {', '.join(missing)}" if missing else ""
        return PathLatency({key: self._combined(values, LATENCY_ERROR) for key, values in whole.items()}, reason)

    def _hop(
        self, pair: tuple[str, str], layout: Layout, group: Sequence[BuildingBlocks], used: list[Rung]
    ) -> latency.Hop:
        """Return a call for both treatments (2, blocks), and add the rungs it is from to ``used``.

        UsageError with the reason if they are not known.
        """
        arrow, call = ">".join(pair), self.system.by_pair[pair]
        if any(self.system.services[end].outside for end in pair):
            raise UsageError(f"{arrow} passes one proxy; the studies measured two")
        ladder = Ladder.of(group, call.protocol)
        if ladder is None:
            raise UsageError(f"no study measured {call.protocol}")
        if call.request_bytes + call.response_bytes > ladder.body_bytes + SMALL_BODY_BYTES:
            raise UsageError(f"{arrow} has larger bodies than the {ladder.body_bytes} bytes of the measured rates")
        blocks = min(len(one.blocks) for one in group)
        hop = latency.Hop(np.zeros((2, blocks, len(PROBABILITIES))), np.zeros((2, blocks)))
        for which in (0, 1):
            weights = self._hop_weights(which, layout, ladder, [layout.names.index(end) for end in pair])
            if not weights.is_inside.all():
                measured = " to ".join(f"{rate:g}" for rate in dict.fromkeys(ladder.rates[[0, -1]].tolist()))
                raise UsageError(f"{arrow} passes a proxy at a rate that is not within {measured} rps")
            # A hop passes both proxies, so it lies between the distributions at their rates.
            shares = weights.nearest.mean(axis=0) / ladder.studies_at
            for study, place, rung in ladder.rungs:
                if shares[place]:
                    if not all(run.valid for runs in rung.runs for run in runs):
                        raise UsageError(f"a run at {rung.rps:g} rps failed a check, so its latency ranks last")
                    if (latencies := group[study].latencies(rung)) is None:
                        raise UsageError(f"{group[study].name} has no distribution of its latencies")
                    hop.latencies[which] += shares[place] * latencies[which, :blocks]
                    of_caller = rung.cpu_s[which, CALLER, :blocks] + rung.cpu_s[which, NODE, :blocks] / 2
                    share = weights.nearest[0, place] / ladder.studies_at[place]
                    hop.sending_s[which] += share * of_caller / 2  # the other half is the response's
                    used.append(rung)
        return hop

    def _hop_weights(self, which: int, layout: Layout, ladder: Ladder, ends: list[int]) -> Weights:
        """Return the weights at the sidecars of both ends; for a mesh with proxies of nodes alone, at theirs.

        Without proxies the rates are those of the other treatment.
        """
        own = which if self._has_sidecars(which) or self._nodes_of(which) else 1 - which
        of_nodes = None if self._has_sidecars(own) else node_weights_of(layout, ladder, self.options.nodes)
        machine_rps = machine_rps_of(layout, self.studies, self.options.nodes)
        own_exponent = self.studies[0].own_exponent
        return of_nodes or rate_weights(layout.proxy_rps[ends], ladder.rates, machine_rps, own_exponent)

    def _assumptions(self, is_configured: bool) -> tuple[str, ...]:
        """Return the assumptions in sentences."""
        busy = "a rate between its proxy's and its node's" if self.options.nodes else "its proxy's own rate"
        lines = [f"A call costs what a single hop costs at {busy}."]
        if not self.options.nodes:
            lines.append("Busy nodes make a call cheaper: give the number of nodes to have it predicted.")
        if not self.options.app_cpu_us:
            lines.append("The target runs as fast as the machine of the studies.")
        else:
            lines.append(
                f"CPU was multiplied by {self._speed():.3g}: the studies' application takes "
                f"{self.options.app_cpu_us:g} us per request on the target. Latencies were not."
            )
        if self.system.paths:
            lines.append("Hops of a path are independent, and each service does the same with and without the mesh.")
        if not is_configured:
            lines.append(
                "Memory does not include the configuration of more services than the studies had: "
                "add a scale_out study with unused services."
            )
        if not (self._are_sessions() and len(self.studies) > 2):
            lines.append("Intervals are of the blocks; three studies of equal design would add the spread of sessions.")
        error = self.options.model_error
        if error is None:
            lines.append(
                f"Intervals contain the model's own error: {CPU_ERROR:.0%} of CPU, {LATENCY_ERROR:.0%} of latency, as "
                "generated systems on one machine showed it. That of memory is not known."
            )
        else:
            lines.append(f"Intervals contain a model error of {error:.0%}, as given.")
        return tuple(lines)
