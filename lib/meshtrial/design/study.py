"""What is compared, under which load, by which rules: the frozen description of one study.

Nothing here measures or decides. A :class:`Study` is plain data that can be written to JSON and read
back unchanged; two studies are the same experiment exactly when their dictionaries are equal.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, get_args

from meshtrial.design.changes import CHANGES
from meshtrial.design.parameters import Value, require_bounds
from meshtrial.design.sealing import sealed
from meshtrial.design.settings import (
    STANDING,
    Arrivals,
    ChurnPerMinute,
    Connections,
    Generators,
    Headers,
    Moment,
    PayloadBytes,
    RampSteps,
    Rate,
    Replicas,
    ResponseBytes,
    Seconds,
    Slices,
    SpokenProtocol,
    Timeout,
    UnusedServices,
    Warmup,
)
from meshtrial.errors import UsageError
from meshtrial.margin import Margin
from meshtrial.typed import read
from meshtrial.vocabulary import BETWEEN, Correction, OwnFailures, Scale

NO_MESH = "none"
TWIN_SUFFIX = "-aa"
RESTARTS = ("app", "proxies", "control-plane")
ORDERS = ("randomised", "ascending", "growing", "sequential")
_RESTART = "restart-"
# Applications that come with the project: what stands behind a lone @ is one of these, or else a version.
APPS = ("echo", "counter-api", "details", "details-nodelay", "tiers", "two-versions", "bookinfo", "emojivoto")
VERSION_NAME, APP_NAME = re.compile(r"[A-Za-z0-9._-]+"), re.compile(r"[a-z0-9-]+")
_TREATMENT = re.compile(
    rf"(?P<dataplane>[a-z0-9-]+)(?:@(?P<version>(?:{VERSION_NAME.pattern})?))?"
    rf"(?P<features>(?:\+[a-z0-9.-]+)*)(?:@(?P<app>{APP_NAME.pattern}))?"
)

_OBJECTIVE = re.compile(r"p(?P<percent>\d{1,2}(?:\.\d{1,3})?)\s*<\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>us|µs|ms|s)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Treatment:
    """A data plane with a set of features: ``dataplane[@version][+feature...][@app]``.

    A lone name behind an @ is an application where it is one of :data:`APPS`, else a version: ``none@details``,
    ``sidecar@new``. An application of the user's own is written ``none@@mine``.
    """

    dataplane: str  # `none`, `sidecar`, `node-proxy`, `istio`, ..
    features: tuple[str, ...] = ()  # in the order written; `delay-50us` carries its size in its name
    app: str = ""  # the application behind it where treatments differ in it; empty means the study's own
    twin: bool = False  # the A/A twin: deployed and measured like every other treatment, identical to the baseline
    # One of `RESTARTS`, restarted while it is under load; written like a feature, `sidecar+restart-app`
    restart: str = ""
    version: str = ""  # which of several declared versions of the data plane; empty is the usual one

    @classmethod
    def parse(cls, text: str) -> Treatment:
        """Read ``sidecar+mtls@details``; a data plane that ends in ``-aa`` is a twin."""
        match = _TREATMENT.fullmatch(text.strip())
        if match is None or (match["version"] == "" and not match["app"]):
            raise UsageError(
                f"treatment {text!r} is not of the form dataplane[@version][+feature...][@app], e.g. sidecar+mtls"
            )
        dataplane, version, app = match["dataplane"], match["version"] or "", match["app"] or ""
        if version in APPS and not app and not match["features"]:
            version, app = "", version
        if version.endswith(TWIN_SUFFIX):
            meant = f"{dataplane.removesuffix(TWIN_SUFFIX)}{TWIN_SUFFIX}@{version.removesuffix(TWIN_SUFFIX)}"
            raise UsageError(f"treatment {text!r}: the twin of a version is written {meant}")
        features = tuple(match["features"].split("+")[1:])
        if len(set(features)) != len(features):
            raise UsageError(f"treatment {text!r} names a feature twice")
        restarts = [name.removeprefix(_RESTART) for name in features if name.startswith(_RESTART)]
        if len(restarts) > 1 or set(restarts) - set(RESTARTS):
            allowed = ", ".join(_RESTART + part for part in RESTARTS)
            raise UsageError(f"treatment {text!r}: restarts one part at the most; must be {allowed}")
        features = tuple(name for name in features if not name.startswith(_RESTART))
        twin = dataplane.endswith(TWIN_SUFFIX)
        plain = dataplane.removesuffix(TWIN_SUFFIX)
        return cls(plain, features, app, twin, restarts[0] if restarts else "", version)

    @property
    def name(self) -> str:
        """The text that :meth:`parse` reads."""
        head = self.dataplane + (TWIN_SUFFIX if self.twin else "") + (f"@{self.version}" if self.version else "")
        restart = (_RESTART + self.restart,) if self.restart else ()
        whole = "+".join((head, *self.features, *restart))
        if not self.app:
            return whole
        alone = "@" not in whole and "+" not in whole and self.app not in APPS
        return f"{whole}@@{self.app}" if alone else f"{whole}@{self.app}"

    @property
    def versioned(self) -> str:
        """The data plane with its version alone, ``istio@1.30``."""
        return f"{self.dataplane}@{self.version}" if self.version else self.dataplane

    @property
    def without_restart(self) -> Treatment:
        """The same without its restart."""
        return dataclasses.replace(self, restart="")

    def has(self, feature: str) -> bool:
        """Whether the treatment carries this feature."""
        return feature in self.features

    def as_twin(self) -> Treatment:
        """The A/A twin of this treatment."""
        return dataclasses.replace(self, twin=True)


@dataclass(frozen=True)
class Objective:
    """A service-level objective, ``p99<10ms``: the latency from the schedule that a rate must keep to count."""

    q: float  # the quantile, 0.99 for p99
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read ``p99<10ms``."""
        match = _OBJECTIVE.fullmatch(text.strip())
        made = cls(float(match["percent"]) / 100, float(match["limit"]) * _SECONDS[match["unit"]]) if match else None
        if made is None or not (0.5 <= made.q < 1 and 0 < made.limit_s <= 3600):
            raise UsageError(f"objective = {text!r}: must be a percentile from p50 below a time, e.g. p99<10ms")
        return made

    @property
    def percentile(self) -> str:
        """``p99``."""
        return f"p{100 * self.q:.10g}"

    @property
    def text(self) -> str:
        """What :meth:`parse` reads."""
        return f"{self.percentile}<{1e3 * self.limit_s:.10g}ms"


@dataclass(frozen=True)
class Load:
    """What the generators ask for. Rates are open (scheduled) unless ``rps`` is 0: closed loop, as fast as possible."""

    rps: Rate  # requests a second over all connections and generators
    connections: Connections  # connections over all generators; each is one fortio thread
    # Measured and discarded seconds
    duration_s: Seconds
    warmup_s: Warmup = 1.0
    payload_bytes: PayloadBytes = 0  # body that is sent and echoed; 0 sends GET
    response_bytes: ResponseBytes = (
        0  # body that is asked for in the answer, whatever is sent; 0 leaves it to the application
    )
    headers: Headers = 0  # further request headers of 64 bytes each
    keepalive: bool = True  # false closes the connection after every request
    # One of `PROTOCOLS`; `mixed` is HTTP/1.1 and gRPC at once, from generators that take turns; `tcp` sends
    # bytes and waits for their echo, without keepalive on a connection each
    protocol: SpokenProtocol = "http1"
    arrivals: Arrivals = "uniform"  # one of `ARRIVALS`
    catchup: bool = True  # false is fortio's `-nocatchup`: sends that are overdue are skipped, not made up for
    timeout_s: Timeout = 5.0  # how long the client waits for an answer
    generators: Generators = 1  # load-generator processes or pods that share rate and connections
    generators_vary: bool = False  # other loads of the study differ in them alone, so the label says how many
    replicas: Replicas = 1  # copies of the application; in studies that scale out, endpoints a role
    unused_services: UnusedServices = 0  # that stand beside the application, and that nobody calls
    # Interleaved measurements of one deployment: their requests are the run's, so they add nothing to n
    slices: Slices = 1
    slice_warmup_s: Warmup = 0.0  # of load before each slice that is no part of it: connections are new, caches cold
    trickle_rps: float = 0.0  # requests a second that keep a deployment warm between its slices; 0 is none
    search: bool = False  # the run searches the highest rate kept, in steps of `duration_s`; `rps` then is 0
    # What a rate must keep besides in such a search, e.g. `p99<10ms`; empty is nothing.
    objective: str = ""
    # Steps of equal length in which the rate rises to `rps` within `duration_s`; 0 is one rate all along
    ramp: RampSteps = 0
    # When treatments that restart a part begin with it, in seconds after the first send, and how many seconds from then
    # on count as around it, with a restart and without; 0 and 0 where nothing is restarted
    restart_at_s: Moment = 0.0
    around_s: Moment = 0.0
    # What is changed under it (`design.changes`), one change after another, and all of them so many times
    changes: tuple[str, ...] = ()
    change_every_s: Moment = 0.0
    change_cycles: int = 0
    churn_per_min: ChurnPerMinute = 0.0  # changes besides, of what no request meets

    def __post_init__(self) -> None:
        require_bounds(self)
        checks = (
            (
                self.arrivals == "uniform" or not self.closed_loop,
                "arrivals",
                "uniform in a closed loop, which has no plan",
            ),
            (
                self.protocol != "mixed" or self.generators > 1,
                "generators",
                "2 or more, where they speak different things",
            ),
            (self.generators <= self.connections, "generators", "1 to the number of connections"),
            (
                self.ramp == 0 or (self.ramp > 1 and self.rps > 0 and self.slices == 1 and not self.around_s),
                "ramp",
                "0, or 2 and more steps up to a rate, without slices",
            ),
            (set(self.changes) <= CHANGES.keys(), "changes", ", ".join(CHANGES)),
            (not self.changes or (self.rps > 0 and self.parts == 1), "changes", "of one open load without slices"),
            (not self.changes or self.change_every_s > 0, "change_every_s", "more than 0"),
            (not self.changes or self.change_cycles >= 1, "change_cycles", "1 or more"),
            (not self.search or (self.rps == 0 and self.slices == 1), "search", "a load without rps and slices"),
        )
        if self.objective and not self.search:
            raise UsageError(f"objective = {self.objective!r}: is for a capacity search")
        if self.objective:
            object.__setattr__(self, "objective", Objective.parse(self.objective).text)
        for good, name, allowed in checks:
            if not good:
                raise UsageError(f"{name} = {getattr(self, name)!r}: must be {allowed}")

    @property
    def protocols(self) -> tuple[str, ...]:
        """What the application is asked to speak."""
        return ("http1", "grpc") if self.protocol == "mixed" else (self.protocol,)

    @property
    def echoes(self) -> bool:
        """Whether it is bytes as they are, echoed on connections that are kept."""
        return self.protocol == "tcp" and self.keepalive

    @property
    def new_connections(self) -> bool:
        """Whether it is TCP connections: bytes on a connection each, in an HTTP/1.1 that no proxy is told of.

        fortio's client of bytes keeps its connections whatever it is asked for; its HTTP client closes them.
        """
        return self.protocol == "tcp" and not self.keepalive

    @property
    def closed_loop(self) -> bool:
        """Whether the generators send as fast as answers come."""
        return self.rps == 0 and not self.search

    @property
    def parts(self) -> int:
        """Calls of the generators that make up a run: steps of a ramp, slices, or one."""
        return self.ramp or self.slices

    @property
    def call_s(self) -> float:
        """Seconds for which the generators are called in one of the parts: what is measured, and what comes before."""
        return self.slice_warmup_s + self.duration_s

    def part(self, index: int) -> Load:
        """What is asked of the generators in one of them, from 0."""
        if not self.ramp:
            return self
        return dataclasses.replace(
            self, ramp=0, rps=self.rps * (index + 1) / self.ramp, duration_s=self.duration_s / self.ramp
        )

    @property
    def mean_rps(self) -> float:
        """Over the whole run."""
        return self.rps * (self.ramp + 1) / (2 * self.ramp) if self.ramp else self.rps

    @property
    def label(self) -> str:
        """Short name, unique among loads that differ only in what a study usually varies."""
        rate = "capacity" if self.search else "max" if self.closed_loop else f"{self.rps:g}rps"
        if self.ramp:
            rate += f"-in-{self.ramp}-steps"
        if self.objective:
            rate += "-" + self.objective.replace("<", "-under-")
        unusual = (
            (self.payload_bytes > 0, f"{self.payload_bytes}B"),
            (self.response_bytes > 0, f"{self.response_bytes}B-back"),
            (self.headers > 0, f"{self.headers}h"),
            (not self.keepalive, "close"),
            (self.arrivals != "uniform", self.arrivals),
            (self.protocol != "http1", self.protocol),
            (self.replicas > 1, f"{self.replicas}x"),
            (self.unused_services > 0, f"{self.unused_services}unused"),
            (self.generators_vary, f"{self.generators}g"),
            (self.churn_per_min > 0, f"churn{self.churn_per_min:g}"),
        )
        return "-".join([rate, f"{self.connections}c", *(text for said, text in unusual if said)])


@dataclass(frozen=True)
class Contrast:
    """A treatment against the one it is compared with, both by name; contrasts of one family are corrected together."""

    treatment: str
    baseline: str
    family: str = ""


@dataclass(frozen=True)
class Gates:
    """Thresholds every run is held to before any statistic is computed."""

    rate_tolerance: float = 0.02  # allowed distance of achieved/requested rate from 1, open-rate loads only
    error_ratio: float = 0.01  # largest share of failed requests
    # Largest share of sends that left later than their schedule by more than one interval of their connection (at least
    # 1 ms): the next send was already due. Held up by late answers they are the treatment's, on a free connection the
    # generator's.
    late_ratio: float = 0.05
    generator_cpu: float = 0.70  # largest share of the CPU the load generator may use that it did use
    sample_floor: float = 100.0  # a quantile q is reported only where N (1 - q) reaches this
    # Largest share of the machine's CPU time that programs other than the run's own used; None in a plan that was
    # sealed before there was this gate
    foreign_load: float | None = 0.10


@dataclass(frozen=True)
class Study:
    """One question with everything that answers it. See the attributes of the parts."""

    name: str
    title: str
    question: str
    backend: str
    app: str
    treatments: tuple[Treatment, ...]
    baseline: Treatment
    loads: tuple[Load, ...]
    primary: tuple[str, ...]
    margins: Mapping[str, Margin]
    blocks: int
    seed: int
    alpha: float = 0.05
    contrasts: tuple[Contrast, ...] = ()
    correction: Correction = "holm"  # of plans that were sealed before there was another
    scales: Mapping[str, Scale] = field(default_factory=dict)  # as before there was a choice: ratios
    own_failures: OwnFailures = "repeated"  # as before they counted
    standing: str = ""  # one of STANDING
    gates: Gates = Gates()
    stopping: Mapping[str, Value] = field(default_factory=lambda: {"rule": "fixed", "n": 10})
    order: str = "randomised"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [t.name for t in self.treatments]
        if len(set(names)) != len(names):
            raise UsageError(f"study {self.name}: a treatment is listed twice in {', '.join(names)}")
        if self.baseline not in self.treatments:
            raise UsageError(f"study {self.name}: the baseline {self.baseline.name} is not among the treatments")
        if self.blocks < 1:
            raise UsageError(f"blocks = {self.blocks}: must be 1 or more")
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"alpha = {self.alpha:g}: must be more than 0 and less than 0.5")
        if len(self.primary) > 3:
            raise UsageError(f"study {self.name}: at most three primary responses, not {len(self.primary)}")
        labels = [load.label for load in self.loads]
        if not labels or len(set(labels)) != len(labels):
            raise UsageError(f"study {self.name}: the loads must be distinct and at least one: {', '.join(labels)}")
        chosen: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("correction", self.correction, get_args(Correction)),
            ("own_failures", self.own_failures, get_args(OwnFailures)),
            ("order", self.order, ORDERS),
            ("standing", self.standing, STANDING),
            *((f"scales.{name}", scale, get_args(Scale)) for name, scale in self.scales.items()),
        )
        for name, value, (*others, last) in chosen:
            if value not in (*others, last):
                raise UsageError(f"{name} = {value!r}: must be {', '.join(others)} or {last}")
        for contrast in self.contrasts:
            for name in (contrast.treatment, contrast.baseline):
                if name not in names:
                    raise UsageError(
                        f"contrast {contrast.treatment} against {contrast.baseline}: {name} is not a treatment"
                    )

    @property
    def parameters(self) -> Mapping[str, Value]:
        """The parameters of its notebook, from which it was built; none of a study that was built otherwise."""
        given = self.options.get("parameters")
        return given if isinstance(given, Mapping) else {}

    @property
    def may_stop_early(self) -> bool:
        """Whether the stopping rule may end it before the last planned block."""
        return self.stopping.get("rule", "fixed") != "fixed"

    @property
    def twin(self) -> Treatment | None:
        """The baseline's A/A twin, if the study has one."""
        wanted = self.baseline.as_twin()
        return wanted if wanted in self.treatments else None

    def load(self, label: str) -> Load:
        """The load with this label."""
        return next(load for load in self.loads if load.label == label)

    def take_turns(self, load: Load) -> bool:
        """Whether a block's deployments stand at once, as far as they may, and their slices go round among them."""
        # Before it was declared, those of one machine did and those of a cluster did not.
        standing = self.standing or ("block" if self.backend == "local" else "run")
        return standing == "block" and load.slices > 1

    def all_contrasts(self) -> tuple[Contrast, ...]:
        """Declared contrasts; without any, every treatment but the twin against the baseline."""
        if self.contrasts:
            return self.contrasts
        return tuple(Contrast(t.name, self.baseline.name) for t in self.treatments if t != self.baseline and not t.twin)

    def families(self) -> Mapping[str, tuple[Contrast, ...]]:
        """The contrasts of each family, by its name; the one without a name is there even where it holds none."""
        families: dict[str, tuple[Contrast, ...]] = {} if self.contrasts else {"": ()}
        for contrast in self.all_contrasts():
            families[contrast.family] = (*families.get(contrast.family, ()), contrast)
        return families

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return dataclasses.asdict(self) | {
            "options": sealed(self.options),
            "treatments": [treatment.name for treatment in self.treatments],
            "baseline": self.baseline.name,
            "loads": [dataclasses.asdict(load) | {"label": load.label} for load in self.loads],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Study:
        """The inverse of :meth:`to_dict`."""
        made = {
            "treatments": [Treatment.parse(name) for name in data["treatments"]],
            "baseline": Treatment.parse(data["baseline"]),
            "loads": [{key: value for key, value in load.items() if key != "label"} for load in data["loads"]],
            "gates": {"foreign_load": None, **data["gates"]},
        }
        return read(cls, {**data, **made})


def with_pairs(study: Study) -> tuple[Contrast, ...]:
    """A study's contrasts, and in a family of their own all pairs of its treatments, the later against the earlier.

    The baseline and its twin are in no pair; nothing is compared twice.
    """
    names = [treatment.name for treatment in study.treatments if not treatment.twin and treatment != study.baseline]
    declared = tuple(contrast for contrast in study.all_contrasts() if contrast.family != BETWEEN)
    known = {frozenset((contrast.treatment, contrast.baseline)) for contrast in declared}
    pairs = (Contrast(later, earlier, BETWEEN) for earlier, later in combinations(names, 2))
    return (*declared, *(pair for pair in pairs if frozenset((pair.treatment, pair.baseline)) not in known))
