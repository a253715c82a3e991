"""Real fortio on a loopback address: one server per session, and generators in pairs."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.testbed.local import apps
from meshtrial.testbed.local.deployment import run_generators
from meshtrial.testbed.local.processes import Child
from meshtrial.testbed.local.sockets import free_ports, wait_listening

Generate = Callable[..., tuple[GeneratorOutput, ...]]


@dataclass(frozen=True)
class Server:
    http: str
    grpc: str
    refused: str


@pytest.fixture(scope="session")
def fortio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    address = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(254) + 1}.1"
    ports = free_ports(address, 3)
    http, grpc, refused = (f"{address}:{port}" for port in ports)
    folder = tmp_path_factory.mktemp("server")
    command = (*apps.fortio_server(address, *ports[:2]), "-data-dir", str(folder))
    child = Child("fortio server", command, folder / "server.log")
    try:
        wait_listening(child, [(address, port) for port in ports[:2]])
        yield Server(f"http://{http}/echo", grpc, f"http://{refused}/")
    finally:
        child.stop()


@pytest.fixture
def generate(tmp_path: Path) -> Generate:
    """Make calls at the same moment, as a testbed does."""

    def generate(calls: Sequence[GeneratorCall], target: str, timeout_s: float = 60) -> tuple[GeneratorOutput, ...]:
        return run_generators(calls, Target(target), tmp_path, timeout_s)

    return generate
