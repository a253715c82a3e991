"""The scraper of the clusters' treatments, on a real Envoy: it fetches whole pages every second and counts them."""

import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from local.studies import PATIENCE_S
from waiting import wait_for

from meshtrial import native, network, paths
from meshtrial.testbed.local.sockets import free_ports

FILES = sorted((paths.MANIFESTS / "meshes").glob("*/features/metrics.yaml"))
PAGE = b"requests 1\n" * 1_000_000  # more than any socket buffer holds, so it ends only when it was read


class Proxy(BaseHTTPRequestHandler):
    """A page server that records the path of every page that was read to its end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)
        self.server.read.append(self.path)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def proxy() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.read = []  # type: ignore[attr-defined]
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def scrapes(port: int, cluster: str) -> int:
    """As the proofs read it."""
    try:
        with network.ask(f"http://127.0.0.1:{port}/stats/prometheus", 5) as answer:
            text = answer.read().decode()
    except OSError:
        return 0
    (found,) = re.findall(rf'(?m)^envoy_cluster_health_check_success\{{envoy_cluster_name="{cluster}"\}} (\d+)', text)
    return int(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_a_proxy_is_scraped_again_and_again_and_one_that_is_away_is_not_counted(path: Path, tmp_path: Path, proxy):
    config = yaml.safe_load(next(yaml.safe_load_all(path.read_text()))["data"]["envoy.yaml"])
    admin, readings, nobody = free_ports("127.0.0.1", 3)
    config["admin"]["address"]["socket_address"]["port_value"] = admin
    (listener,) = config["static_resources"]["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": readings}
    own, *asked = config["static_resources"]["clusters"]
    for cluster, port in zip((own, *asked), (admin, proxy.server_port, nobody), strict=False):
        (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        endpoint["endpoint"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    made = tmp_path / "scraper.yaml"
    made.write_text(yaml.safe_dump(config))
    flags = ["--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
    with subprocess.Popen([native.find("envoy"), "-c", made, *flags], cwd=tmp_path) as envoy:
        try:
            first, *others = (cluster["name"] for cluster in asked)
            # More than one: the scraper continues while nobody else sends.
            wait_for(lambda: scrapes(readings, first) >= 2, PATIENCE_S)
            assert [scrapes(readings, name) for name in others] == [0] * len(others)
        finally:
            envoy.kill()
    assert len(proxy.read) >= 2
    assert set(proxy.read) == {asked[0]["health_checks"][0]["http_health_check"]["path"]}
