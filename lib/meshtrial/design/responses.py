"""The registry of responses: one number of a run each, with its unit, kind, part of the system and default margin.

Values are stored in SI base units; ``unit`` and ``scale`` convert them for readers. A response that is not listed here
cannot be declared primary and gets no verdict. A further percentile is one line of `PERCENTILES`, a further part of the
system one line of `PARTS`.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from meshtrial.design.changes import LABELS
from meshtrial.design.load import CapacitySearch, Load
from meshtrial.design.migration import current_responses
from meshtrial.design.parameters import split_list
from meshtrial.errors import UsageError
from meshtrial.margin import Margin, read_margin, read_part
from meshtrial.typed import shortened
from meshtrial.vocabulary import Scale

# Twice what the instrument's own A/A test resolves: with ten quick blocks on two cores, a p50 of 0.2 ms to 0.02 ms.
LATENCY_FLOOR_S = 5e-5
# For propagation: too short to be noticed by anyone who waits, and a few intervals between the requests that show it.
OBEYED_MARGIN = Margin(0.10, 0.010)
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Percentile:
    """A percentile of a run's latencies."""

    q: float  # the quantile, 0.99 for p99
    margin: float  # default relative margin
    # Marked in the figure of the distribution, and named in a report where the runs were too short for it
    marked: bool = False
    net: bool = True  # also reported net of the application's own waiting times, in studies that scale out

    @property
    def label(self) -> str:
        """Its name for readers: ``p99.9``."""
        return f"p{100 * self.q:.10g}"

    @property
    def key(self) -> str:
        """Its part of a response's name: ``p999``."""
        return self.label.replace(".", "")


PERCENTILES: dict[str, Percentile] = {
    one.key: one
    for one in (
        Percentile(0.50, 0.05, marked=True),
        Percentile(0.75, 0.05, net=False),
        Percentile(0.90, 0.05, marked=True),
        Percentile(0.95, 0.10),
        Percentile(0.99, 0.10, marked=True),
        Percentile(0.999, 0.20, marked=True),
    )
}
QUANTILES = {key: one.q for key, one in PERCENTILES.items()}
MARKED = tuple(one for one in PERCENTILES.values() if one.marked)


@dataclass(frozen=True)
class SystemPart:
    """A part of the system whose CPU and memory are counted."""

    role: str  # its name in records; `path` is app, data plane and policy server together
    label: str  # its name for readers
    optional: bool = False  # a treatment may lack it, so the difference is compared and not the ratio
    counts_switches: bool = False  # whether its context switches are counted
    members: tuple[str, ...] = ()  # the roles that it sums up; by default only its own

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", self.members or (self.role,))

    @property
    def key(self) -> str:
        """Its part of a response's name: ``data_plane``."""
        return self.role.replace(" ", "_")


PARTS: dict[str, SystemPart] = {
    one.role: one
    for one in (
        SystemPart("path", "app and data plane", counts_switches=True, members=("app", "data plane", "policy")),
        SystemPart("data plane", "data plane", optional=True, counts_switches=True),
        SystemPart("app", "app", counts_switches=True),
        SystemPart("load generator", "load generator", counts_switches=True),
        SystemPart("policy", "policy server", optional=True),
        SystemPart("control plane", "control plane", optional=True),
    )
}
PATH_ROLES = PARTS["path"].members


@dataclass(frozen=True)
class Response:
    """One response."""

    # With its unit, e.g. `latency_p50_s`.
    name: str
    # Its name for readers, e.g. `p50 latency`.
    label: str
    # `latency` (slower, faster), `resource` (more, less), `level` and `throughput` (higher, lower; a level is
    # what a search found) or `quality` (described, never judged)
    kind: str
    # Display unit and what the stored value is multiplied by to get there
    unit: str
    scale: float
    margin: Margin | None = None  # default equivalence margin; None where no verdict is given
    # May be zero because the treatment lacks the part, so the difference is compared and not the ratio
    structural_zero: bool = False
    percentile: Percentile | None = None  # the percentile of a run's latencies
    part: SystemPart | None = None  # the part of the system
    counted: bool = False  # a number of events, which may well be 0: always compared by difference
    # A time that does not grow with the level of the others: its verdicts are those of the difference unless a plan
    # declares the ratio. What a proxy adds to latency and CPU does grow with it (docs/method.md, One contrast).
    additive: bool = False

    @property
    def used_up(self) -> bool:
        """Whether it is an amount that a treatment uses; a duration or a number of events is not."""
        return self.kind == "resource" and not self.counted and self.unit not in ("s", "ms")


def _latency(infix: str, percentile: Percentile, of: str = "") -> Response:
    margin = Margin(percentile.margin, LATENCY_FLOOR_S)
    name = f"latency_{infix}{percentile.key}_s"
    label = f"{percentile.label} latency{of}"
    return Response(name, label, "latency", "ms", 1e3, margin, percentile=percentile)


def _latencies() -> list[Response]:
    views = [(_latency("", q), _latency("corrected_", q, " from the schedule")) for q in PERCENTILES.values()]
    responses = [response for view in views for response in view]
    # HTTP and gRPC have separate responses in a load that mixes them.
    for protocol, label in (("http", "HTTP/1.1"), ("grpc", "gRPC")):
        responses += [_latency(f"{protocol}_", q, f", {label}") for q in PERCENTILES.values()]
    mean = Margin(0.05, LATENCY_FLOOR_S)
    responses.append(Response("latency_mean_s", "mean latency", "latency", "ms", 1e3, mean))
    # For streams, a gap between two events is compared with the time between their sends.
    for q in PERCENTILES.values():
        label = f"{q.label} deviation of the gap between two events"
        responses.append(replace(_latency("", q), name=f"event_gap_{q.key}_s", label=label))
    first = "mean time to the first event of a stream"
    responses.append(Response("first_event_mean_s", first, "latency", "ms", 1e3, Margin(0.10, 5e-4)))
    responses.append(Response("latency_max_s", "largest latency (depends on N)", "quality", "ms", 1e3))
    return responses


def _resources() -> list[Response]:
    measures = (
        ("cpu_s_per_request", "CPU per request", "us/request", 1e6),
        ("cpu_s_per_gib", "CPU per GiB sent and echoed", "s/GiB", 1.0),
        ("cpu_cores", "CPU", "cores", 1.0),
        ("memory_bytes", "memory (PSS)", "MiB", 1 / 2**20),
    )
    switches = ("switches_per_request", "context switches per request", "switches/request", 1.0)
    # The largest single proxy as well as the sum, because it decides how much memory a pod needs.
    further = {
        "proxy_largest_memory_bytes": "memory (PSS) of the largest proxy",
        "data_plane_memory_after_bytes": "memory (PSS) after the load, data plane",
    }
    return [
        *(_used(part, *measure) for part in PARTS.values() for measure in measures),
        *(
            Response(name, label, "resource", "MiB", 1 / 2**20, Margin(0.10), structural_zero=True)
            for name, label in further.items()
        ),
        *(_used(part, *switches) for part in PARTS.values() if part.counts_switches),
    ]


def _used(part: SystemPart, suffix: str, label: str, unit: str, scale: float) -> Response:
    return Response(
        f"{part.key}_{suffix}",
        f"{label}, {part.label}",
        "resource",
        unit,
        scale,
        Margin(0.10),
        part.optional,
        part=part,
    )


def _levels() -> list[Response]:
    return [
        Response("capacity_rps", "capacity", "level", "rps", 1.0, Margin(0.10)),
        Response("capacity_at_least_rps", "capacity, at least (the generator's limit)", "quality", "rps", 1.0),
        Response("closed_loop_rps", "closed-loop maximum", "level", "rps", 1.0, Margin(0.10)),
    ]


def _obeyed(name: str, what: str) -> Iterator[Response]:
    """Treatments that lack what is changed have no value; a delay of the control plane is added to all others."""
    for which, who in (("first", "the first request obeys"), ("all", "all requests obey")):
        label = f"{what} until {who}"
        yield Response(
            f"propagation_{which}_{name}_s",
            label,
            "latency",
            "ms",
            1e3,
            OBEYED_MARGIN,
            structural_zero=True,
            additive=True,
        )


def _others() -> list[Response]:
    kept, gap = "highest rate of the ramp that was kept", "silence around the restart at its longest"
    told = "change until its proxies have it, by the control plane itself"
    return [
        # Responses of studies that scale out.
        *(_latency("net_", q, " beyond the holds") for q in PERCENTILES.values() if q.net),
        Response("total_cpu_cores", "CPU, app and whole mesh", "resource", "cores", 1.0, Margin(0.10)),
        Response("total_memory_bytes", "memory (PSS), app and whole mesh", "resource", "MiB", 1 / 2**20, Margin(0.10)),
        Response("proxy_cpu_cores", "CPU per proxy", "quality", "mcores", 1e3),
        Response("proxy_memory_bytes", "memory (PSS) per proxy", "quality", "MiB", 1 / 2**20),
        Response("config_time_s", "start until every proxy is configured", "quality", "s", 1.0),
        Response("config_cpu_s", "control-plane CPU to configure all", "quality", "s", 1.0),
        Response("config_bytes", "configuration pushed at the start", "quality", "MiB", 1 / 2**20),
        Response("push_time_s", "push of one endpoint to all proxies", "quality", "ms", 1e3),
        Response("push_bytes", "bytes pushed for one endpoint", "quality", "KiB", 1 / 2**10),
        # Responses of requests in the window around a restart, or in the same window of runs without one.
        Response("failed_requests", "failed requests", "resource", "requests", 1.0, Margin(0.10, 1.0), counted=True),
        Response("longest_gap_s", gap, "resource", "ms", 1e3, Margin(0.10, 0.005)),
        *(_latency("restart_window_", q, " from the schedule around the restart") for q in PERCENTILES.values()),
        # Responses of changes under load: from the moment of the change until requests obey it.
        *(response for name, what in LABELS.items() for response in _obeyed(name, what)),
        Response("change_error_s", "moment of a change, uncertain by", "quality", "ms", 1e3),
        # Responses of a closed loop over TCP (bytes per second each way) and of a ramp (its highest kept rate).
        Response("throughput_bytes_s", "TCP throughput, each way", "throughput", "Gbit/s", 8e-9, Margin(0.05)),
        # For new connections: an intercepting proxy accepts them itself, before it has connected to the server.
        Response("connect_mean_s", "TCP connect, mean, to whoever answers first", "quality", "ms", 1e3),
        Response("ramp_kept_rps", kept, "throughput", "rps", 1.0, Margin(0.10)),
        # Start of a deployment: on a cluster until all pods are ready, locally until the last process has started.
        Response("ready_time_s", "time until a fresh deployment is ready", "resource", "s", 1.0, Margin(0.10, 0.5)),
        Response("latency_p50_first_half_s", "p50 latency, first half of the run", "quality", "ms", 1e3),
        Response("latency_p50_second_half_s", "p50 latency, second half of the run", "quality", "ms", 1e3),
        Response("achieved_rps", "achieved rate", "quality", "rps", 1.0),
        Response("achieved_ratio", "achieved/requested rate", "quality", "", 1.0),
        Response("error_ratio", "failed requests", "quality", "%", 100.0),
        Response("path_peak_cpu_cores", "CPU in the busiest second, app and data plane", "quality", "cores", 1.0),
        Response("data_plane_peak_cpu_cores", "CPU in the busiest second, data plane", "quality", "cores", 1.0),
        Response("first_event_max_s", "longest time to the first event of a stream", "quality", "ms", 1e3),
        Response("streams_lost", "streams that ended before their last event", "quality", "", 1.0),
        Response("reconnects", "kept connections that broke and were opened again", "quality", "", 1.0),
        Response("late_ratio", "late sends behind late answers", "quality", "%", 100.0),
        Response("generator_late_ratio", "late sends on free connections", "quality", "%", 100.0),
        Response("convergence_s", told, "quality", "ms", 1e3),
        Response("restart_s", "restart, until it serves again", "quality", "s", 1.0),
        Response("idle_before", "machine idle before the run", "quality", "%", 100.0),
        Response("wakeup_s", "wake-up of a sleeping thread before the run", "quality", "us", 1e6),
        Response("spin_s", "a fixed piece of work before the run", "quality", "ms", 1e3),
        Response("memory_latency_s", "a read from memory before the run", "quality", "ns", 1e9),
        Response("loopback_s", "a message over loopback and back before the run", "quality", "us", 1e6),
        Response("free_huge_pages", "free memory in huge pages before the run", "quality", "%", 100.0),
        Response("machine_busy", "machine busy in the run", "quality", "%", 100.0),
        Response("foreign_load", "CPU time of other programs in the run", "quality", "%", 100.0),
        Response("machine_stolen", "CPU time that the host took in the run", "quality", "%", 100.0),
        Response("requests", "requests", "quality", "", 1.0),
    ]


REGISTRY: dict[str, Response] = {one.name: one for one in (*_latencies(), *_levels(), *_resources(), *_others())}
_SHORT = {one.key: one.key for one in PERCENTILES.values()}
_SHORT |= {one.label: one.key for one in PERCENTILES.values()} | dict.fromkeys(("mean", "avg", "average"), "mean")
_SHORT_NAME = re.compile(
    rf"(?:latency_)?(?P<what>{'|'.join(map(re.escape, sorted(_SHORT, key=len, reverse=True)))})"
    r"(?:_(?P<unit>s|ms|us|ns))?",
    re.IGNORECASE,
)


def find_response(name: str, unit: str = "") -> tuple[Response, float | None]:
    """Return a response by any of its names (``p50``, ``p99.9_ms``, ``mean``) and the factor from a value to SI units.

    `unit` is the unit of the value; UsageError if a latency has a unit that is not a time. An unknown name gives a
    stand-in of kind ``level``. The factor is None for a latency without a unit, because seconds that are mistaken for
    milliseconds would decide the verdict against an absolute margin without any sign of it.
    """
    if (current := current_responses(name.strip())) in REGISTRY:
        name = current
    match = _SHORT_NAME.fullmatch(name.strip())
    if match:
        given = unit or (match["unit"] or "").lower() or ("s" if name in REGISTRY else "")
        if given and given not in SECONDS:
            raise UsageError(f"{name}: the unit {given!r} is no time; must be one of {', '.join(SECONDS)}")
        return REGISTRY[f"latency_{_SHORT[match['what'].lower()]}_s"], SECONDS[given] if given else None
    if name in REGISTRY:
        known = REGISTRY[name]
        return known, SECONDS.get(unit, 1.0) if known.unit == "ms" else 1.0
    return Response(name, name, "level", unit, 1.0), 1.0


def response(name: str) -> Response:
    """Return a registered response by its full name or a short one (``p50``); UsageError if it is not known."""
    known = find_response(name)[0]
    if known.name not in REGISTRY:
        similar = difflib.get_close_matches(name, [*_SHORT, *(r.name for r in REGISTRY.values() if r.margin)])
        meant = f"did you mean {' or '.join(similar)}? " if similar else ""
        raise UsageError(f"response {shortened(name)} is not known; {meant}docs/reference/responses.md lists them")
    return known


def requests_needed(q: float, sample_floor: float) -> int:
    """Return the smallest number N of requests with which a quantile may be reported: N (1 - q) reaches the floor."""
    # 100 / (1 - 0.9) is 1000.0000000000002 in floating point.
    return max(1, math.ceil(sample_floor / (1.0 - q) * (1.0 - 1e-9)))


def applies(name: str, load: Load) -> bool:
    """Whether a response is judged at this load.

    A search is judged only by the levels that it found. It ends at a different rate for each treatment, and values
    that were measured at different rates are not compared.
    """
    return (name in REGISTRY and REGISTRY[name].kind == "level") == isinstance(load, CapacitySearch)


def default_margins() -> dict[str, Margin]:
    """Return the default margin of every response that gets a verdict."""
    return {r.name: r.margin for r in REGISTRY.values() if r.margin is not None}


def default_scales() -> dict[str, Scale]:
    """Return the default scale, ratio or difference, of every response that gets a verdict."""
    return {r.name: "difference" if r.additive or r.counted else "ratio" for r in REGISTRY.values() if r.margin}


def declared_scales(items: Iterable[str], scales: Mapping[str, Scale]) -> dict[str, Scale]:
    """Return scales in which ``p50=ratio`` or ``p50=difference`` replaces the default.

    UsageError naming the item and what is allowed.
    """
    declared = dict(scales)
    for item in items:
        name, _, value = (part.strip() for part in item.partition("="))
        about = response(name)
        if value not in get_args(Scale) or about.margin is None or (about.counted and value == "ratio"):
            allowed = " or ".join(f"response={one}" for one in get_args(Scale))
            raise UsageError(f"scale {item!r}: must be {allowed}, of a response that gets verdicts and is no count")
        declared[about.name] = value  # type: ignore[assignment]
    return declared


def declared_margins(
    texts: Iterable[str],
    margins: Mapping[str, Margin],
    find: Callable[[str], Response] = response,
    every: Iterable[Response] | None = None,
) -> dict[str, Margin]:
    """Return the margins in force, with those that the texts declare in place of the defaults.

    ``p50=5%,0.2ms,p99=10%`` names its responses. Parts before the first name are for `every` response, by default all
    that have a margin; an amount is then for responses with its unit only. `find` returns the response of a name.
    UsageError names the wrong part and what is allowed.
    """
    declared = dict(margins)
    responses = [REGISTRY[name] for name in margins if name in REGISTRY] if every is None else list(every)
    for text in texts:
        for name, parts in _by_response(text):
            chosen = [find(name)] if name else responses
            if name and chosen[0].kind == "quality":
                raise UsageError(f"margin {name}: {chosen[0].name} is only reported and has no margin")
            named = f"margin {name}=" if name else "margin "
            used = {part for about in chosen for part in _fitting(parts, about)}
            for about in chosen:
                fitting = parts if name or used != {*parts} else _fitting(parts, about)
                if fitting:
                    known = declared.get(about.name)
                    declared[about.name] = read_margin(",".join(fitting), about.unit, named, known, scale=about.scale)
    return declared


def _by_response(text: str) -> list[tuple[str, list[str]]]:
    """Return each name with the parts of its margin; parts before the first name have an empty one."""
    found: list[tuple[str, list[str]]] = []
    for item in split_list(text):
        name, separator, value = item.partition("=")
        if separator:
            found.append((name.strip(), [value.strip()]))
        elif found:
            found[-1][1].append(item)
        else:
            found.append(("", [item]))
    return found


def _fitting(parts: list[str], about: Response) -> list[str]:
    def fits(part: str) -> bool:
        try:
            return bool(read_part(part, about.unit, about.scale))
        except ValueError:
            return False

    return [part for part in parts if fits(part)]
