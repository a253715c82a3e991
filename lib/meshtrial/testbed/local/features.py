"""The sidecars' features as data: what each adds to their configuration, and how it is proven to be on.

:data:`FEATURES` lists them. The collector of traces is a third Envoy that answers 200 to every export, so that the cost
of the treatment is what the sidecars do, not what a collector does with it; its own CPU is not the data plane's.
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
from meshtrial.envoy.pki import write_private
from meshtrial.envoy.tokens import AUDIENCE, ISSUER, Tokens, make_tokens
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed import sampled
from meshtrial.testbed.cases import Case, forbidden_method, token_cases
from meshtrial.testbed.local import wire
from meshtrial.testbed.local.deployment import Prover, Spec
from meshtrial.testbed.local.fleet import Fleet, host_port
from meshtrial.testbed.local.proofs import WRITTEN_S, growth_prover, make_keys, prove_mtls, turns_prover
from meshtrial.testbed.local.sockets import Endpoint

# The policy that the server evaluates; None is the one built into it.
OPA_POLICY: Path | None = None
# What a proxy makes of its refusals where the call is gRPC: unauthenticated and permission denied.
_GRPC_STATUS = {200: 0, 401: 16, 403: 7}
# Percent of requests that are traced where the study does not say.
SAMPLING_PERCENT = 100.0
SCRAPE_INTERVAL_S = 1.0
_SPANS = "tracing.opentelemetry.spans_sent"
# Percent of requests that are traced, by the feature that says so.
RATES = {"tracing": 100.0, "tracing-1pct": 1.0}
_TELEMETRY = ("observability", "access-log", "metrics", *RATES)
_JWT, _OPA = ("jwt", "jwt-cache"), ("opa", "opa-log")


@dataclass(frozen=True)
class Pair:
    """The two sides before their proxies start: what features are made for."""

    spec: Spec
    fleet: Fleet
    clients: Sequence[Proxy]  # the client's sidecar; none where the server alone has one
    servers: Sequence[Proxy]  # the server's, one for each copy of the application; none where the client alone has one
    entry: Endpoint  # what is called: the client's sidecar, or the first of the server's
    wires: Sequence[Endpoint]  # where each of the server's sidecars listens
    apps: Sequence[Sequence[Endpoint]]  # each copy's endpoint for each protocol of the load

    @property
    def sides(self) -> Mapping[str, Sequence[Proxy]]:
        """The sidecars of each side that has some."""
        return {side: proxies for side, proxies in (("client", self.clients), ("server", self.servers)) if proxies}

    @property
    def sidecars(self) -> Sequence[tuple[str, Proxy]]:
        """Every sidecar with its side."""
        return [(side, proxy) for side, proxies in self.sides.items() for proxy in proxies]

    @cached_property
    def tokens(self) -> Tokens:
        """The deployment's tokens, for all that check some."""
        return make_tokens()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What the generators send besides: the good token, where something checks it."""
        return self.tokens.headers if any(map(self.spec.treatment.has, (*_JWT, *_OPA))) else ()

    def ask(self, headers: tuple[tuple[str, str], ...], method: str = "GET") -> wire.HttpAnswer:
        """Send one request in the load's protocol; for gRPC the status is gRPC's."""
        if self.spec.load.protocol == "grpc":
            verb = "POST" if method == "GET" else method
            return wire.grpc_call(*self.entry, self.spec.app.grpc_path, headers, verb)
        return wire.http_get(*self.entry, self.spec.app.path, headers, method)


@dataclass(frozen=True)
class Addition:
    """What a feature adds to the sidecars, and its proofs."""

    provers: Sequence[Prover]
    filters: Sequence[Json] = ()  # HTTP filters of the server's sidecars, in order
    server_clusters: Sequence[Json] = ()  # what these filters call
    clusters: Sequence[Json] = ()  # of every sidecar
    flags: Sequence[str] = ()  # of every sidecar
    access_logs: Mapping[str, Json] = field(default_factory=dict)  # by the proxy's name
    tracing: Mapping[str, Json | None] = field(default_factory=dict)  # by the proxy's name
    tls: tuple[Json | None, Json | None] = (None, None)  # between the sidecars, for the client and the server
    policy: str = "ROUND_ROBIN"  # how the client's sidecar balances, as Envoy calls it


def joined(additions: Sequence[Addition]) -> Addition:
    """All of them as one; what only one can have is that of the feature that has it."""
    usual = Addition([])
    return Addition(
        provers=[one for of in additions for one in of.provers],
        filters=[one for of in additions for one in of.filters],
        server_clusters=[one for of in additions for one in of.server_clusters],
        clusters=[one for of in additions for one in of.clusters],
        flags=[one for of in additions for one in of.flags],
        access_logs={name: log for of in additions for name, log in of.access_logs.items()},
        tracing={name: how for of in additions for name, how in of.tracing.items()},
        tls=next((of.tls for of in additions if of.tls != usual.tls), usual.tls),
        policy=next((of.policy for of in additions if of.policy != usual.policy), usual.policy),
    )


def mutual_tls(pair: Pair) -> Addition:
    """Mutual TLS between the sidecars."""
    keys = make_keys(pair.fleet)
    client = envoy.tls_context(keys.client, keys.server.spiffe, server=False)
    server = envoy.tls_context(keys.server, keys.client.spiffe, server=True)
    return Addition(
        [lambda phase, _: [proof for at in pair.wires for proof in prove_mtls(keys, at, phase)]], tls=(client, server)
    )


def jwt(pair: Pair, *, cache: bool) -> Addition:
    """RS256 token checked by the server's sidecar against a local key set: every time anew, or with Envoy's cache."""
    cases = token_cases(pair.tokens, (401,), (401,), audience=(403,))
    return Addition([_status_prover(pair, "JWT", cases)], filters=jwt_filters(pair.tokens, cache=cache))


def opa(pair: Pair, *, log: bool) -> Addition:
    """Open Policy Agent behind gRPC ext_authz: a Rego policy that checks the token and the method."""
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
    # Behind a JWT filter a bad token does not reach OPA; the method is then what OPA alone refuses.
    refusal = (401 if any(map(pair.spec.treatment.has, _JWT)) else 403,)
    cases = (*token_cases(tokens, refusal, refusal, audience=(403,)), forbidden_method(tokens))
    provers = [_status_prover(pair, "OPA", cases), _decision_prover(admin, decisions if log else None)]
    cluster = envoy.cluster("opa", *grpc, http2=True)
    return Addition(provers, filters=[ext_authz_filter()], server_clusters=[cluster])


def least_request(pair: Pair) -> Addition:
    """The client's sidecar sends to the copy with fewer requests under way, of two drawn at random."""
    prover = turns_prover(pair.servers, lambda: pair.ask(pair.headers), in_turn=False)
    return Addition([prover], policy="LEAST_REQUEST")


def access_log(pair: Pair) -> Addition:
    """A line for every request, in a file of each sidecar's own."""
    folder = pair.fleet.folder
    paths = {proxy.name: folder / f"access-{proxy.name.replace(' ', '-')}.log" for _, proxy in pair.sidecars}
    return Addition(
        [_growth_prover(pair, "log lines", lambda proxy: _lines(paths[proxy.name]), lambda requests, _: requests)],
        # Envoy holds access logs back for ten seconds by default; a proof cannot wait that long.
        flags=("--file-flush-interval-msec", "1000"),
        access_logs={name: file_log(path) for name, path in paths.items()},
    )


def metrics(pair: Pair) -> Addition:
    """Somebody who asks every sidecar for all of its metrics; sidecars keep these anyway."""
    scraper = Scraper([proxy for _, proxy in pair.sidecars])
    pair.fleet.at_close(scraper.stop)
    return Addition([_growth_prover(pair, "scrapes", lambda proxy: scraper.scrapes[proxy.name], lambda _, n: 2 * n)])


def traces(pair: Pair, *, percent: float | None = None) -> Addition:
    """Spans of so many percent of the requests, drawn at random, to a collector; else as many as the study says."""
    if percent is None:
        percent = float(pair.spec.options.get("trace_sampling", SAMPLING_PERCENT))
    endpoint, exports = pair.fleet.new_endpoint(), "exports at the collector"
    sink = Proxy("trace collector", pair.fleet.new_endpoint())
    sink.listeners.append(envoy.listener("collector", *endpoint, [envoy.direct_response("collector", 200)]))
    pair.fleet.start_proxy(sink, role="collector")

    def arrived() -> dict[tuple[str, str], int]:
        return {(exports, sink.name): sum(sink.stats(r"^http\.collector\.downstream_rq_total$").values())}

    every = _growth_prover(pair, "spans", _spans, lambda requests, _: requests)
    spans = every if percent == 100 else _share_prover(pair, percent)
    return Addition(
        [spans, growth_prover(arrived, lambda _: {exports: 1}, WRITTEN_S)],
        clusters=[envoy.cluster("collector", *endpoint)],
        tracing={proxy.name: tracer(proxy.name, percent) for _, proxy in pair.sidecars},
    )


FEATURES: dict[str, Sequence[Callable[[Pair], Addition]]] = {
    "mtls": [mutual_tls],
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
    """Refuse telemetry that is there twice, too few requests for a rate of traces, a policy with nothing to choose."""
    asked = [name for name in _TELEMETRY if treatment.has(name)]
    rates = [name for name in asked if name in RATES]
    twice = asked if "observability" in asked else rates
    if len(twice) > 1:
        raise UsageError(f"treatment {treatment.name}: {twice[0]} and {twice[1]} exclude each other; take one")
    for name in rates:
        sampled.check(treatment, load, RATES[name])
    if treatment.has("least-request") and load.replicas < 2:
        raise UsageError(
            f"treatment {treatment.name}: one copy of the app leaves nothing to balance; set replicas to 2 or more"
        )


def file_log(path: Path) -> Json:
    """A line for every request, in a file."""
    config = envoy.typed("extensions.access_loggers.file.v3.FileAccessLog", path=str(path))
    return {"name": "envoy.access_loggers.file", "typed_config": config}


def tracer(service: str, sampling: float) -> Json:
    """Spans of so many percent of the requests, by OTLP to the collector."""
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
                # A proxy that does not answer is found out by the proof: the number of scrapes does not grow.
                with suppress(OSError), network.ask(url, 2) as answer:
                    if b"envoy_http_downstream_rq_total" in answer.read():
                        self.scrapes[proxy.name] += 1

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self._thread.join(timeout=5)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _growth_prover(pair: Pair, what: str, count: Callable[[Proxy], int], least: Callable[[int, int], int]) -> Prover:
    """What is counted of each sidecar grows, on each side by the ``least`` for the requests and its sidecars."""

    def counts() -> dict[tuple[str, str], int]:
        return {(f"{side} {what}", proxy.name): count(proxy) for side, proxy in pair.sidecars}

    def wanted(requests: int) -> dict[str, int]:
        return {f"{side} {what}": least(requests, len(proxies)) for side, proxies in pair.sides.items()}

    return growth_prover(counts, wanted, WRITTEN_S)


def _status_prover(pair: Pair, name: str, cases: Sequence[Case]) -> Prover:
    """Each of these requests gets the status that it must have."""
    grpc = pair.spec.load.protocol == "grpc"
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
    """A decision for every request, and a line of the log for each where there is one."""
    asked = ("OPA decisions",) if log is None else ("OPA decisions", "OPA decision log")

    def counts() -> dict[tuple[str, str], int]:
        decided = (int(wire.ask_json("policy server", admin, "/stats")["allowed"]), 0 if log is None else _lines(log))
        return {(name, "policy server"): count for name, count in zip(asked, decided, strict=False)}

    return growth_prover(counts, lambda requests: dict.fromkeys(asked, requests), WRITTEN_S)


def _spans(proxy: Proxy) -> int:
    return proxy.stats(f"^{_SPANS}$").get(_SPANS, 0)


def _share_prover(pair: Pair, percent: float) -> Prover:
    """Spans of about this share of what each side's own proxies have taken in meanwhile."""
    taken = r"^http\.(inbound|outbound)\.downstream_rq_total$"
    before: dict[str, tuple[int, int]] = {}

    def counts() -> dict[str, tuple[int, int]]:
        return {
            side: (sum(map(_spans, proxies)), sum(sum(p.stats(taken).values()) for p in proxies))
            for side, proxies in pair.sides.items()
        }

    def prove(phase: str, _requests: int) -> list[Proof]:
        if phase == "before":
            before.update(counts())
            return []

        def judged() -> list[Proof]:
            return [
                sampled.proof(f"{side} spans", phase, spans - before[side][0], requests - before[side][1], percent)
                for side, (spans, requests) in counts().items()
            ]

        return waiting.until(judged, WRITTEN_S, 0.2, lambda proofs: all(proof.passed for proof in proofs))

    return prove
