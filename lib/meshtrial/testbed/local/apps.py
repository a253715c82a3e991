"""The applications behind the data plane: their commands, request paths, protocols and versions."""

import functools
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshtrial import native
from meshtrial.design.load import Load
from meshtrial.design.settings import STREAMED
from meshtrial.design.study import is_system
from meshtrial.errors import MissingToolError, UsageError

_DETAILS = Path(__file__).with_name("details") / "details.rb"


@dataclass(frozen=True)
class App:
    """How an application is started and called."""

    name: str
    command: Callable[[str, int, int], tuple[str, ...]]  # (address, http_port, grpc_port) -> argv
    path: str  # that the generators request
    versions: Callable[[], Mapping[str, str]]  # of its programs, by name; raises MissingToolError if one is missing
    protocols: tuple[str, ...] = ("http1",)
    threads_end: bool = False  # True if its threads come and go: CPU is then read from the process-wide counter
    grpc_path: str = ""  # the gRPC method that the generators call; empty if it does not speak gRPC
    patient: tuple[str, ...] = ()  # arguments with which it keeps idle connections open for longer than a run
    tcp_command: Callable[[str, int], tuple[str, ...]] | None = None  # starts a TCP echo, if it has one

    def require(self, load: Load) -> None:
        """Raise UsageError, with the applications that can, if it does not speak the load's protocol."""
        if not set(load.protocols) <= set(self.protocols):
            able = ", ".join(one.name for one in APPS.values() if set(load.protocols) <= set(one.protocols))
            speaks = ", ".join(self.protocols)
            raise UsageError(f"protocol = {load.protocol!r}: the app {self.name} speaks {speaks}; use app = {able}")


def fortio_server(address: str, http_port: int, grpc_port: int = 0) -> tuple[str, ...]:
    """Command of fortio's echo server: HTTP, gRPC if it gets a port, and every other listener switched off."""
    ports = dict.fromkeys(("http", "grpc", "tcp", "udp", "redirect"), "disabled")
    ports |= {kind: f"{address}:{port}" for kind, port in (("http", http_port), ("grpc", grpc_port)) if port}
    listens = (part for kind, at in ports.items() for part in (f"-{kind}-port", at))
    return (str(native.find("fortio")), "server", *listens, "-quiet")


def _tcp_echo(address: str, port: int) -> tuple[str, ...]:
    return (str(native.find("fortio")), "tcp-echo", "-tcp-port", f"{address}:{port}", "-quiet")


def _events(address: str, http_port: int, grpc_port: int) -> tuple[str, ...]:
    listens = ("-listen", f"{address}:{http_port}", "-grpc", f"{address}:{grpc_port}")
    return (str(native.find("event-streams")), "serve", *listens)


def _counter(address: str, http_port: int, _: int) -> tuple[str, ...]:
    return (str(native.find("counter-api")), "-listen", f"{address}:{http_port}")


def _details(address: str, http_port: int, _: int) -> tuple[str, ...]:
    return (_ruby()[0], str(_DETAILS), f"--listen={address}:{http_port}")


def _details_nodelay(address: str, http_port: int, _: int) -> tuple[str, ...]:
    return (*_details(address, http_port, 0), "--nodelay")


@functools.cache
def _ruby() -> tuple[str, str]:
    """Path of a Ruby interpreter with WEBrick, and the versions of both."""
    path = shutil.which("ruby")
    hint = "install it (Debian, Ubuntu: apt install ruby ruby-webrick) or leave the details apps out"
    if path is None:
        raise MissingToolError(f"the app 'details' needs ruby, which is not on PATH; {hint}")
    command = [path, "-e", 'require "webrick"; print RUBY_VERSION, " webrick ", WEBrick::VERSION']
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        raise MissingToolError(f"the app 'details' needs the webrick gem, which {path} does not have; {hint}") from None
    return path, completed.stdout


def _native(name: str) -> Callable[[], Mapping[str, str]]:
    return lambda: {name: native.version(name)}


def _ruby_versions() -> Mapping[str, str]:
    return {"ruby": _ruby()[1]}


APPS: dict[str, App] = {
    app.name: app
    for app in (
        App(
            *("echo", fortio_server, "/echo", _native("fortio"), ("http1", "h2", "grpc", "tcp")),
            grpc_path="/fgrpc.PingServer/Ping",
            patient=("-server-idle-timeout", "24h"),
            tcp_command=_tcp_echo,
        ),
        App(
            *("event-streams", _events, "/events", _native("event-streams"), STREAMED),
            grpc_path="/meshtrial.Streams/Events",
        ),
        App("counter-api", _counter, "/counter", _native("counter-api"), ("http1", "h2")),
        App("details", _details, "/details/0", _ruby_versions, threads_end=True),
        App("details-nodelay", _details_nodelay, "/details/0", _ruby_versions, threads_end=True),
        App("tiers", fortio_server, "/", _native("fortio")),  # deployed as three tiers: see tiers.py
    )
}


def app(name: str) -> App:
    """Return the application of this name; UsageError if there is none."""
    if is_system(name):  # see systems.py
        return App(name, fortio_server, "/", _native("call-tree"))
    if name not in APPS:
        raise UsageError(f"app = {name!r}: must be {', '.join(APPS)}")
    return APPS[name]
