"""The sidecars' features as data: what each adds to their configuration, and how it is proven to be on.

:data:`FEATURES` lists them. The trace collector is a third Envoy that answers 200 to every export. So the cost of the
treatment is what the sidecars do; the collector's own CPU is not counted as the data plane's.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from meshtrial import native, network, waiting
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy, ext_authz_filter, jwt_filters
from meshtrial.envoy.keys import AUDIENCE, ISSUER, Tokens, make_tokens, write_private
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed import proving
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import Prover, Spec
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.proofs import WRITTEN_S, growth_prover, make_keys, prove_mtls, turns_prover
from meshtrial.testbed.local.sockets import Endpoint
from meshtrial.testbed.proving import Case, forbidden_method, token_cases

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


@dataclass(frozen=True)
class Pair:
    """Both sides of the sidecar pair before their proxies start; features add to it."""

    spec: Spec
    fleet: Fleet
    clients: Sequence[Proxy]  # the client's sidecar; empty if only the server has one
    servers: Sequence[Proxy]  # the server's, one for each copy of the application; empty if only the client has one
    entry: Endpoint  # called by the generators: the client's sidecar, or else the server's first
    wires: Sequence[Endpoint]  # on which the server's sidecars listen
    apps: Sequence[Sequence[Endpoint]]  # for each copy, one endpoint for each protocol of the load

    @property
    def sides(self) -> Mapping[str, Sequence[Proxy]]:
        """The sidecars by side, without an empty side."""
        return {side: proxies for side, proxies in (("client", self.clients), ("server", self.servers)) if proxies}

    @property
    def sidecars(self) -> Sequence[tuple[str, Proxy]]:
        """Every sidecar as (side, proxy)."""
        return [(side, proxy) for side, proxies in self.sides.items() for proxy in proxies]

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


@dataclass(frozen=True)
class Addition:
    """What a feature adds to the sidecars, and its proofs."""

    provers: Sequence[Prover]
    filters: Sequence[Json] = ()  # HTTP filters of the server's sidecars, in order
    server_clusters: Sequence[Json] = ()  # that these filters call
    clusters: Sequence[Json] = ()  # of every sidecar
    flags: Sequence[str] = ()  # of every sidecar
    access_logs: Mapping[str, Json] = field(default_factory=dict)  # by proxy name
    tracing: Mapping[str, Json | None] = field(default_factory=dict)  # by proxy name
    tls: tuple[Json | None, Json | None] = (None, None)  # between the sidecars: (client's context, server's context)
    upstream: Json = field(default_factory=dict)  # fields of the cluster through which the client's sidecar calls


def joined(additions: Sequence[Addition]) -> Addition:
    """Return all additions as one; ``tls`` is that of the first addition that sets it."""
    default = Addition([])
    return Addition(
        provers=[prover for addition in additions for prover in addition.provers],
        filters=[item for addition in additions for item in addition.filters],
        server_clusters=[cluster for addition in additions for cluster in addition.server_clusters],
        clusters=[cluster for addition in additions for cluster in addition.clusters],
        flags=[flag for addition in additions for flag in addition.flags],
        access_logs={name: log for addition in additions for name, log in addition.access_logs.items()},
        tracing={name: config for addition in additions for name, config in addition.tracing.items()},
        tls=next((addition.tls for addition in additions if addition.tls != default.tls), default.tls),
        upstream={name: value for addition in additions for name, value in addition.upstream.items()},
    )


def mutual_tls(pair: Pair) -> Addition:
    """Add mutual TLS between the sidecars, by the key exchange that a further feature names, or by Envoy's choice."""
    keys = make_keys(pair.fleet)
    offered = [group for name, group in KEY_EXCHANGES.items() if pair.spec.treatment.has(name)]
    # The connections that prove mutual TLS know only the classical exchange, so the server accepts it too.
    accepted = [*dict.fromkeys((*offered, _CLASSICAL))] if offered else []
    client = envoy.tls_context(keys.client, keys.server.spiffe, server=False, groups=offered)
    server = envoy.tls_context(keys.server, keys.client.spiffe, server=True, groups=accepted)
    return Addition(
        [lambda phase, _: [proof for at in pair.wires for proof in prove_mtls(keys, at, phase)]], tls=(client, server)
    )


def key_exchange(pair: Pair, *, group: str) -> Addition:
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

    return Addition([prove])


def unpooled(pair: Pair) -> Addition:
    """Let the client's sidecar open a connection to the server's for each connection that it accepts."""
    before: Counter[str] = Counter()

    def counts() -> Counter[str]:
        found: Counter[str] = Counter()
        for proxy in pair.clients:
            found.update(proxy.stats("^(http.outbound.downstream|cluster.server.upstream)_cx_total$"))
        return found

    def prove(phase: str, _: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []
        grown = counts()
        grown.subtract(before)
        accepted, opened = grown["http.outbound.downstream_cx_total"], grown["cluster.server.upstream_cx_total"]
        return [Proof("own connections", phase, opened >= accepted > 0, f"at least {accepted}", str(opened))]

    return Addition([prove], upstream={"connection_pool_per_downstream_connection": True})


def jwt(pair: Pair, *, cache: bool) -> Addition:
    """Let the server's sidecars check an RS256 token against a local key set, with or without Envoy's cache."""
    cases = token_cases(pair.tokens, (401,), (401,), audience=(403,))
    return Addition([_status_prover(pair, "JWT", cases)], filters=jwt_filters(pair.tokens, cache=cache))


def opa(pair: Pair, *, log: bool) -> Addition:
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
    provers = [_status_prover(pair, "OPA", cases), _decision_prover(admin, decisions if log else None)]
    cluster = envoy.cluster("opa", *grpc, http2=True)
    return Addition(provers, filters=[ext_authz_filter()], server_clusters=[cluster])


def least_request(pair: Pair) -> Addition:
    """Let the client's sidecar send to the less busy of two copies drawn at random."""
    prover = turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=False)
    return Addition([prover], upstream={"lb_policy": "LEAST_REQUEST"})


def access_log(pair: Pair) -> Addition:
    """Let each sidecar log every request to a file of its own."""
    folder = pair.fleet.folder
    paths = {proxy.name: folder / f"access-{proxy.name.replace(' ', '-')}.log" for _, proxy in pair.sidecars}
    return Addition(
        [_growth_prover(pair, "log lines", lambda proxy: _lines(paths[proxy.name]), lambda requests, _: requests)],
        # By default Envoy flushes access logs every ten seconds, which is too long for a proof to wait.
        flags=("--file-flush-interval-msec", "1000"),
        access_logs={name: file_log(path) for name, path in paths.items()},
    )


def metrics(pair: Pair) -> Addition:
    """Scrape all metrics of every sidecar once a second; the sidecars keep metrics in every treatment."""
    scraper = Scraper([proxy for _, proxy in pair.sidecars])
    pair.fleet.at_close(scraper.stop)
    return Addition([_growth_prover(pair, "scrapes", lambda proxy: scraper.scrapes[proxy.name], lambda _, n: 2 * n)])


def traces(pair: Pair, *, percent: float | None = None) -> Addition:
    """Send spans of a random sample of requests to a collector; without ``percent``, the study's share is sampled."""
    if percent is None:
        percent = float(pair.spec.options.get("trace_sampling", SAMPLING_PERCENT))
    endpoint, exports = pair.fleet.new_endpoint(), "exports at the collector"
    sink = Proxy("trace collector", pair.fleet.new_endpoint())
    sink.listeners.append(envoy.listener("collector", *endpoint, [envoy.direct_response("collector", 200)]))
    pair.fleet.start_proxy(sink, role="collector")

    def exported() -> dict[tuple[str, str], int]:
        return {(exports, sink.name): sum(sink.stats(r"^http\.collector\.downstream_rq_total$").values())}

    every = _growth_prover(pair, "spans", _spans, lambda requests, _: requests)
    spans = every if percent == 100 else _share_prover(pair, percent)
    return Addition(
        [spans, growth_prover(exported, lambda _: {exports: 1}, WRITTEN_S)],
        clusters=[envoy.cluster("collector", *endpoint)],
        tracing={proxy.name: tracer(proxy.name, percent) for _, proxy in pair.sidecars},
    )


FEATURES: dict[str, Sequence[Callable[[Pair], Addition]]] = {
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


def check(treatment: Treatment, load: Load) -> None:
    """Raise UsageError for features that exclude or need others, too few requests to sample, or one copy to balance."""
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


def file_log(path: Path) -> Json:
    """Return Envoy's access log to a file, one line for every request."""
    config = envoy.typed("extensions.access_loggers.file.v3.FileAccessLog", path=str(path))
    return {"name": "envoy.access_loggers.file", "typed_config": config}


def tracer(service: str, sampling: float) -> Json:
    """Return Envoy's tracing configuration: ``sampling`` percent of the requests, by OTLP to the collector."""
    uri = {"uri": "http://collector/v1/traces", "cluster": "collector", "timeout": "1s"}
    config = envoy.typed("config.trace.v3.OpenTelemetryConfig", http_service={"http_uri": uri}, service_name=service)
    return {
        "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": config},
        "random_sampling": {"value": sampling},
    }


class Scraper:
    """Fetches the sidecars' Prometheus pages at a fixed interval, as a monitoring system would."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self._proxies = proxies
        self._done = threading.Event()
        self.scrapes: Counter[str] = Counter()  # by the proxy's name
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(SCRAPE_INTERVAL_S):
            for proxy in self._proxies:
                url = network.url(proxy.admin[0], f"{proxy.admin[1]}/stats/prometheus")
                # The proof detects a proxy that does not answer: its number of scrapes does not grow.
                with suppress(OSError), network.ask(url, 2) as answer:
                    if b"envoy_http_downstream_rq_total" in answer.read():
                        self.scrapes[proxy.name] += 1

    def stop(self) -> None:
        """Stop the thread."""
        self._done.set()
        self._thread.join(timeout=5)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _growth_prover(pair: Pair, label: str, count: Callable[[Proxy], int], least: Callable[[int, int], int]) -> Prover:
    """Prove that each side's counts grow by at least ``least(requests, number of its sidecars)``."""

    def counts() -> dict[tuple[str, str], int]:
        return {(f"{side} {label}", proxy.name): count(proxy) for side, proxy in pair.sidecars}

    def expected(requests: int) -> dict[str, int]:
        return {f"{side} {label}": least(requests, len(proxies)) for side, proxies in pair.sides.items()}

    return growth_prover(counts, expected, WRITTEN_S)


def _status_prover(pair: Pair, name: str, cases: Sequence[Case]) -> Prover:
    """Prove that each of these requests is answered with its expected status."""
    grpc = pair.spec.load.only_grpc
    kind = "gRPC status" if grpc else "HTTP"

    def prove(phase: str, _: int) -> list[Proof]:
        proofs = []
        for case in cases:
            (expected,) = case.answers
            if grpc:
                expected = _GRPC_STATUS[expected]
            answer = pair.ask(case.headers, case.method)
            passed = answer.status == expected
            proofs.append(Proof(f"{name} {case.name}", phase, passed, f"{kind} {expected}", answer.detail))
        return proofs

    return prove


def _decision_prover(admin: Endpoint, log: Path | None) -> Prover:
    """Prove that the policy server decided on every request, and logged each decision if it keeps a log."""
    names = ("OPA decisions",) if log is None else ("OPA decisions", "OPA decision log")

    def counts() -> dict[tuple[str, str], int]:
        counters = (int(wire.ask_json("policy server", admin, "/stats")["allowed"]), 0 if log is None else _lines(log))
        return {(name, "policy server"): count for name, count in zip(names, counters, strict=False)}

    return growth_prover(counts, lambda requests: dict.fromkeys(names, requests), WRITTEN_S)


def _spans(proxy: Proxy) -> int:
    return proxy.stats(f"^{_SPANS}$").get(_SPANS, 0)


def _share_prover(pair: Pair, percent: float) -> Prover:
    """Prove that each side sent spans of about this share of the requests that its proxies received."""
    received = r"^http\.(inbound|outbound)\.downstream_rq_total$"
    before: dict[str, tuple[int, int]] = {}

    def counts() -> dict[str, tuple[int, int]]:
        return {
            side: (sum(map(_spans, proxies)), sum(sum(proxy.stats(received).values()) for proxy in proxies))
            for side, proxies in pair.sides.items()
        }

    def prove(phase: str, _requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []

        def proofs() -> list[Proof]:
            return [
                proving.proof(f"{side} spans", phase, spans - before[side][0], requests - before[side][1], percent)
                for side, (spans, requests) in counts().items()
            ]

        return waiting.until(proofs, WRITTEN_S, 0.2, lambda proofs: all(proof.passed for proof in proofs))

    return prove
