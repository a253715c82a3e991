"""Requests to our own processes bypass every proxy of the environment, however its variable is spelled."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from meshtrial import network

PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "All_Proxy", "no_proxy")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("no_proxy")


class _Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Hello) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_process_of_ours_answers_itself(served: int, nowhere: None):
    with network.ask(network.url("127.0.0.1", f"{served}/stats"), 10) as answer:
        assert answer.read() == b"/stats"


def test_children_know_no_proxy(nowhere: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOPROXY", "kept")
    made = network.environment()
    assert not {name.lower() for name in made} & {name.lower() for name in PROXIES}
    assert made["GOPROXY"] == "kept"


@pytest.mark.parametrize(
    ("address", "rest", "url"),
    [
        ("127.0.0.1", "80/x", "http://127.0.0.1:80/x"),
        ("fd00::12", "15020/stats/prometheus", "http://[fd00::12]:15020/stats/prometheus"),
        ("n1.example", "1", "http://n1.example:1"),
    ],
)
def test_an_address_of_ipv6_has_brackets_in_a_url(address: str, rest: str, url: str):
    assert network.url(address, rest) == url
