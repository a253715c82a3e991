"""The control plane before real Envoys: three roles, mutual TLS between them, fortio through the chain."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local.studies import PATIENCE_S
from waiting import wait_for

from meshtrial import native
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.envoy.pki import Authority
from meshtrial.testbed.local import sockets, wire

pytestmark = pytest.mark.local
CALLS = {"loadgen": "client", "client": "server", "server": ""}
REPLICAS = 3
# Of its own: others may run the same tests on this machine.
NETWORK = f"127.{secrets.randbelow(100) + 120}"


def address(role: str, replica: int) -> str:
    return f"{NETWORK}.{list(CALLS).index(role)}.{replica + 1}"


def node(role: str, replica: int) -> dict[str, Any]:
    at = address(role, replica)
    made = {"id": f"{role}-{replica}", "role": role, "admin": f"{at}:15000"}
    if role != "loadgen":
        made |= {"inbound": f"{at}:15006", "application": f"{at}:8080"}
    if CALLS[role]:
        made["outbound"] = f"{at}:15001"
    return made


class Mesh:
    """The running mesh; `folder` holds the keys."""

    def __init__(self, folder: Path, scope: str, processes: contextlib.ExitStack) -> None:
        self.folder = folder
        self._processes = processes
        authority = Authority(folder)
        self.identities = {role: authority.issue(role) for role in CALLS}
        roles = {
            role: {
                "spiffe": identity.spiffe,
                "certificate": str(identity.certificate),
                "key": str(identity.key),
                "authority": str(identity.authority),
                "calls": CALLS[role],
            }
            for role, identity in self.identities.items()
        }
        self.nodes = [node(role, replica) for role in CALLS for replica in range(REPLICAS)]
        topology = {"scope": scope, "extra_services": 4, "extra_endpoints": 2, "roles": roles, "nodes": self.nodes}
        (folder / "topology.json").write_text(json.dumps(topology))
        files = ("-topology", folder / "topology.json", "-bootstraps", folder / "bootstraps")
        server = self.start([native.find("xds-server"), *files], stdout=subprocess.PIPE)
        assert server.stdout is not None
        self.admin = "http://" + json.loads(server.stdout.readline())["admin"]
        self.start_applications()
        for each in self.nodes:
            self.start_envoy(each["id"])

    def start(self, command: list[Any], **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            text=True,
            **{"stderr": subprocess.DEVNULL} | options,
        )
        self._processes.callback(stop, process)
        return process

    def start_envoy(self, name: str) -> None:
        flags = ("--concurrency", "1", "--disable-hot-restart", "-l", "error", "--skip-deprecated-logs")
        self.start([native.find("envoy"), "-c", self.folder / "bootstraps" / f"{name}.json", *flags])

    def start_applications(self) -> None:
        """One fortio for all: the servers echo, and every client passes a request on to its own sidecar."""
        off = [part for kind in ("grpc", "tcp", "udp", "redirect") for part in (f"-{kind}-port", "disabled")]
        proxies: list[str] = []
        for replica in range(REPLICAS):
            at = address("client", replica)
            proxies += ["-M", f"{at}:8080 http://{at}:15001/echo"]
        middle = ["-multi-serial-mode", "-multi-mirror-origin=false", *proxies]
        self.start([native.find("fortio"), "server", "-http-port", f"{address('server', 0)}:8080", *off, *middle])
        for replica in range(1, REPLICAS):
            self.start([native.find("fortio"), "server", "-http-port", f"{address('server', replica)}:8080", *off])

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(
            urllib.request.Request(self.admin + path, data, method=method), timeout=60
        ) as answer:
            return json.load(answer)

    def counter(self, role: str, replica: int, name: str) -> int:
        return Proxy(f"{role}-{replica}", (address(role, replica), 15000)).stats(f"^{name}$")[name]


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    finally:
        process.kill()
        if process.stdout:
            process.stdout.close()


@pytest.fixture(params=["full", "scoped"])
def mesh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mesh]:
    with contextlib.ExitStack() as processes:
        yield Mesh(tmp_path, request.param, processes)


def load(target: str, requests: int) -> dict[str, int]:
    asked = ("-quiet", "-qps", "100", "-c", "2", "-n", str(requests), "-json", "-")
    command = (native.find("fortio"), "load", *asked, target)
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    codes: dict[str, int] = json.loads(result.stdout)["RetCodes"]
    return codes


def test_mesh_is_configured_carries_and_refuses(mesh: Mesh) -> None:
    initial = mesh.ask("/converged?version=1&wait=60s")
    assert (initial["converged"], initial["awaited"], initial["acked"]) == (True, 9, 9)
    stats = mesh.ask("/stats")
    assert (stats["connected"], stats["configured"], stats["nacks"]) == (9, 9, 0)
    assert stats["bytes_pushed"] > 0

    # Round robin over both hops: every replica gets its share, and nothing fails.
    assert load(f"http://{address('loadgen', 0)}:15001/", 90) == {"200": 90}
    for role in ("client", "server"):
        shares = [mesh.counter(role, r, "http.inbound.downstream_rq_2xx") for r in range(REPLICAS)]
        # one more than was counted: fortio's first request of each connection is a trial
        assert 90 <= sum(shares) <= 92
        assert min(shares) >= 25

    target = (address("server", 0), 15006)
    assert wire.speak_h2(*target, mesh.identities["client"]).accepted  # the caller
    assert not wire.speak_h2(*target, mesh.identities["loadgen"]).accepted  # a member, but not the caller
    assert mesh.counter("server", 0, f"listener.{target[0]}_15006.ssl.fail_verify_san") >= 1
    with socket.create_connection(target, timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in plain.recv(100)


def test_an_added_endpoint_reaches_all_and_takes_traffic(mesh: Mesh) -> None:
    mesh.ask("/converged?version=1&wait=60s")
    late = node("server", REPLICAS) | {"application": f"{address('server', 0)}:8080"}
    # First only known, so that nothing fails while its sidecar starts; then in use.
    added = mesh.ask("/endpoints", "POST", late | {"no_traffic": True})
    concerned = 9 if mesh.ask("/stats")["scope"] == "full" else REPLICAS
    assert (added["version"], added["awaited"], added["endpoints"]) == (2, concerned, REPLICAS + 1)
    pushed = mesh.ask("/converged?version=2&wait=30s")
    assert pushed["converged"]
    assert 0 < pushed["first_s"] <= pushed["median_s"] <= pushed["converged_s"]
    assert load(f"http://{address('loadgen', 0)}:15001/", 20) == {"200": 20}

    assert mesh.ask("/endpoints?id=" + late["id"], "DELETE")["endpoints"] == REPLICAS
    mesh.ask("/endpoints", "POST", late)
    (mesh.folder / "bootstraps" / f"{late['id']}.json").write_text(
        json.dumps(mesh.ask(f"/bootstrap?node={late['id']}"))
    )
    mesh.start_envoy(late["id"])
    assert mesh.ask("/converged?version=4&wait=30s")["converged"]
    wait_for(lambda: not sockets.silent([(address("server", REPLICAS), 15006)]), PATIENCE_S)
    assert load(f"http://{address('loadgen', 0)}:15001/", 60) == {"200": 60}
    assert mesh.counter("server", REPLICAS, "http.inbound.downstream_rq_2xx") >= 10
