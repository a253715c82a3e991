"""The Envoy sidecar pair with its features, or one sidecar of the two alone.

The sidecars speak HTTP/2 to each other with and without TLS, so that TLS is the only difference between the two
treatments. Each of the :data:`FEATURES` adds to their configuration, and a proof that it is on. The trace collector is
a third Envoy that answers 200 to every export. So the cost of the treatment is what the sidecars do; the collector's
own CPU is not counted as the data plane's.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from meshtrial import native, network
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy, ext_authz_filter, jwt_filters
from meshtrial.envoy.keys import AUDIENCE, ISSUER, Tokens, make_tokens, write_private
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed import proving
from meshtrial.testbed.local import proofs, wire
from meshtrial.testbed.local.deployment import Prover, Spec, Started
from meshtrial.testbed.local.fleet import Fleet, host_port, numbered
from meshtrial.testbed.local.proofs import Counters
from meshtrial.testbed.local.sockets import Endpoint
from meshtrial.testbed.proving import Case, forbidden_method, token_cases

ALONE = ("client-only", "server-only")
_NOT_WITH = {  # features that need the sidecar that is left out
    "client-only": ("mtls", "unpooled", "jwt", "jwt-cache", "opa", "opa-log", "least-request"),
    "server-only": ("mtls", "unpooled", "least-request"),
}
# The policy that the policy server evaluates; None for the one built into it.
OPA_POLICY: Path | None = None
# gRPC status that a proxy answers instead of an HTTP status: 16 is unauthenticated, 7 permission denied.
_GRPC_STATUS = {200: 0, 401: 16, 403: 7}
# Percent of requests that are traced if the study does not set it.
SAMPLING_PERCENT = 100.0
SCRAPE_INTERVAL_S = 1.0
_SPANS = "tracing.opentelemetry.spans_sent"
# Percent of requests that are traced, by feature.
RATES = {"tracing": 100.0, "tracing-1pct": 1.0}
# Key exchanges of TLS by feature. Envoy's own choice depends on its version: 1.40 prefers the post-quantum one.
_CLASSICAL = "X25519"
KEY_EXCHANGES = {"x25519": _CLASSICAL, "pqc": "X25519MLKEM768"}
_TELEMETRY = ("observability", "access-log", "metrics", *RATES)
_JWT, _OPA = ("jwt", "jwt-cache"), ("opa", "opa-log")


@dataclass
class Pair:
    """Both sides of the sidecar pair before their proxies start; features add to it."""

    spec: Spec
    fleet: Fleet
    clients: Sequence[Proxy]  # the client's sidecar; empty if only the server has one
    servers: Sequence[Proxy]  # the server's, one for each copy of the application; empty if only the client has one
    entry: Endpoint  # called by the generators: the client's sidecar, or else the server's first
    wires: Sequence[Endpoint]  # on which the server's sidecars listen
    apps: Sequence[Sequence[Endpoint]]  # for each copy, one endpoint for each protocol of the load
    # By features:
    provers: list[Prover] = field(default_factory=list)
    filters: list[Json] = field(default_factory=list)  # HTTP filters of the server's sidecars, in order
    access_logs: dict[str, Json] = field(default_factory=dict)  # by proxy name
    tracing: dict[str, Json] = field(default_factory=dict)  # by proxy name
    tls: tuple[Json | None, Json | None] = (None, None)  # between the sidecars: (client's context, server's context)
    upstream: Json = field(default_factory=dict)  # fields of the cluster through which the client's sidecar calls

    @property
    def sides(self) -> Mapping[str, Sequence[Proxy]]:
        """The sidecars by side, without an empty side."""
        return {side: proxies for side, proxies in (("client", self.clients), ("server", self.servers)) if proxies}

    @property
    def sidecars(self) -> Sequence[Proxy]:
        """The sidecars of both sides."""
        return [*self.clients, *self.servers]

    @cached_property
    def tokens(self) -> Tokens:
        """Tokens of this deployment, shared by all features that check tokens."""
        return make_tokens()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of the generators: the valid token, if a feature checks one."""
        return self.tokens.headers if any(map(self.spec.treatment.has, (*_JWT, *_OPA))) else ()

    def ask(self, headers: tuple[tuple[str, str], ...], method: str = "GET") -> wire.HttpAnswer:
        """Send one request in the load's protocol; for gRPC the answer's status is gRPC's."""
        if self.spec.load.only_grpc:
            verb = "POST" if method == "GET" else method
            return wire.grpc_call(*self.entry, self.spec.app.grpc_path, headers, verb)
        return wire.http_get(*self.entry, self.spec.app.path, headers, method)


def mutual_tls(pair: Pair) -> None:
    """Add mutual TLS between the sidecars, by the key exchange that a further feature names, or by Envoy's choice."""
    keys = proofs.make_keys(pair.fleet)
    offered = [group for name, group in KEY_EXCHANGES.items() if pair.spec.treatment.has(name)]
    # The connections that prove mutual TLS know only the classical exchange, so the server accepts it too.
    accepted = [*dict.fromkeys((*offered, _CLASSICAL))] if offered else []
    client = envoy.tls_context(keys.client, keys.server.spiffe, server=False, groups=offered)
    server = envoy.tls_context(keys.server, keys.client.spiffe, server=True, groups=accepted)
    pair.tls = (client, server)
    pair.provers.append(lambda phase, _: [proof for at in pair.wires for proof in proofs.prove_mtls(keys, at, phase)])


def key_exchange(pair: Pair, *, group: str) -> None:
    """Prove that every handshake of the client's sidecar agreed on its key by this exchange."""

    def counts(proxies: Sequence[Proxy]) -> tuple[int, int]:
        """Return how many handshakes the proxies' TLS between them had, and how many by this exchange."""
        found: Counter[str] = Counter()
        for proxy in proxies:
            for name, value in proxy.stats(r"^(cluster|listener)\..*\.ssl\.(handshake|curves\..*)$").items():
                found[name.rpartition(".ssl.")[2]] += value
        return found["handshake"], found[f"curves.{group}"]

    def prove(phase: str, _: int) -> list[Proof]:
        if phase == "before":
            pair.ask(pair.headers)  # opens a connection if there is none
        handshakes, by_group = counts(pair.clients)
        _, at_server = counts(pair.servers)
        passed = handshakes == by_group > 0 and at_server > 0
        expected = f"{group} in every handshake, at both sides"
        observed = f"client {by_group} of {handshakes}, server {at_server}"
        return [Proof("key exchange", phase, passed, expected, observed)]

    pair.provers.append(prove)


def unpooled(pair: Pair) -> None:
    """Let the client's sidecar open a connection to the server's for each connection that it accepts."""
    names = ("http.outbound.downstream_cx_total", "cluster.server.upstream_cx_total")  # accepted, opened

    def counts() -> Counters:
        stats = {
            proxy.name: proxy.stats("^(http.outbound.downstream|cluster.server.upstream)_cx_total$")
            for proxy in pair.clients
        }
        return {(name, proxy): found.get(name, 0) for proxy, found in stats.items() for name in names}

    def judge(growth: Counters, phase: str, _: int) -> list[Proof]:
        accepted, opened = (sum(value for (counted, _), value in growth.items() if counted == name) for name in names)
        return [Proof("own connections", phase, opened >= accepted > 0, f"at least {accepted}", str(opened))]

    pair.upstream["connection_pool_per_downstream_connection"] = True
    pair.provers.append(proofs.before_and_after(counts, judge))


def jwt(pair: Pair, *, cache: bool) -> None:
    """Let the server's sidecars check an RS256 token against a local key set, with or without Envoy's cache."""
    cases = token_cases(pair.tokens, (401,), (401,), audience=(403,))
    pair.filters += jwt_filters(pair.tokens, cache=cache)
    pair.provers.append(_status_prover(pair, "JWT", cases))


def opa(pair: Pair, *, log: bool) -> None:
    """Add Open Policy Agent behind gRPC ext_authz, with a Rego policy that checks the token and the method."""
    fleet, tokens = pair.fleet, pair.tokens
    data = {"jwks": tokens.jwks, "issuer": ISSUER, "audience": AUDIENCE}
    data_file = write_private(fleet.folder / "opa-data.json", json.dumps(data).encode())
    grpc, admin = fleet.new_endpoint(), fleet.new_endpoint()
    decisions = fleet.folder / "decisions.log"
    argv = [str(native.find("opa-extauthz")), "-grpc", host_port(grpc), "-admin", host_port(admin)]
    argv += ["-data", str(data_file)]
    if OPA_POLICY is not None:
        argv += ["-policy", str(OPA_POLICY)]
    if log:
        argv += ["-decision-log", str(decisions)]
    fleet.note_version("opa-extauthz")
    fleet.start("policy server", "policy", argv, [grpc, admin])
    # A JWT filter refuses bad tokens before OPA sees them; the forbidden method is then refused by OPA alone.
    refusal = (401 if any(map(pair.spec.treatment.has, _JWT)) else 403,)
    cases = (*token_cases(tokens, refusal, refusal, audience=(403,)), forbidden_method(tokens))
    pair.provers += [_status_prover(pair, "OPA", cases), _decision_prover(admin, decisions if log else None)]
    pair.filters.append(ext_authz_filter())
    for server in pair.servers:
        server.clusters.append(envoy.cluster("opa", *grpc, http2=True))


def least_request(pair: Pair) -> None:
    """Let the client's sidecar send to the less busy of two copies drawn at random."""
    pair.upstream["lb_policy"] = "LEAST_REQUEST"
    pair.provers.append(proofs.turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=False))


def access_log(pair: Pair) -> None:
    """Let each sidecar log every request to a file of its own."""

    def path(proxy: Proxy) -> Path:
        return pair.fleet.folder / f"access-{proxy.name.replace(' ', '-')}.log"

    for proxy in pair.sidecars:
        pair.access_logs[proxy.name] = file_log(path(proxy))
        # By default Envoy flushes access logs every ten seconds, which is too long for a proof to wait.
        proxy.flags += ("--file-flush-interval-msec", "1000")
    prover = _growth_prover(pair, "log lines", lambda proxy: _lines(path(proxy)), lambda requests, _: requests)
    pair.provers.append(prover)


def metrics(pair: Pair) -> None:
    """Scrape all metrics of every sidecar once a second, as a monitoring system would.

    The sidecars keep metrics in every treatment.
    """
    scrapes: Counter[str] = Counter()  # by the proxy's name
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(SCRAPE_INTERVAL_S):
            for proxy in pair.sidecars:
                url = network.url(proxy.admin[0], f"{proxy.admin[1]}/stats/prometheus")
                # The proof detects a proxy that does not answer: its number of scrapes does not grow.
                with suppress(OSError), network.ask(url, 2) as answer:
                    scrapes[proxy.name] += b"envoy_http_downstream_rq_total" in answer.read()

    scraper = threading.Thread(target=scrape, name="scraper", daemon=True)
    scraper.start()
    pair.fleet.at_close(lambda: scraper.join(timeout=5))
    pair.fleet.at_close(done.set)
    pair.provers.append(_growth_prover(pair, "scrapes", lambda proxy: scrapes[proxy.name], lambda _, n: 2 * n))


def traces(pair: Pair, *, percent: float | None = None) -> None:
    """Send spans of a random sample of requests to a collector; without ``percent``, the study's share is sampled."""
    if percent is None:
        percent = float(pair.spec.options.get("trace_sampling", SAMPLING_PERCENT))
    endpoint, exports = pair.fleet.new_endpoint(), "exports at the collector"
    sink = Proxy("trace collector", pair.fleet.new_endpoint())
    sink.listeners.append(envoy.listener("collector", *endpoint, [envoy.direct_response("collector", 200)]))
    pair.fleet.start_proxy(sink, role="collector")

    def exported() -> Counters:
        return {(exports, sink.name): sum(sink.stats(r"^http\.collector\.downstream_rq_total$").values())}

    every = _growth_prover(pair, "spans", _spans, lambda requests, _: requests)
    pair.provers.append(every if percent == 100 else _share_prover(pair, percent))
    pair.provers.append(proofs.growth_prover(exported, lambda _: {exports: 1}, proofs.WRITTEN_S))
    for proxy in pair.sidecars:
        proxy.clusters.append(envoy.cluster("collector", *endpoint))
        pair.tracing[proxy.name] = tracer(proxy.name, percent)


FEATURES: dict[str, Sequence[Callable[[Pair], None]]] = {
    "mtls": [mutual_tls],
    **{name: [partial(key_exchange, group=group)] for name, group in KEY_EXCHANGES.items()},
    "unpooled": [unpooled],
    "observability": [access_log, metrics, traces],
    "access-log": [access_log],
    "metrics": [metrics],
    **{name: [partial(traces, percent=percent)] for name, percent in RATES.items()},
    "jwt": [partial(jwt, cache=False)],
    "jwt-cache": [partial(jwt, cache=True)],
    "opa": [partial(opa, log=False)],
    "opa-log": [partial(opa, log=True)],
    "least-request": [least_request],
}


def file_log(path: Path) -> Json:
    """Return Envoy's access log to a file, one line for every request."""
    return envoy.extension("access_loggers.file", "access_loggers.file.v3.FileAccessLog", path=str(path))


def tracer(service: str, sampling: float) -> Json:
    """Return Envoy's tracing configuration: ``sampling`` percent of the requests, by OTLP to the collector."""
    uri = {"uri": "http://collector/v1/traces", "cluster": "collector", "timeout": "1s"}
    config = envoy.typed("config.trace.v3.OpenTelemetryConfig", http_service={"http_uri": uri}, service_name=service)
    return {
        "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": config},
        "random_sampling": {"value": sampling},
    }


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _growth_prover(pair: Pair, label: str, count: Callable[[Proxy], int], least: Callable[[int, int], int]) -> Prover:
    """Prove that each side's counts grow by at least ``least(requests, number of its sidecars)``."""

    def counts() -> Counters:
        return {(f"{side} {label}", p.name): count(p) for side, proxies in pair.sides.items() for p in proxies}

    def expected(requests: int) -> dict[str, int]:
        return {f"{side} {label}": least(requests, len(proxies)) for side, proxies in pair.sides.items()}

    return proofs.growth_prover(counts, expected, proofs.WRITTEN_S)


def _status_prover(pair: Pair, name: str, cases: Sequence[Case]) -> Prover:
    """Prove that each of these requests is answered with its expected status."""
    grpc = pair.spec.load.only_grpc
    kind = "gRPC status" if grpc else "HTTP"

    def answered(case: Case, phase: str) -> Proof:
        (expected,) = case.answers
        if grpc:
            expected = _GRPC_STATUS[expected]
        answer = pair.ask(case.headers, case.method)
        return Proof(f"{name} {case.name}", phase, answer.status == expected, f"{kind} {expected}", answer.detail)

    return lambda phase, _: [answered(case, phase) for case in cases]


def _decision_prover(admin: Endpoint, log: Path | None) -> Prover:
    """Prove that the policy server decided on every request, and logged each decision if it keeps a log."""
    names = ("OPA decisions",) if log is None else ("OPA decisions", "OPA decision log")

    def counts() -> Counters:
        counters = (int(wire.ask_json("policy server", admin, "/stats")["allowed"]), 0 if log is None else _lines(log))
        return {(name, "policy server"): count for name, count in zip(names, counters, strict=False)}

    return proofs.growth_prover(counts, lambda requests: dict.fromkeys(names, requests), proofs.WRITTEN_S)


def _spans(proxy: Proxy) -> int:
    return proxy.stats(f"^{_SPANS}$").get(_SPANS, 0)


def _share_prover(pair: Pair, percent: float) -> Prover:
    """Prove that each side sent spans of about this share of the requests that its proxies received."""
    received = r"^http\.(inbound|outbound)\.downstream_rq_total$"

    def counts() -> Counters:
        counted = {}
        for side, proxies in pair.sides.items():
            counted[side, "spans"] = sum(map(_spans, proxies))
            counted[side, "requests"] = sum(sum(proxy.stats(received).values()) for proxy in proxies)
        return counted

    def judge(growth: Counters, phase: str, _: int) -> list[Proof]:
        return [
            proving.proof(f"{side} spans", phase, growth[side, "spans"], growth[side, "requests"], percent)
            for side in pair.sides
        ]

    return proofs.before_and_after(counts, judge, proofs.WRITTEN_S)


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for features that exclude or need others, a sidecar, copies or more requests to sample."""
    if load.protocol == "tcp":
        raise UsageError(
            f"treatment {treatment.name}: a local sidecar carries HTTP only; use tcp-pair or node-proxy for tcp"
        )
    alone = [name for name in ALONE if treatment.has(name)]
    if len(alone) > 1:
        raise UsageError(f"treatment {treatment.name}: client-only and server-only exclude each other; use neither")
    for name in alone:
        if impossible := ", ".join(feature for feature in _NOT_WITH[name] if treatment.has(feature)):
            raise UsageError(f"treatment {treatment.name}: {impossible} needs the sidecar that {name} leaves out")
    if treatment.has("client-only") and load.replicas > 1:
        raise UsageError(f"treatment {treatment.name}: server sidecars distinguish the copies; leave out replicas")
    exchanges = [name for name in KEY_EXCHANGES if treatment.has(name)]
    if len(exchanges) > 1:
        raise UsageError(f"treatment {treatment.name}: {' and '.join(exchanges)} exclude each other; use one of them")
    if exchanges and not treatment.has("mtls"):
        raise UsageError(f"treatment {treatment.name}: {exchanges[0]} is a key exchange of mTLS; add mtls before it")
    telemetry = [name for name in _TELEMETRY if treatment.has(name)]
    rates = [name for name in telemetry if name in RATES]
    overlapping = telemetry if "observability" in telemetry else rates
    if len(overlapping) > 1:
        raise UsageError(f"treatment {treatment.name}: {overlapping[0]} and {overlapping[1]} overlap; use one of them")
    for name in rates:
        proving.check(treatment, load, RATES[name])
    if treatment.has("least-request") and load.replicas < 2:
        raise UsageError(
            f"treatment {treatment.name}: least-request needs several copies of the app; set replicas to 2 or more"
        )


def start(spec: Spec, fleet: Fleet) -> Started:
    """Start the application behind its sidecars, with the additions of the treatment's features."""
    pair = _make_pair(spec, fleet)
    for name in spec.treatment.features:
        for add in FEATURES.get(name, ()):
            add(pair)
    for server, endpoint, apps in zip(pair.servers, pair.wires, pair.apps, strict=False):
        _add_inbound(pair, server, endpoint, apps)
    for client in pair.clients:
        _add_outbound(pair, client)
    for proxy in (*pair.servers, *pair.clients):
        fleet.start_proxy(proxy)
    copies = [] if pair.clients else [[endpoint] for endpoint in pair.wires[1:]]
    return Started(spec.target([pair.entry], pair.headers, copies), _provers(pair))


def _make_pair(spec: Spec, fleet: Fleet) -> Pair:
    """Start the application and lay out its sidecars, which are configured later."""
    apps = spec.start_apps(fleet)
    with_client, with_server = not spec.treatment.has("server-only"), not spec.treatment.has("client-only")
    copies = range(len(apps)) if with_server else range(0)
    wires = [fleet.new_endpoint() for _ in copies]
    return Pair(
        spec,
        fleet,
        clients=[Proxy("client sidecar", fleet.new_endpoint())] if with_client else [],
        servers=[Proxy(numbered("server sidecar", copy), fleet.new_endpoint()) for copy in copies],
        entry=fleet.new_endpoint() if with_client else wires[0],
        wires=wires,
        apps=apps,
    )


def _add_inbound(pair: Pair, server: Proxy, endpoint: Endpoint, apps: Sequence[Endpoint]) -> None:
    version = pair.spec.version
    inbound = envoy.http_manager(
        "inbound",
        *_app_clusters(pair, server, apps),
        http_filters=[*pair.filters, *(version.http_filters if version else ())],
        **_telemetry(pair, server),
    )
    server.listeners.append(envoy.listener("inbound", *endpoint, [inbound], pair.tls[1]))


def _add_outbound(pair: Pair, client: Proxy) -> None:
    if pair.wires:
        first, *others = pair.wires
        names: Sequence[str] = ("server",)
        cluster = envoy.cluster("server", *first, *others, http2=True, tls=pair.tls[0])
        client.clusters.append(cluster | pair.upstream)
    else:
        names = _app_clusters(pair, client, pair.apps[0])
    outbound = envoy.http_manager("outbound", *names, **_telemetry(pair, client))
    client.listeners.append(envoy.listener("outbound", *pair.entry, [outbound]))


def _telemetry(pair: Pair, proxy: Proxy) -> Json:
    logs = [log for name, log in pair.access_logs.items() if name == proxy.name]
    return {"access_log": logs, "tracing": pair.tracing.get(proxy.name)}


def _app_clusters(pair: Pair, proxy: Proxy, apps: Sequence[Endpoint]) -> Sequence[str]:
    """Add a cluster for each protocol of a copy and return their names; gRPC and h2 are forwarded as HTTP/2."""
    protocols = pair.spec.load.protocols
    names = ("app", "app-grpc")[: len(protocols)]
    for name, protocol, endpoint in zip(names, protocols, apps, strict=True):
        proxy.clusters.append(envoy.cluster(name, *endpoint, http2=protocol in ("grpc", "grpc-stream", "h2")))
    return names


def _provers(pair: Pair) -> list[Prover]:
    """Return all provers; the request counters come last, because the other proofs send requests too."""
    provers: list[Prover] = []
    if len(pair.apps) > 1:
        provers.append(proofs.share_prover(pair.servers))
        if pair.clients and not pair.spec.treatment.has("least-request"):
            provers.append(proofs.turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=True))
    if not pair.spec.treatment.has("mtls"):
        provers.append(lambda phase, _: _prove_plain(pair, phase))
    if not pair.servers:
        name, behind = "no proxy at the server", "behind the client's sidecar"
        provers.append(
            lambda phase, _: [proofs.prove_app_listens(pair.fleet, "app", name, behind, pair.apps[0], phase)]
        )
    prefixes = {"client": "outbound", "server": "inbound"}
    counters = {
        f"requests through the {side} sidecar": (proxies, [f"http.{prefixes[side]}.downstream_rq_total"])
        for side, proxies in pair.sides.items()
    }
    return [*provers, *pair.provers, proofs.counter_prover(counters, per_request=1)]


def _prove_plain(pair: Pair, phase: str) -> list[Proof]:
    name, answers = "plaintext between the sidecars", [wire.speak_h2(*endpoint) for endpoint in pair.wires]
    return [Proof(name, phase, answer.accepted, "accepted", answer.detail) for answer in answers]
