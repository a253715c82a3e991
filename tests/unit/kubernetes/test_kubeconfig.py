"""Real kubeconfigs: a faulty one is reported in one line, before any request."""

import http.server
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from refused import refused

from meshtrial.errors import MissingToolError, UsageError
from meshtrial.testbed.kubernetes.client import Cluster

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
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [{"name": "ctx", "context": dict(zip(("cluster", "user"), names, strict=True))}],
        "current-context": "ctx",
        **more,
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "no.pem").write_text("no certificate")
    return tmp_path / "config"


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


class _Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening() -> Iterator[http.server.HTTPServer]:
    """A server that records requests: a path as the API server, a whole URL as a proxy."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Ok) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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
