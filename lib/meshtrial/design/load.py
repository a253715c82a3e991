"""The kinds of load under which a run is measured; each kind has the fields that it needs and no others.

A rate is open: requests leave when they are due. In a closed loop each connection sends when its response has come.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from meshtrial.design import settings
from meshtrial.design.changes import CHANGES
from meshtrial.design.parameters import require_bounds
from meshtrial.errors import UsageError
from meshtrial.typed import read, shortened

_OBJECTIVE = re.compile(r"p(?P<percent>\d{1,2}(?:\.\d{1,3})?)\s*<\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>us|µs|ms|s)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Objective:
    """A service-level objective such as ``p99<10ms``: the latency, from the schedule, that a rate must keep."""

    q: float  # the quantile, 0.99 for p99
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read ``p99<10ms``."""
        match = _OBJECTIVE.fullmatch(text.strip())
        read = cls(float(match["percent"]) / 100, float(match["limit"]) * _SECONDS[match["unit"]]) if match else None
        if read is None or not (0.5 <= read.q < 1 and 0 < read.limit_s <= 3600):
            raise UsageError(f"objective = {text!r}: must be a percentile from p50 below a time, e.g. p99<10ms")
        return read

    @property
    def percentile(self) -> str:
        """``p99``."""
        return f"p{100 * self.q:.10g}"

    @property
    def text(self) -> str:
        """The text that :meth:`parse` reads."""
        return f"{self.percentile}<{1e3 * self.limit_s:.10g}ms"


_PROTOCOL_NAMES = {
    "http1": "HTTP/1.1",
    "h2": "HTTP/2",
    "grpc": "gRPC",
    "mixed": "HTTP/1.1 and gRPC mixed",
    "tcp": "TCP",
    "sse": "server-sent events, each counted as a request",
    "grpc-stream": "gRPC server streams, each event counted as a request",
}


@dataclass(frozen=True)
class Load:
    """The fields of every kind of load."""

    kind: ClassVar[str]  # the kind's name in a plan

    connections: settings.Connections  # over all generators; each is one fortio thread
    duration_s: settings.Seconds  # measured seconds of one call of the generators
    warmup_s: settings.Warmup = 1.0  # seconds before it that are discarded
    _: dataclasses.KW_ONLY
    payload_bytes: settings.PayloadBytes = 0  # body that is sent and echoed; 0 sends GET
    response_bytes: settings.ResponseBytes = 0  # size of the response that is asked for; 0 leaves it to the application
    headers: settings.Headers = 0  # further request headers of 64 bytes each
    keepalive: bool = True  # false closes the connection after every request
    # One of `PROTOCOLS`. `mixed` is HTTP/1.1 and gRPC at once, from alternating generators. `tcp` sends bytes and waits
    # for their echo; without keepalive it opens a connection for each exchange. With `sse` and `grpc-stream` each
    # connection holds one stream, over which the server sends events. Rates and requests are then those of events.
    protocol: settings.SpokenProtocol = "http1"
    catchup: bool = True  # false is fortio's `-nocatchup`: overdue requests are skipped instead of sent late
    timeout_s: settings.Timeout = 5.0  # how long the client waits for a response
    generators: settings.Generators = 1  # load-generator processes or pods that share rate and connections
    generators_vary: bool = False  # other loads of the study differ in their generators alone, so the label names them
    replicas: settings.Replicas = 1  # copies of the application; in studies that scale out, endpoints of each role
    unused_services: settings.UnusedServices = 0  # deployed beside the application; no request goes to them
    idle_connections: settings.IdleConnections = 0  # beside `connections`: open during the whole run, without requests
    after_s: settings.Warmup = 0.0  # seconds after the load at which memory is read again; 0 reads none

    def __post_init__(self) -> None:
        require_bounds(self)
        if self.protocol == "mixed" and self.generators < 2:
            raise UsageError(
                f"generators = {self.generators}: must be 2 or more, one of which speaks HTTP/1.1 and one gRPC"
            )
        if self.generators > self.connections:
            raise UsageError(f"generators = {self.generators}: must be 1 to the number of connections")

    @classmethod
    def like(cls, other: Load, **changed: Any) -> Self:
        """Return a load of this kind with the fields that it has in common with another load, except those changed."""
        common = {one.name for one in dataclasses.fields(cls)} & {one.name for one in dataclasses.fields(other)}
        return cls(**{name: getattr(other, name) for name in common} | changed)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that the application must speak."""
        return ("http1", "grpc") if self.protocol == "mixed" else (self.protocol,)

    @property
    def streams(self) -> bool:
        """Whether the server sends events over streams that are held for the whole run."""
        return self.protocol in settings.STREAMED

    @property
    def only_grpc(self) -> bool:
        """Whether everything that is sent is gRPC."""
        return self.protocol in ("grpc", "grpc-stream")

    @property
    def echoes(self) -> bool:
        """Whether plain bytes are echoed over connections that are kept open."""
        return self.protocol == "tcp" and self.keepalive

    @property
    def new_connections(self) -> bool:
        """Whether each exchange of bytes opens a TCP connection, in HTTP/1.1 that proxies treat as TCP.

        fortio's TCP client always keeps its connections; its HTTP client can close them.
        """
        return self.protocol == "tcp" and not self.keepalive

    @property
    def asked_rps(self) -> float:
        """Requests per second over all generators (the highest rate of a ramp); 0 if no rate is asked for."""
        return 0.0

    @property
    def mean_rps(self) -> float:
        """Mean of the requests per second over the run; 0 if no rate is asked for."""
        return self.asked_rps

    @property
    def measured_s(self) -> float:
        """Measured seconds of a run, over all its slices; for a search, the seconds of one step."""
        return self.duration_s

    @property
    def parts(self) -> int:
        """Number of calls of the generators in a run: one per slice or step of a ramp, otherwise one."""
        return 1

    @property
    def call_s(self) -> float:
        """Seconds of one call of the generators, with its discarded beginning."""
        return self.duration_s

    def part(self, index: int) -> Load:
        """Return what one call of the generators asks for; `index` counts from 0."""
        return self

    @property
    def unsliced(self) -> Load:
        """The same load as one slice without a discarded beginning."""
        return self

    @property
    def label(self) -> str:
        """A short name that differs between the loads of a study."""
        return "-".join([self._rate, f"{self.connections}c", *(short for short, _ in self._unusual(str))])

    def details(self, count: Callable[[int], str] = str) -> list[str]:
        """Return the unusual settings in words; `count` formats whole numbers."""
        return [words for _, words in self._unusual(count)]

    def _unusual(self, count: Callable[[int], str]) -> Iterator[tuple[str, str]]:
        """Yield, for every field that differs from the usual load, its part of the label and its words."""
        unused, idle = self.unused_services, self.idle_connections
        texts = (
            (self.payload_bytes > 0, f"{self.payload_bytes}B", f"{count(self.payload_bytes)} byte request body"),
            (self.response_bytes > 0, f"{self.response_bytes}B-back", f"{count(self.response_bytes)} byte response"),
            (self.headers > 0, f"{self.headers}h", f"{self.headers} additional headers"),
            (not self.keepalive, "close", "a new connection for every request"),
            (self._arrivals != "uniform", self._arrivals, "each send moved by up to a tenth of its interval"),
            (self.protocol != "http1", self.protocol, _PROTOCOL_NAMES[self.protocol]),
            (self.replicas > 1, f"{self.replicas}x", f"{self.replicas} replicas"),
            (unused > 0, f"{unused}unused", f"{count(unused)} unused services"),
            (idle > 0, f"{idle}idle", f"{count(idle)} idle connections"),
            (self.after_s > 0, f"after{self.after_s:g}s", f"memory read again {self.after_s:g} s after the load"),
            (
                self.generators_vary,
                f"{self.generators}g",
                f"{self.generators} load generator{'s' * (self.generators > 1)}",
            ),
        )
        yield from ((short, words) for is_unusual, short, words in texts if is_unusual)

    @property
    def _rate(self) -> str:
        raise NotImplementedError

    @property
    def _arrivals(self) -> str:
        return "uniform"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a plan, with the load's kind and label."""
        return {"kind": self.kind, "label": self.label} | dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "") -> Load:
        """Read what :meth:`to_dict` returns; UsageError, which names `where`, if it is not a load."""
        kind = KINDS.get(data["kind"])
        if kind is None:
            raise UsageError(f"{where}.kind is {shortened(data['kind'])}; must be one of {', '.join(KINDS)}")
        return read(kind, {name: value for name, value in data.items() if name not in ("kind", "label")}, where)


@dataclass(frozen=True)
class _Scheduled(Load):
    """Every request has a moment at which it is due."""

    arrivals: settings.Arrivals = field(default="uniform", kw_only=True)  # one of `ARRIVALS`

    @property
    def _arrivals(self) -> str:
        return self.arrivals


@dataclass(frozen=True)
class _Rate:
    """A separate base class, so that the rate is the first argument of an open load."""

    rps: settings.PositiveRate  # requests per second over all connections and generators


@dataclass(frozen=True)
class OpenLoad(_Scheduled, _Rate):
    """Requests leave when they are due, even if earlier ones are unanswered."""

    @property
    def asked_rps(self) -> float:
        """``rps``."""
        return float(self.rps)

    @property
    def _rate(self) -> str:
        return f"{self.rps:g}rps"


@dataclass(frozen=True)
class SlicedLoad(Load):
    """A run may be divided into slices, between which other deployments are measured.

    Slices add no observations: their requests are those of one run.
    """

    slices: settings.Slices = field(default=1, kw_only=True)
    slice_warmup_s: settings.Warmup = field(default=0.0, kw_only=True)  # discarded at the beginning of each slice
    trickle_rps: float = field(default=0.0, kw_only=True)  # keeps the deployment warm between slices; 0 sends nothing

    @property
    def measured_s(self) -> float:
        """Measured seconds over all slices."""
        return self.slices * self.duration_s

    @property
    def parts(self) -> int:
        """The slices."""
        return self.slices

    @property
    def call_s(self) -> float:
        """Seconds of a slice with its discarded beginning."""
        return self.slice_warmup_s + self.duration_s

    @property
    def unsliced(self) -> Load:
        """One slice without a discarded beginning."""
        return dataclasses.replace(self, slices=1, slice_warmup_s=0.0, trickle_rps=0.0)


@dataclass(frozen=True)
class FixedRate(SlicedLoad, OpenLoad):
    """One rate from the first to the last request."""

    kind = "fixed_rate"


@dataclass(frozen=True)
class ClosedLoop(SlicedLoad):
    """Each connection sends its next request when the response to the previous one has arrived."""

    kind = "closed_loop"

    @property
    def _rate(self) -> str:
        return "max"


@dataclass(frozen=True)
class CapacitySearch(_Scheduled):
    """The highest rate that is kept, searched in steps of ``duration_s``."""

    kind = "capacity_search"

    objective: str = field(default="", kw_only=True)  # a further condition of a rate, e.g. `p99<10ms`; may be empty

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective:
            object.__setattr__(self, "objective", Objective.parse(self.objective).text)

    @property
    def _rate(self) -> str:
        return "capacity" + ("-" + self.objective.replace("<", "-under-") if self.objective else "")


@dataclass(frozen=True)
class Ramp(OpenLoad):
    """A rate that rises to ``rps`` within ``duration_s``, in steps of equal length."""

    kind = "ramp"

    steps: settings.RampSteps = field(kw_only=True)

    @property
    def mean_rps(self) -> float:
        """The mean of all steps."""
        return self.rps * (self.steps + 1) / (2 * self.steps)

    @property
    def parts(self) -> int:
        """The steps."""
        return self.steps

    @property
    def call_s(self) -> float:
        """Seconds of a step."""
        return self.duration_s / self.steps

    def part(self, index: int) -> FixedRate:
        """Return a step at its fixed rate; `index` counts from 0."""
        return FixedRate.like(self, rps=self.rps * (index + 1) / self.steps, duration_s=self.call_s)

    @property
    def _rate(self) -> str:
        return f"{super()._rate}-in-{self.steps}-steps"


@dataclass(frozen=True)
class RestartUnderLoad(OpenLoad):
    """A treatment with a restart begins it at one moment of the run; the others are compared in the same window."""

    kind = "restart"

    restart_at_s: settings.Moment = field(kw_only=True)  # seconds after the first request
    around_s: settings.Moment = field(kw_only=True)  # length of the window that begins at this moment


@dataclass(frozen=True)
class ChangesUnderLoad(OpenLoad):
    """The configuration is changed while requests are sent: each change there and back, all of them several times."""

    kind = "changes"

    changes: tuple[str, ...] = field(kw_only=True)  # of `design.changes.CHANGES`
    change_every_s: settings.ChangeInterval = field(kw_only=True)
    change_cycles: settings.ChangeCycles = field(kw_only=True)
    churn_per_min: settings.ChurnPerMinute = field(
        default=0.0, kw_only=True
    )  # further changes that no request can notice

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.changes) <= CHANGES.keys():
            raise UsageError(f"changes = {self.changes!r}: must be {', '.join(CHANGES)}")

    @property
    def label(self) -> str:
        """The label of every open load, with the rate of further changes."""
        return super().label + (f"-churn{self.churn_per_min:g}" if self.churn_per_min else "")


KINDS: dict[str, type[Load]] = {
    kind.kind: kind for kind in (FixedRate, ClosedLoop, CapacitySearch, Ramp, RestartUnderLoad, ChangesUnderLoad)
}
