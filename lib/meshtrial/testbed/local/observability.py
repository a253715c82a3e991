"""Access log, Prometheus scrapes and OpenTelemetry traces on all sidecars: each by itself, or all three at once.

The collector is a third Envoy that answers 200 to every export, so that the cost of the treatment is what the
sidecars do, not what a collector does with it; its own CPU is not counted to the data plane.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from meshtrial import network, waiting
from meshtrial.design.study import Load, Treatment
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import UsageError
from meshtrial.records.schema import Proof
from meshtrial.testbed import sampled
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import WRITTEN_S, growth_prover

# Percent of requests that are traced where the study does not say.
SAMPLING_PERCENT = 100.0
SCRAPE_INTERVAL_S = 1.0
_SPANS = "tracing.opentelemetry.spans_sent"
# Percent of requests that are traced, by the feature that says so.
RATES = {"tracing": 100.0, "tracing-1pct": 1.0}
_Sides = Mapping[str, Sequence[Proxy]]


def add(deployment: LocalDeployment, pair: Pair) -> None:
    """Add all three to every sidecar."""
    add_access_log(deployment, pair)
    add_metrics(deployment, pair)
    add_traces(deployment, pair, percent=float(deployment.options.get("trace_sampling", SAMPLING_PERCENT)))


def add_access_log(deployment: LocalDeployment, pair: Pair) -> None:
    """A line for every request, in a file of each sidecar's own."""
    sides = _sides(pair)
    logs: dict[tuple[str, str], Path] = {}
    for side, proxy in _each(sides):
        path = deployment.folder / f"access-{proxy.name.replace(' ', '-')}.log"
        logs[f"{side} log lines", proxy.name] = path
        pair.access_logs[proxy.name].append(file_log(path))
        # Envoy holds access logs back for ten seconds by default; a proof cannot wait that long.
        proxy.flags += ("--file-flush-interval-msec", "1000")

    def counts() -> dict[tuple[str, str], int]:
        return {key: path.read_bytes().count(b"\n") if path.exists() else 0 for key, path in logs.items()}

    names = [name for name, _ in logs]
    pair.provers.append(growth_prover(counts, lambda requests: dict.fromkeys(names, requests), WRITTEN_S))


def add_metrics(deployment: LocalDeployment, pair: Pair) -> None:
    """Somebody who asks every sidecar for all of its metrics; sidecars keep these anyway."""
    sides = _sides(pair)
    scraper = Scraper([proxy for _, proxy in _each(sides)])
    deployment.closers.append(scraper.stop)

    def counts() -> dict[tuple[str, str], int]:
        return {(f"{side} scrapes", proxy.name): scraper.scrapes[proxy.name] for side, proxy in _each(sides)}

    least = {f"{side} scrapes": 2 * len(proxies) for side, proxies in sides.items()}
    pair.provers.append(growth_prover(counts, lambda _: least, WRITTEN_S))


def add_traces(deployment: LocalDeployment, pair: Pair, *, percent: float) -> None:
    """Spans of so many percent of the requests, drawn at random, to a collector."""
    sides = _sides(pair)
    sink, collector = _collector(deployment)
    for _, proxy in _each(sides):
        pair.tracing[proxy.name] = tracer(proxy.name, percent)
        proxy.clusters.append(envoy.cluster("collector", *collector))
    pair.provers.append(_spans_prover(sides) if percent == 100 else _share_prover(sides, percent))
    exports = "exports at the collector"

    def arrived() -> dict[tuple[str, str], int]:
        return {(exports, sink.name): sum(sink.stats(r"^http\.collector\.downstream_rq_total$").values())}

    pair.provers.append(growth_prover(arrived, lambda _: {exports: 1}, WRITTEN_S))


FEATURES: dict[str, Callable[[LocalDeployment, Pair], None]] = {
    "observability": add,
    "access-log": add_access_log,
    "metrics": add_metrics,
    **{name: partial(add_traces, percent=percent) for name, percent in RATES.items()},
}


def check(treatment: Treatment, load: Load) -> None:
    """Refuse what is there twice, and a rate of traces that so few requests cannot show."""
    asked = [name for name in FEATURES if treatment.has(name)]
    rates = [name for name in asked if name in RATES]
    twice = asked if "observability" in asked else rates
    if len(twice) > 1:
        raise UsageError(f"treatment {treatment.name}: {twice[0]} and {twice[1]} exclude each other; take one")
    for name in rates:
        sampled.check(treatment, load, RATES[name])


def _sides(pair: Pair) -> _Sides:
    return {side: proxies for side, proxies in (("client", pair.clients), ("server", pair.servers)) if proxies}


def _each(sides: _Sides) -> list[tuple[str, Proxy]]:
    return [(side, proxy) for side, proxies in sides.items() for proxy in proxies]


def _collector(deployment: LocalDeployment) -> tuple[Proxy, tuple[str, int]]:
    endpoint = deployment.new_endpoint()
    sink = Proxy("trace collector", deployment.new_endpoint())
    sink.listeners.append(envoy.listener("collector", *endpoint, [envoy.direct_response("collector", 200)]))
    deployment.spawn_proxy(sink, role="collector")
    return sink, endpoint


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


def _spans(proxy: Proxy) -> int:
    return proxy.stats(f"^{_SPANS}$").get(_SPANS, 0)


def _spans_prover(sides: _Sides) -> Prover:
    """A span for every request, of each side."""

    def counts() -> dict[tuple[str, str], int]:
        return {(f"{side} spans", proxy.name): _spans(proxy) for side, proxy in _each(sides)}

    return growth_prover(counts, lambda requests: {f"{side} spans": requests for side in sides}, WRITTEN_S)


def _share_prover(sides: _Sides, percent: float) -> Prover:
    """Spans of about this share of what each side's own proxies have taken in meanwhile."""
    taken = r"^http\.(inbound|outbound)\.downstream_rq_total$"
    before: dict[str, tuple[int, int]] = {}

    def counts() -> dict[str, tuple[int, int]]:
        return {
            side: (sum(map(_spans, proxies)), sum(sum(p.stats(taken).values()) for p in proxies))
            for side, proxies in sides.items()
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
