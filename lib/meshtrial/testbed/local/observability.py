"""Access log, Prometheus scrapes and OpenTelemetry traces on all sidecars.

The collector is a third Envoy that answers 200 to every export, so that the cost of the treatment is what the
sidecars do, not what a collector does with it; its own CPU is not counted to the data plane.
"""

from __future__ import annotations

import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.testbed.local.deployment import LocalDeployment, Prover
from meshtrial.testbed.local.pair import Pair
from meshtrial.testbed.local.proofs import WRITTEN_S, growth_prover

# Percent of requests that are traced where the study does not say.
SAMPLING_PERCENT = 100.0
SCRAPE_INTERVAL_S = 1.0
_SPANS = "tracing.opentelemetry.spans_sent"


def add(deployment: LocalDeployment, pair: Pair) -> None:
    """Add all three to every sidecar."""
    sampling = float(deployment.options.get("trace_sampling", SAMPLING_PERCENT))
    collector = _collector(deployment)
    proxies = [*pair.clients, *pair.servers]
    logs = {proxy.name: deployment.folder / f"access-{proxy.name.replace(' ', '-')}.log" for proxy in proxies}
    for proxy in proxies:
        pair.access_logs[proxy.name].append(_access_log(logs[proxy.name]))
        pair.tracing[proxy.name] = _tracing(proxy.name, sampling)
        proxy.clusters.append(envoy.cluster("collector", *collector))
        # Envoy holds access logs back for ten seconds by default; a proof cannot wait that long.
        proxy.flags += ("--file-flush-interval-msec", "1000")
    scraper = Scraper(proxies)
    deployment.closers.append(scraper.stop)
    pair.provers.append(_prover(pair, logs, scraper, sampling / 100))


def _collector(deployment: LocalDeployment) -> tuple[str, int]:
    endpoint = deployment.new_endpoint()
    sink = Proxy("trace collector", deployment.new_endpoint())
    sink.listeners.append(envoy.listener("collector", *endpoint, [envoy.direct_response("collector", 200)]))
    deployment.spawn_proxy(sink, role="collector")
    return endpoint


def _access_log(path: Path) -> Json:
    config = envoy.typed("extensions.access_loggers.file.v3.FileAccessLog", path=str(path))
    return {"name": "envoy.access_loggers.file", "typed_config": config}


def _tracing(service: str, sampling: float) -> Json:
    uri = {"uri": "http://collector/v1/traces", "cluster": "collector", "timeout": "1s"}
    config = envoy.typed("config.trace.v3.OpenTelemetryConfig", http_service={"http_uri": uri}, service_name=service)
    return {
        "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": config},
        "random_sampling": {"value": sampling},
    }


class Scraper:
    """Fetches the sidecars' Prometheus pages at a fixed interval, as a monitoring system would."""

    def __init__(self, proxies: list[Proxy]) -> None:
        self._proxies = proxies
        self._done = threading.Event()
        self.scrapes = 0
        self.seen: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(SCRAPE_INTERVAL_S):
            for proxy in self._proxies:
                url = f"http://{proxy.admin[0]}:{proxy.admin[1]}/stats/prometheus"
                # A proxy that does not answer is found out by the proof: the number of scrapes does not grow.
                with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
                    if b"envoy_http_downstream_rq_total" in answer.read():
                        self.scrapes += 1
                        self.seen.add(proxy.name)

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self._thread.join(timeout=5)


def _prover(pair: Pair, logs: dict[str, Path], scraper: Scraper, share: float) -> Prover:
    """Log lines, scrapes and spans must have grown with the requests."""
    sides = {side: proxies for side, proxies in (("client", pair.clients), ("server", pair.servers)) if proxies}

    def counts() -> dict[tuple[str, str], int]:
        counted = {("scrapes", "scraper"): scraper.scrapes}
        for side, proxies in sides.items():
            for proxy in proxies:
                log = logs[proxy.name]
                counted[f"{side} log lines", proxy.name] = log.read_bytes().count(b"\n") if log.exists() else 0
                counted[f"{side} spans", proxy.name] = proxy.stats(f"^{_SPANS}$").get(_SPANS, 0)
        return counted

    def wanted(requests: int) -> dict[str, int]:
        # Four standard deviations below the binomial mean of a sampled share.
        spans = max(1, int(requests * share - 4 * (requests * share * (1 - share)) ** 0.5))
        least = {"scrapes": 2}
        for side in sides:
            least |= {f"{side} log lines": requests, f"{side} spans": spans}
        return least

    return growth_prover(counts, wanted, WRITTEN_S)
