import contextlib
import http.server
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi

from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes.client import Cluster, ConflictError, NotFoundError, is_transient

SERVER = "https://127.0.0.1:9"  # nobody listens there
PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


def config(
    server: str = SERVER,
    cluster: object = None,
    user: object = None,
    names: tuple[str, str] = ("c", "u"),
    **more: object,
) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster or {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        "contexts": [{"name": "ctx", "context": dict(zip(("cluster", "user"), names, strict=True))}],
        "current-context": "ctx",
        **more,
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "no.pem").write_text("no certificate")
    return tmp_path / "config"


@pytest.fixture
def kubeconfig(written: Path) -> str:
    written.write_text(yaml.safe_dump(config()))
    return str(written)


class _Recording(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.server.authorization = self.headers.get("Authorization")  # type: ignore[attr-defined]
        self.send_response_only(200)
        if self.server.date:  # type: ignore[attr-defined]
            self.send_header("Date", self.server.date)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[http.server.HTTPServer]:
    """A server that notes what it is asked: a path where it is the API server, a whole URL where it is a proxy."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Recording) as server:
        server.asked, server.date = [], ""  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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
    with refused(TestbedError, names=[SERVER, "ctx"]):
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
    ("proxied", "address", "asked"),
    [
        (True, "10.0.0.1", "/api/v1/nodes/n1/proxy/stats/summary"),
        (False, "10.0.0.1", "https://10.0.0.1:10250/stats/summary"),
        (False, "fd00::1", "https://[fd00::1]:10250/stats/summary"),
    ],
)
def test_a_kubelet_is_asked_itself_where_the_way_through_the_api_server_was_not_given(
    monkeypatch: pytest.MonkeyPatch, proxied: bool, address: str, asked: str
):
    api = FakeApi()
    api.kubelets = None
    monkeypatch.setattr(api, "allowed", lambda verb, resource: proxied and (verb, resource) == ("get", "nodes/proxy"))
    api.add("/api/v1/nodes/n1", {"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    for path in ("/stats/summary", "/api/v1/nodes/n1/proxy/stats/summary"):
        api.add(path, {"node": {}})
    assert '"node"' in api.kubelet("n1", "/stats/summary")
    assert api.asked[-1] == f"GET {asked}"
    if not proxied:
        del api.objects["/stats/summary"]
        with refused(TestbedError):
            api.kubelet("n1", "/stats/summary")


@pytest.mark.parametrize("date", ["Sun, 22 Nov 2026 18:00:45 GMT", ""])
def test_the_servers_clock_is_its_own_not_this_machines(written: Path, listening, date: str):
    listening.date = date
    written.write_text(yaml.safe_dump(config(f"http://127.0.0.1:{listening.server_port}")))
    cluster = Cluster(str(written))
    if date:
        assert cluster.server_time() == 1795370445
    else:
        with refused(TestbedError):
            cluster.server_time()


@pytest.mark.parametrize("user", [{}, {"token": "secret"}], ids=["nobody", "token"])
@pytest.mark.parametrize("at_another_host", [False, True])
def test_an_answer_is_read_from_the_server_that_is_named(
    written: Path, listening, at_another_host: bool, user: dict[str, str]
):
    address = f"http://127.0.0.1:{listening.server_port}"
    written.write_text(yaml.safe_dump(config(SERVER if at_another_host else address, user=user)))
    assert Cluster(str(written)).request("GET", "/version", host=address if at_another_host else "") == b"{}"
    assert listening.authorization == ("Bearer secret" if user else None)


# --- kubeconfigs ------------------------------------------------------------------------------------------------------


def exec_plugin(command: str, *args: str) -> dict[str, object]:
    return config(user={"exec": PLUGIN | {"command": command, "args": args}})


@pytest.mark.parametrize(
    "content",
    [
        "not: [a kubeconfig",
        "\tkind: Config",
        "",
        "- a list",
        config(contexts=[1]),
        config(**{"current-context": "gone"}),
        config(**{"current-context": ""}),
        config(names=("c", "nobody")),
        config(names=("away", "u")),
        config(cluster={"insecure-skip-tls-verify": True}),
        config(cluster={"server": SERVER, "certificate-authority": "/a/ca.crt"}),
        config(user={"client-certificate": "/a/client.crt", "client-key": "/a/client.key"}),
        config(user={"tokenFile": "/a/token"}),
        config(cluster={"server": SERVER, "certificate-authority": "no.pem"}),
        config(user={"client-certificate": "no.pem", "client-key": "no.pem"}),
        exec_plugin("missing-plugin"),
        exec_plugin("sh", "-c", "printf '\\033[31merror:\\033[0m log in again\n' >&2; exit 1"),
        exec_plugin("echo", "hello"),
    ],
    ids=itertools.count(),
)
def test_one_that_cannot_be_used_says_so_in_a_line(written: Path, content: object):
    written.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    with refused(UsageError, names=[written]):
        Cluster(str(written))


def test_the_usual_one_is_refused_by_its_name_too(written: Path, monkeypatch: pytest.MonkeyPatch):
    written.write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", f"{written}:/nonexistent/config")
    with refused(UsageError, names=[written]):
        Cluster()
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/config")
    with refused(MissingToolError):
        Cluster()
    with refused(UsageError):
        Cluster(context="ctx")


def test_a_context_that_is_given_needs_no_current_one(written: Path):
    written.write_text(yaml.safe_dump(config(**{"current-context": ""})))
    assert Cluster(str(written), "ctx").context == "ctx"


def test_a_path_is_one_file_whatever_its_name_holds(tmp_path: Path):
    path = tmp_path / "a:b [1] {x} %s *?" / "config"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(config()))
    assert Cluster(str(path)).server == SERVER


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(("host", "proxied"), [("127.0.0.1", False), ("localhost", False), ("api.invalid", True)])
def test_a_proxy_of_the_environment_is_for_api_servers_elsewhere(
    written: Path, listening, monkeypatch: pytest.MonkeyPatch, name: str, host: str, proxied: bool
):
    server = f"http://{host}:{listening.server_port}"
    for other in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, f"http://127.0.0.1:{listening.server_port}" if proxied else "http://127.0.0.1:9")
    written.write_text(yaml.safe_dump(config(server)))
    Cluster(str(written), patience_s=0.1).get("/version")
    assert listening.asked == [f"{server}/version" if proxied else "/version"]


def test_a_proxy_of_the_kubeconfig_is_meant_for_loopback_too(written: Path, listening, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server = "http://127.0.0.1:9"
    proxy = f"http://127.0.0.1:{listening.server_port}"
    written.write_text(yaml.safe_dump(config(cluster={"server": server, "proxy-url": proxy})))
    Cluster(str(written), patience_s=0.1).get("/version")
    assert listening.asked == [f"{server}/version"]
