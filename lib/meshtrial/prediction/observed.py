"""The system that runs in a mesh, described by the metrics that Istio's or Linkerd's proxies give to a Prometheus.

Rates are means over a window. A call passes the proxies of both ends, and each of them counts it: for each caller and
callee the counters of one side are used, the caller's if it has any. What these metrics do not count is not guessed;
it is a note for the person who completes the file. Labels: https://istio.io/latest/docs/reference/config/metrics/ and
https://linkerd.io/2/reference/proxy-metrics/.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from meshtrial.design.system import Call, Service, System
from meshtrial.errors import UsageError
from meshtrial.prediction.prometheus import Prometheus, Sample

_WINDOW = re.compile(r"[1-9]\d{0,6}[smhdw]")
_DIGITS = 4  # of a rate in the file
# Proxies whose counters are used, best first. A waypoint is between the other two; its counters have the caller's
# identity.
_REPORTERS = ("source", "waypoint", "destination")


class Name(NamedTuple):
    """A service of the mesh; Istio's canonical service or Linkerd's workload."""

    namespace: str
    name: str


UNKNOWN = Name("", "unknown")  # callers without a proxy, together
_Pair = tuple[Name, Name]


@dataclass(frozen=True)
class _Flow:
    """Requests and bytes per second between a caller and a callee, as the proxies of one side counted them."""

    caller: Name
    callee: Name
    reporter: str
    protocol: str
    rps: float
    request_bytes: float = 0.0
    response_bytes: float = 0.0

    @property
    def pair(self) -> _Pair:
        return self.caller, self.callee


@dataclass(frozen=True)
class _Connected:
    """Open connections between a caller and a callee, and their bytes per second."""

    count: float = 0.0
    sent: float = 0.0
    received: float = 0.0


@dataclass(frozen=True)
class Observed:
    """Calls of a window, by caller and callee, with all that its notes say is missing."""

    calls: tuple[Call, ...]
    names: Mapping[Name, str]  # by service, its name in the calls
    proxied: frozenset[Name]
    notes: tuple[str, ...]  # lines without a comment sign

    def system(self, replicas: Mapping[Name, int]) -> System:
        """Return the system; a service that `replicas` does not have gets one."""
        services = {
            written: Service(written, replicas.get(name, 1), outside=name not in self.proxied)
            for name, written in self.names.items()
        }
        return System(services, self.calls)


def observe(prometheus: Prometheus, window: str, namespaces: Sequence[str] = ()) -> Observed:
    """Return the calls of the last `window` (``30m``, ``1h``), of all namespaces or those from or to some.

    UsageError if a mesh's metric is missing, has no requests or labels, or does not reach back that far.
    """
    if not _WINDOW.fullmatch(window):
        raise UsageError(f"range = {window!r}: must be a number with s, m, h, d or w, such as 1h")
    # Only a Prometheus can say what time it is there, and all queries are of this time.
    if not (now := prometheus.query("vector(time())")):
        raise UsageError(f"{prometheus.address} returned no time, so it is not a Prometheus")
    reading = _Reading(prometheus, window, now[0].value)
    for mesh in (_istio, _linkerd):
        if (found := mesh(reading)) is not None:
            return _observed(reading, found, namespaces)
    raise UsageError(
        f"{prometheus.address} has neither {_ISTIO} nor {_LINKERD} of the last {window}; "
        "give the address of the Prometheus that scrapes the mesh's proxies"
    )


class _Reading:
    """Queries of one window, summed by labels."""

    def __init__(self, prometheus: Prometheus, window: str, now_s: float) -> None:
        self.prometheus, self.window, self.now_s = prometheus, window, now_s

    def query(self, promql: str) -> tuple[Sample, ...]:
        return self.prometheus.query(promql, self.now_s)

    def rates(self, metric: str, labels: Iterable[str], where: str = "") -> dict[tuple[str, ...], float]:
        return self._summed(f"rate({metric}{{{where}}}[{self.window}])", labels)

    def means(self, histogram: str, labels: Iterable[str]) -> dict[tuple[str, ...], float]:
        # A proxy brings a histogram's sum and count up to date together, but later than its counters.
        counts = self.rates(f"{histogram}_count", labels)
        sums = self.rates(f"{histogram}_sum", labels)
        return {one: total / counts[one] for one, total in sums.items() if one in counts}

    def values(self, metric: str, labels: Iterable[str], where: str = "") -> dict[tuple[str, ...], float]:
        return self._summed(f"{metric}{{{where}}}", labels)

    def _summed(self, promql: str, labels: Iterable[str]) -> dict[tuple[str, ...], float]:
        by = tuple(labels)
        found = self.query(f"sum by ({', '.join(by)}) ({promql}) > 0")
        return {tuple(one.labels.get(label, "") for label in by): one.value for one in found}

    def has(self, metric: str, where: str = "") -> bool:
        """Whether a metric is there; UsageError unless it reaches back over the window."""
        if not self.query(f"count(last_over_time({metric}{{{where}}}[{self.window}]))"):
            return False
        # The rate of a counter that is younger than the window would be a part of the rate of its calls.
        if not self.query(f"count({metric}{{{where}}} offset {self.window})"):
            raise UsageError(
                f"{self.prometheus.address} has {metric} for less than the last {self.window}; choose a shorter --range"
            )
        return True


@dataclass(frozen=True)
class _Counted:
    """The counts of a mesh's proxies."""

    metric: str
    flows: Sequence[_Flow]
    connected: Mapping[_Pair, _Connected]
    notes: tuple[str, ...]
    called: frozenset[Name] = frozenset()  # services whose own proxy counted requests to them

    def require_names(self, reading: _Reading, needed: str) -> None:
        """Raise UsageError if nothing was counted, or no label names caller and callee."""
        address = reading.prometheus.address
        if not self.flows:
            raise UsageError(
                f"{address}: {self.metric} counts no request in the last {reading.window}; choose a --range with "
                "traffic and of at least four scrape intervals"
            )
        if all(UNKNOWN in ((one.callee,) if one.reporter == "destination" else one.pair) for one in self.flows):
            example = reading.query(f"topk(1, last_over_time({self.metric}[{reading.window}]))")
            labels = sorted({label for one in example for label in one.labels if label != "__name__"})
            raise UsageError(
                f"{address}: {self.metric} does not name caller and callee, which takes {needed}; "
                f"its labels are {', '.join(labels)}"
            )


# --- Istio ------------------------------------------------------------------------------------------------------------

_ISTIO = "istio_requests_total"
_ISTIO_LABELS = (
    "reporter",
    "source_canonical_service",
    "source_workload",
    "source_workload_namespace",
    "destination_canonical_service",
    "destination_service_name",
    "destination_workload_namespace",
    "destination_service_namespace",
)
_ISTIO_PROTOCOLS = {"grpc": "grpc"}  # any other is http, of 1.1 or 2


def _istio(reading: _Reading) -> _Counted | None:
    tcp = "istio_tcp_connections_opened_total"
    if not reading.has(_ISTIO):
        if reading.has(tcp):
            raise UsageError(
                f"{reading.prometheus.address} has {tcp} but no {_ISTIO}: ztunnel counts connections and no requests; "
                "give the services a waypoint, or write the calls by hand"
            )
        return None
    by = (*_ISTIO_LABELS, "request_protocol")
    sizes = [reading.means(f"istio_{kind}_bytes", by) for kind in ("request", "response")]
    flows = []
    for labels, rps in reading.rates(_ISTIO, by).items():
        reporter, caller, callee = _istio_ends(labels)
        protocol = _ISTIO_PROTOCOLS.get(labels[-1], "http1")
        volumes = (rps * size.get(labels, 0.0) for size in sizes)
        flows.append(_Flow(caller, callee, reporter, protocol, rps, *volumes))
    opened, closed = (
        reading.values(f"istio_tcp_connections_{what}_total", _ISTIO_LABELS) for what in ("opened", "closed")
    )
    sent, received = (  # sent is what the callee answered
        reading.rates(f"istio_tcp_{what}_bytes_total", _ISTIO_LABELS) for what in ("received", "sent")
    )
    sides: dict[str, dict[_Pair, _Connected]] = defaultdict(dict)
    for labels, count in opened.items():
        reporter, caller, callee = _istio_ends(labels)
        one = _Connected(count - closed.get(labels, 0.0), sent.get(labels, 0.0), received.get(labels, 0.0))
        _add(sides[reporter], (caller, callee), one)
    connected = {pair: one for reporter in reversed(_REPORTERS) for pair, one in sides[reporter].items()}
    for flow in flows:  # these are TCP connections, so they are not those of a pair's HTTP calls
        connected.pop(flow.pair, None)
    notes = ["Istio does not count the connections of HTTP: every call has 1."]
    if not any(sizes):
        notes.append("There is no istio_request_bytes: every body has 0 bytes.")
    counted = _Counted(_ISTIO, flows, connected, tuple(notes))
    counted.require_names(reading, "source_workload and destination_service_name")
    return counted


def _istio_ends(labels: tuple[str, ...]) -> tuple[str, Name, Name]:
    reporter, source, workload, namespace, destination, service, of_workload, of_service = labels[: len(_ISTIO_LABELS)]
    return reporter, _named((namespace,), (source, workload)), _named((of_workload, of_service), (destination, service))


# --- Linkerd ----------------------------------------------------------------------------------------------------------

_LINKERD = "response_total"
_WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset", "k8s_job")
_LINKERD_CALLER = ("namespace", *_WORKLOADS)
_LINKERD_CALLEE = ("dst_namespace", *(f"dst_{kind}" for kind in _WORKLOADS), "dst_service", "authority")
_OUTBOUND, _TO_CALLEE = 'direction="outbound"', 'direction="outbound",peer="dst"'
_FROM_CALLER = 'direction="outbound",peer="src"'  # an application's connections to its own proxy
# Probes of the kubelet and readings of metrics are no calls of the application.
_INBOUND = 'direction="inbound",route_name!="probe",srv_port!="4191"'


def _linkerd(reading: _Reading) -> _Counted | None:
    # response_total is a name that others may have used; that of Linkerd has a direction.
    if not reading.has(_LINKERD, 'direction=~"inbound|outbound"'):
        return None
    by = (*_LINKERD_CALLER, *_LINKERD_CALLEE)
    measured = (
        reading.values("tcp_open_connections", by, _TO_CALLEE),
        reading.rates("tcp_write_bytes_total", by, _TO_CALLEE),
        reading.rates("tcp_read_bytes_total", by, _TO_CALLEE),
    )
    connected: dict[_Pair, _Connected] = {}
    for labels in dict.fromkeys(labels for one in measured for labels in one):
        _add(connected, _linkerd_ends(labels), _Connected(*(one.get(labels, 0.0) for one in measured)))
    rates: dict[tuple[_Pair, str], float] = defaultdict(float)
    for labels, rps in reading.rates(_LINKERD, (*by, "grpc_status"), _OUTBOUND).items():
        rates[_linkerd_ends(labels[:-1]), "grpc" if labels[-1] else "http1"] += rps
    totals: dict[_Pair, float] = defaultdict(float)
    callers: dict[Name, float] = defaultdict(float)
    for (pair, _), rps in rates.items():
        totals[pair] += rps
        callers[pair[0]] += rps
    # Two proxies join all requests between them in one connection; its number does not show the application's.
    own: dict[Name, float] = defaultdict(float)
    for labels, count in reading.values("tcp_open_connections", _LINKERD_CALLER, _FROM_CALLER).items():
        own[_named(labels[:1], labels[1:])] += count
    for (caller, callee), one in connected.items():
        own[caller] -= 0.0 if (caller, callee) in totals else one.count
    for pair, rps in totals.items():
        count = own[pair[0]] * rps / callers[pair[0]]
        connected[pair] = replace(connected.get(pair, _Connected()), count=count)
    flows = []
    for (pair, protocol), rps in rates.items():
        one, share = connected.get(pair, _Connected()), rps / totals[pair]
        flows.append(_Flow(*pair, "source", protocol, rps, one.sent * share, one.received * share))
    called = set()
    for labels, rps in reading.rates(_LINKERD, (*_LINKERD_CALLER, "tls", "grpc_status"), _INBOUND).items():
        *names, tls, grpc = labels
        callee = _named(names[:1], names[1:])
        called.add(callee)
        if tls != "true":
            flows.append(_Flow(UNKNOWN, callee, "destination", "grpc" if grpc else "http1", rps))
    notes = (
        "Linkerd counts the bytes of connections: headers, which its proxies compress, are in the sizes of bodies.",
        "Linkerd counts each caller's connections to its own proxy: they are divided over its calls by their rates.",
    )
    counted = _Counted(_LINKERD, flows, connected, notes, frozenset(called))
    counted.require_names(reading, "deployment and dst_deployment")
    return counted


def _linkerd_ends(labels: tuple[str, ...]) -> _Pair:
    caller, callee = labels[: len(_LINKERD_CALLER)], labels[len(_LINKERD_CALLER) :]
    return _named(caller[:1], caller[1:]), _named(callee[:1], callee[1:])


# --- both -------------------------------------------------------------------------------------------------------------


def _named(namespaces: Sequence[str], names: Sequence[str]) -> Name:
    """Return the first of some labels that has a name; a proxy writes unknown if it knows none."""
    name, namespace = (next((one for one in those if one not in ("", "unknown")), "") for those in (names, namespaces))
    return Name(namespace, name.replace(">", "-")) if name else UNKNOWN


def _add(connected: dict[_Pair, _Connected], pair: _Pair, one: _Connected) -> None:
    old = connected.get(pair, _Connected())
    connected[pair] = _Connected(old.count + one.count, old.sent + one.sent, old.received + one.received)


def _observed(reading: _Reading, counted: _Counted, namespaces: Sequence[str]) -> Observed:
    flows, connected = counted.flows, counted.connected
    proxied = counted.called | {one.caller for one in flows} | {one.callee for one in flows if one.reporter != "source"}
    by_pair: dict[_Pair, list[_Flow]] = defaultdict(list)
    for flow in flows:
        by_pair[flow.pair].append(flow)

    def is_wanted(pair: _Pair) -> bool:
        return not namespaces or any(end.namespace in namespaces for end in pair)

    wanted = [pair for pair in sorted(by_pair) if is_wanted(pair)]
    if not wanted:
        known = sorted({end.namespace for pair in by_pair for end in pair} - {""})
        raise UsageError(
            f"namespace: no call from or to {', '.join(namespaces)}; there are calls of {', '.join(known)}"
        )
    silent = [pair for pair in sorted(connected) if pair not in by_pair and is_wanted(pair)]
    names = _files_names(dict.fromkeys(end for pair in (*wanted, *silent) for end in pair))
    notes = [
        f"Calls per second, means of the {reading.window} before {datetime.fromtimestamp(reading.now_s, UTC):%FT%TZ}: "
        f"{counted.metric} of {reading.prometheus.address}",
        *(f"Prometheus warns: {' '.join(one.split())}" for one in reading.prometheus.warnings),
        *counted.notes,
    ]
    if any(caller == UNKNOWN for caller, _ in wanted):
        notes.append(f"{UNKNOWN.name} stands for all callers without a proxy.")
    if silent:
        notes.append("Only the connections of these calls are counted; add each with its rate of requests:")
        notes += (_unfinished(names[caller], names[callee], connected[caller, callee]) for caller, callee in silent)
    return Observed(
        tuple(_call(names[a], names[b], _one_side(by_pair[a, b]), connected.get((a, b))) for a, b in wanted),
        {end: names[end] for pair in wanted for end in pair},
        frozenset(proxied - {UNKNOWN}),
        tuple(notes),
    )


def _one_side(flows: Sequence[_Flow]) -> list[_Flow]:
    """Return the flows that one side counted, the most frequent protocol first."""
    sides = {flow.reporter for flow in flows}
    side = next((one for one in _REPORTERS if one in sides), flows[0].reporter)
    by_protocol: dict[str, _Flow] = {}
    for flow in (one for one in flows if one.reporter == side):
        old = by_protocol.get(flow.protocol, replace(flow, rps=0.0, request_bytes=0.0, response_bytes=0.0))
        by_protocol[flow.protocol] = replace(
            old,
            rps=old.rps + flow.rps,
            request_bytes=old.request_bytes + flow.request_bytes,
            response_bytes=old.response_bytes + flow.response_bytes,
        )
    return sorted(by_protocol.values(), key=lambda flow: -flow.rps)


def _call(caller: str, callee: str, flows: Sequence[_Flow], connected: _Connected | None) -> Call:
    most, total = flows[0], sum(flow.rps for flow in flows)
    return Call(
        caller,
        callee,
        float(f"{total:.{_DIGITS}g}"),
        most.protocol,
        max(1, round(connected.count)) if connected else 1,
        round(most.request_bytes / most.rps),
        round(most.response_bytes / most.rps),
    )


def _unfinished(caller: str, callee: str, one: _Connected) -> str:
    count = f", connections: {max(1, round(one.count))}"
    volume = f"{one.sent:.0f} bytes/s there, {one.received:.0f} back"
    return f"- {{caller: {caller}, callee: {callee}, rps: ?, protocol: tcp{count}}}  # {volume}"


def _files_names(names: Iterable[Name]) -> dict[Name, str]:
    """Return the names of a file: with the namespace where two services have the same name."""
    every = list(names)
    counted = Counter(one.name for one in every)
    return {
        one: f"{one.name}.{one.namespace}" if counted[one.name] > 1 and one.namespace else one.name for one in every
    }


# --- replicas ---------------------------------------------------------------------------------------------------------

# The order in which Istio takes the name of a canonical service.
_CANONICAL = ("service.istio.io/canonical-name", "app.kubernetes.io/name", "app")


def replicas_of(pods: Iterable[Mapping[str, Any]]) -> dict[Name, int]:
    """Return the number of running pods by service: under Istio's canonical name, and under that of the workload."""
    counted: Counter[Name] = Counter()
    for pod in pods:
        if pod.get("status", {}).get("phase") == "Running":
            metadata = pod["metadata"]
            labels = metadata.get("labels") or {}
            owner = next((one["name"] for one in metadata.get("ownerReferences") or ()), metadata["name"])
            workload = owner.removesuffix(f"-{labels.get('pod-template-hash', '')}")
            canonical = next((labels[label] for label in _CANONICAL if labels.get(label)), workload)
            counted.update(Name(metadata["namespace"], name) for name in {workload, canonical})
    return dict(counted)
