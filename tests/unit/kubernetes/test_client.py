import contextlib
import http.server
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.errors import TestbedError, UsageError
from meshtrial.testbed.kubernetes.client import Cluster, ConflictError, NotFoundError, is_transient


def kubeconfig_of(path: Path, server: str, **user: str) -> str:
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "there",
    }
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    return kubeconfig_of(tmp_path / "config", "http://127.0.0.1:9")  # nobody listens there


def test_wrong_context_names_those_that_are_there(kubeconfig: str):
    with refused(UsageError):
        Cluster(kubeconfig, "here")


def test_missing_kubeconfig():
    with refused(UsageError):
        Cluster("/nonexistent/config")


def refuse() -> None:
    raise ConnectionRefusedError


def busy() -> None:
    raise ApiException(status=503)


@pytest.mark.parametrize(("before", "waited_s"), [(None, 10), (lambda: "ready", 60), (busy, 60)])
def test_a_server_that_was_never_heard_is_not_waited_for_as_long(
    kubeconfig: str, clock: Clock, before: Callable[[], object] | None, waited_s: float
):
    cluster = Cluster(kubeconfig)
    if before is not None:  # any response counts, even "busy"
        with contextlib.suppress(TestbedError):
            cluster.call("get", before, patience_s=0)
    began = clock.now
    with refused(TestbedError, names=["http://127.0.0.1:9", "there"]):
        cluster.call("get", refuse)
    assert waited_s <= clock.now - began <= waited_s + 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, TestbedError), (403, TestbedError), (404, NotFoundError), (409, ConflictError), (422, TestbedError)],
)
def test_answers_become_one_line(kubeconfig: str, status: int, kind: type):
    error = ApiException(status=status, reason="Reason")
    message = 'pods is forbidden: User \\"u\\" cannot list resource' if status == 403 else "x already exists"
    error.body = f'{{"message": "{message}"}}'
    with refused(kind, names=["pod"]):
        raise Cluster(kubeconfig).translate("create pod", error)


def test_what_is_a_blink():
    assert all(is_transient(ApiException(status=code)) for code in (0, 429, 500, 503))
    assert is_transient(ConnectionResetError())
    assert not any(is_transient(ApiException(status=code)) for code in (401, 403, 404, 409, 422))


@pytest.mark.parametrize(
    ("proxied", "asked"),
    [(True, "/api/v1/nodes/n1/proxy/stats/summary"), (False, "https://10.0.0.1:10250/stats/summary")],
)
def test_a_kubelet_is_asked_itself_where_the_way_through_the_api_server_was_not_given(
    monkeypatch: pytest.MonkeyPatch, proxied: bool, asked: str
):
    api = FakeApi()
    api.kubelets = None
    monkeypatch.setattr(api, "allowed", lambda verb, resource: proxied and (verb, resource) == ("get", "nodes/proxy"))
    api.add("/api/v1/nodes/n1", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
    for path in ("/stats/summary", "/api/v1/nodes/n1/proxy/stats/summary"):
        api.add(path, {"node": {}})
    assert '"node"' in api.kubelet("n1", "/stats/summary")
    assert api.asked[-1] == f"GET {asked}"
    if not proxied:
        del api.objects["/stats/summary"]
        with refused(TestbedError):
            api.kubelet("n1", "/stats/summary")


class _Dated(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.server.authorization = self.headers.get("Authorization")  # type: ignore[attr-defined]
        self.send_response_only(200)
        if self.server.date:  # type: ignore[attr-defined]
            self.send_header("Date", self.server.date)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("date", ["Sun, 22 Nov 2026 18:00:45 GMT", ""])
def test_the_servers_clock_is_its_own_not_this_machines(tmp_path: Path, date: str):
    with http.server.HTTPServer(("127.0.0.1", 0), _Dated) as server:
        server.date = date  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        cluster = Cluster(kubeconfig_of(tmp_path / "config", address))
        if date:
            assert cluster.server_time() == 1795370445
        else:
            with refused(TestbedError):
                cluster.server_time()
        thread.join()


@pytest.mark.parametrize("user", [{}, {"token": "secret"}], ids=["nobody", "token"])
@pytest.mark.parametrize("at_another_host", [False, True])
def test_an_answer_is_read_from_the_server_that_is_named(tmp_path: Path, at_another_host: bool, user: dict[str, str]):
    with http.server.HTTPServer(("127.0.0.1", 0), _Dated) as server:
        server.timeout = 10
        server.date = ""  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        api_server = "http://127.0.0.1:9" if at_another_host else address
        cluster = Cluster(kubeconfig_of(tmp_path / "config", api_server, **user))
        assert cluster.request("GET", "/version", host=address if at_another_host else "") == b"{}"
        thread.join()
        assert server.authorization == ("Bearer secret" if user else None)  # type: ignore[attr-defined]
