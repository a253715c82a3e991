"""``meshtrial calls`` with a real Prometheus that scrapes a real Envoy, whose counters have Istio's labels.

Envoy's stats access logger counts like Istio's telemetry: by caller, callee and reporter, at the end of each request.
Prometheus removes Envoy's prefix from all names.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest
from answering import answering
from commandline import meshtrial
from local.studies import PATIENCE_S
from scraping import HERE, answers, needs_prometheus, scraping
from waiting import wait_for

from meshtrial import native, network
from meshtrial.design.system import System, read_system
from meshtrial.envoy import bootstrap
from meshtrial.testbed.local.sockets import free_ports

WINDOW_S, PAUSE_S = 8, 0.02
BODY = b"x" * 700
pytestmark = needs_prometheus


def counted(reporter: str, caller: str, callee: str) -> bootstrap.Json:
    """An access logger that counts requests and the bytes of their answers."""
    labels = {
        "reporter": reporter,
        "source_workload": caller,
        "source_workload_namespace": "shop",
        "destination_canonical_service": callee,
        "destination_service_name": callee,
        "destination_workload_namespace": "shop",
        "request_protocol": "http",
    }
    tags = [{"name": name, "value_format": value} for name, value in labels.items()]
    config = bootstrap.typed(
        "extensions.access_loggers.stats.v3.Config",
        stat_prefix="istio",
        counters=[{"stat": {"name": "requests", "tags": tags}, "value_fixed": 1}],
        histograms=[{"stat": {"name": "response_bytes", "tags": tags}, "value_format": "%BYTES_SENT%"}],
    )
    return {"name": "envoy.access_loggers.stats", "typed_config": config}


def proxy(app: int) -> tuple[bootstrap.Proxy, int, int]:
    """An Envoy with both proxies of a > b and the caller's proxy of b > c, and the ports of the callers' proxies."""
    admin, first, second, callees = free_ports(HERE, 4)
    made = bootstrap.Proxy("proxy", (HERE, admin))
    made.clusters = [bootstrap.cluster("b", HERE, callees), bootstrap.cluster("app", HERE, app)]
    for port, reporter, caller, callee, cluster in (
        (first, "source", "a", "b", "b"),
        (callees, "destination", "a", "b", "app"),
        (second, "source", "b", "c", "app"),
    ):
        manager = bootstrap.http_manager(reporter, cluster, access_log=[counted(reporter, caller, callee)])
        made.listeners.append(bootstrap.listener(f"{reporter}-{caller}", HERE, port, [manager]))
    return made, first, second


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[tuple[str, list[float]]]:
    """Return the address of a Prometheus and the send times of b > c requests, each sent after two of a > b."""
    with ExitStack() as stack:
        app = stack.enter_context(answering(lambda *_: (200, BODY)))
        made, first, second = proxy(int(app.rpartition(":")[2]))
        envoy = stack.enter_context(subprocess.Popen(made.command(native.find("envoy"), tmp_path)))
        stack.callback(envoy.kill)
        job = {
            "job_name": "proxies",
            "metrics_path": "/stats/prometheus",
            "static_configs": [{"targets": [f"{HERE}:{made.admin[1]}"]}],
            "metric_relabel_configs": [
                {"source_labels": ["__name__"], "regex": "envoy_istio_(response.*)", "target_label": "__name__"}
                | {"replacement": "istio_$1"},
                {"source_labels": ["__name__"], "regex": "envoy_istio_requests", "target_label": "__name__"}
                | {"replacement": "istio_requests_total"},
            ],
        }
        wait_for(lambda: answers(f"http://{HERE}:{made.admin[1]}/ready"), PATIENCE_S)
        address, sent, over = stack.enter_context(scraping(tmp_path, job)), [], Event()

        def load() -> None:
            while not over.is_set() and len(sent) < 60 / PAUSE_S:
                for caller in (first, first, second):
                    with network.ask(f"http://{HERE}:{caller}/", 5) as answer:
                        answer.read()
                sent.append(time.monotonic())
                time.sleep(PAUSE_S)

        loading = Thread(target=load)
        loading.start()
        try:
            yield address, sent
        finally:
            over.set()
            loading.join()


def described(folder: Path, address: str) -> System | str:
    code, out, err = meshtrial("calls", "--prometheus", address, "--range", f"{WINDOW_S}s")
    path = folder / "system.yaml"
    path.write_text(out)
    return err if code else read_system(path)


def test_rates_are_those_of_the_load_and_counted_once(tmp_path, monkeypatch, measured):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    address, sent = measured
    wait_for(lambda: isinstance(described(tmp_path, address), System), PATIENCE_S)
    time.sleep(2)  # the first samples of a counter are before the window
    system = described(tmp_path, address)
    assert isinstance(system, System)
    own = sum(at > sent[-1] - WINDOW_S for at in list(sent)) / WINDOW_S
    twice, once = system.by_pair["a", "b"], system.by_pair["b", "c"]
    assert once.rps == pytest.approx(own, rel=0.25)
    assert twice.rps == pytest.approx(2 * once.rps, rel=0.05)
    assert once.response_bytes == pytest.approx(len(BODY), rel=0.05)  # Envoy's histograms have bins
    assert [name for name, one in system.services.items() if one.outside] == ["c"]
