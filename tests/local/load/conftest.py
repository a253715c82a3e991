"""Real fortio on a loopback address of its own: a server for the session, and generators in pairs."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from meshtrial import native
from meshtrial.load.generators import GeneratorCall, GeneratorOutput
from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.local.processes import free_ports

Generate = Callable[..., tuple[GeneratorOutput, ...]]


@dataclass(frozen=True)
class Server:
    http: str
    grpc: str
    refused: str


@pytest.fixture(scope="session")
def fortio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    address = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(254) + 1}.1"
    http, grpc, refused = (f"{address}:{port}" for port in free_ports(address, 3))
    off = "disabled"
    command = [str(native.find("fortio")), "server", "-http-port", http, "-grpc-port", grpc]
    command += ["-redirect-port", off, "-tcp-port", off, "-udp-port", off, "-quiet"]
    command += ["-data-dir", str(tmp_path_factory.mktemp("server"))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            _wait_for(http, child)
            _wait_for(grpc, child)
            yield Server(f"http://{http}/echo", grpc, f"http://{refused}/")
        finally:
            child.terminate()
            child.wait(10)


@pytest.fixture
def generate(tmp_path: Path) -> Generate:
    """Make calls at the same moment, as a testbed does."""

    def generate(calls: Sequence[GeneratorCall], target: str, timeout_s: float = 60) -> tuple[GeneratorOutput, ...]:
        outputs, children = [], []
        try:
            for call in calls:
                json_path, log = tmp_path / f"{call.name}.json", tmp_path / f"{call.name}.log"
                argv = (str(native.find("fortio")), "load", *call.arguments)
                argv += ("-json", str(json_path), "-access-log-file", str(log), target)
                children.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                outputs.append((call.name, argv, json_path, log))
            texts = [child.communicate(timeout=timeout_s)[1] for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
        usage = ComponentUsage("generator", "load generator", 1.0, 0.0, None)
        return tuple(
            GeneratorOutput(name, argv, child.returncode, json_path, log, text, usage)
            for (name, argv, json_path, log), child, text in zip(outputs, children, texts, strict=True)
        )

    return generate


def _wait_for(host_port: str, child: subprocess.Popen[bytes]) -> None:
    host, _, port = host_port.rpartition(":")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert child.poll() is None, f"the server ended with {child.returncode}"
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"{host_port} does not answer")
