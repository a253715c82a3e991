"""One fresh deployment on this machine: its specification, the started data plane, its proofs and its load."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from meshtrial import native, waiting
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.design.system import System
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load import fortio
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target, publishable
from meshtrial.load.propagation import ChangeTime
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local.apps import App
from meshtrial.testbed.local.fleet import Fleet, host_port, numbered
from meshtrial.testbed.local.processes import Child, stop_all
from meshtrial.testbed.local.sockets import Endpoint, free_ports
from meshtrial.testbed.local.versions import Version

DELAY = "delay-"  # begins the feature that adds a known delay, such as `delay-200us`
IDLE = "idle connections"
_OPEN_S = 60.0  # within which all of them must be open
# Called with the phase, "before" or "after" the load, and the requests that were sent since "before".
Prover = Callable[[str, int], Sequence[Proof]]


@dataclass(frozen=True)
class Spec:
    """Specification of a deployment."""

    treatment: Treatment
    load: Load
    app: App
    options: Mapping[str, Any] = field(default_factory=dict)  # the study's parameters
    version: Version | None = None  # of the proxies; None for the default Envoy
    system: System | None = None  # what the application is, if it is a generated system

    @property
    def delay_us(self) -> int:
        """The known delay that the treatment's features add, in microseconds; 0 if none."""
        added = (name for name in self.treatment.features if name.startswith(DELAY))
        return next((int(name.removeprefix(DELAY).removesuffix("us")) for name in added), 0)

    def start_app(self, fleet: Fleet, copy: int = 0, more: Sequence[str] = ()) -> tuple[Endpoint, ...]:
        """Start one copy of the application, numbered from 0; return its endpoint for each protocol of the load."""
        fleet.versions.update(self.app.versions())
        address = fleet.new_address()
        http_port, grpc_port = free_ports(address, 2)
        endpoints = tuple((address, grpc_port if p.startswith("grpc") else http_port) for p in self.load.protocols)
        argv = self.app.command(address, http_port, grpc_port)
        if self.load.echoes and self.app.tcp_command is not None:
            argv = self.app.tcp_command(address, http_port)
        argv = (*argv, *(self.app.patient if self.load.idle_connections else ()), *more)
        fleet.start(numbered("app", copy), "app", argv, endpoints, threads_end=self.app.threads_end)
        return endpoints

    def start_apps(self, fleet: Fleet) -> tuple[tuple[Endpoint, ...], ...]:
        """Start every copy; return the endpoints of each."""
        return tuple(self.start_app(fleet, copy) for copy in range(self.load.replicas))

    def target(
        self,
        entries: Sequence[Endpoint],
        headers: Sequence[tuple[str, str]] = (),
        copies: Sequence[Sequence[Endpoint]] = (),
    ) -> Target:
        """Return the target of the generators: one entry for each protocol (or one for all), and further copies."""
        grpc = host_port(entries[-1]) if self.load.protocol == "mixed" else ""
        first, *others = (self._url(endpoints) for endpoints in (entries, *copies))
        # The generator of streams asks for the size itself.
        size = 0 if self.load.streams else self.load.response_bytes
        return Target(first, tuple(headers), grpc, tuple(others)).asking(size)

    def _url(self, entries: Sequence[Endpoint]) -> str:
        if self.load.only_grpc:
            return host_port(entries[-1])
        if self.load.echoes:
            return f"tcp://{host_port(entries[0])}"
        return f"http://{host_port(entries[0])}{self.app.path}"


def _unchangeable(*_: object) -> NoReturn:
    raise TestbedError("this data plane supports no changes under load")


@dataclass(frozen=True)
class Started:
    """A data plane whose processes serve."""

    target: Target
    provers: Sequence[Prover]
    changes: tuple[str, ...] = ()  # those of `design.changes` that `change` makes (True) or reverts (False)
    change: Callable[[str, bool], ChangeTime] = _unchangeable
    background_change: Callable[[int], object] = _unchangeable  # makes a change that no request meets
    facts: Callable[[], Facts] = Facts  # called after the load


class LocalDeployment(Fleet):
    """The deployment of one run, built by ``start``. If that fails, all processes are stopped.

    The error then carries the output of the components as evidence.
    """

    def __init__(self, spec: Spec, start: Callable[[Spec, Fleet], Started]) -> None:
        super().__init__(spec.version)
        self.spec = spec
        self._trickle: Child | None = None
        try:
            self._started = start(spec, self)
            self._provers = [*self._started.provers, *self._open_idle()]
        except BaseException as error:
            if isinstance(error, MeshtrialError):
                error.evidence = {**self.last_log_lines(), **error.evidence}
            self.close()
            raise

    def _open_idle(self) -> list[Prover]:
        """Open the load's idle connections, which a silent load generator keeps; return the proof that they are open.

        It counts as load generator, and ends with the deployment.
        """
        call, number = fortio.idle(self.spec.load), self.spec.load.idle_connections
        if call is None:
            return []
        self.note_version(call.program)
        parts = urlsplit(self.target.url if "//" in self.target.url else f"//{self.target.url}")
        at = str(parts.hostname), int(parts.port or 0)
        holder = self.start(IDLE, "load generator", command(call, self.target), [])
        if not waiting.until(lambda: self.connections_at(at) >= number or not holder.alive(), _OPEN_S, 0.05):
            raise TestbedError(
                f"{IDLE}: {self.connections_at(at)} of {number} were open after {_OPEN_S:g} s; raise the limit of open "
                f"files (ulimit -n), or hold fewer: {holder.tail()}"
            )

        def prove(phase: str, _: int) -> list[Proof]:
            held = self.connections_at(at)
            return [Proof(IDLE, phase, held >= number, f"at least {number} open", f"{held} open")]

        return [prove]

    @property
    def target(self) -> Target:
        """The addresses that the generators call."""
        return self._started.target

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Run every proof of the data plane; if a component has ended, return only that as the failed proof."""
        if ended := self.ended(phase):
            return ended
        try:
            proofs = [proof for prover in self._provers for proof in prover(phase, requests)]
        except TestbedError:
            if ended := self.ended(phase):
                return ended
            raise
        return (*proofs, *self.prove_versions(phase), *self.ended(phase), *self.paused(phase))

    def changes(self) -> tuple[str, ...]:
        """Names of the changes that its data plane supports under load."""
        return self._started.changes

    def change(self, change: str, on: bool) -> ChangeTime:
        """Make a change to the data plane, or revert it."""
        return self._started.change(change, on)

    def churn(self, number: int) -> None:
        """Make a background change, which no request meets."""
        self._started.background_change(number)

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Run the load generators and return their outputs; see :func:`run_generators`."""
        for program in dict.fromkeys(call.program for call in calls):
            self.note_version(program)
        return run_generators(calls, self.target, folder, timeout_s)

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """Stop the running background call, and start this one if it is not None."""
        if self._trickle is not None:
            self._trickle.stop(grace_s=0.2)
            self._trickle = None
        if call is not None:
            argv = command(call, self.target)
            self._trickle = Child(call.name, argv, self.folder / f"{call.name}.txt", self.folder)

    def facts(self) -> Facts:
        """Return the data plane's facts; empty if a process has ended, which the proofs then report."""
        return Facts() if self.ended("after") else self._started.facts()

    def close(self) -> None:
        """Stop every process and remove the folder."""
        try:
            self.keep_warm(None)
        finally:
            super().close()


def command(call: GeneratorCall, target: Target) -> tuple[str, ...]:
    """Return the command of a load generator whose results are discarded."""
    return (str(native.find(call.program)), "load", *call.arguments, *target.arguments(call))


def run_generators(
    calls: Sequence[GeneratorCall], target: Target, folder: Path, timeout_s: float
) -> tuple[GeneratorOutput, ...]:
    """Run the generators side by side and wait for all of them; TestbedError if one has no result in time.

    ``folder`` gets ``<name>.json``, ``<name>.log`` (access log) and ``<name>.txt`` of every call.
    """
    children: list[Child] = []
    started = time.monotonic()
    try:
        for call in calls:
            # Run inside the folder, so that fortio's files, which become the record, contain no path of this machine.
            argv = (
                *(str(native.find(call.program)), "load", *call.arguments),
                *("-json", f"{call.name}.json", "-access-log-file", f"{call.name}.log", "-access-log-format", "json"),
                *target.arguments(call),
            )
            children.append(Child("load generator", argv, folder / f"{call.name}.txt", folder))
        return tuple(
            _collect(call.name, child, started, timeout_s) for call, child in zip(calls, children, strict=True)
        )
    finally:
        stop_all(children)


def _collect(name: str, child: Child, started: float, timeout_s: float) -> GeneratorOutput:
    json_path, log = (child.log.with_name(f"{name}{ending}") for ending in (".json", ".log"))
    code, cpu_s, switches = child.reap(max(0.1, started + timeout_s - time.monotonic()))
    if code is None:
        raise TestbedError(f"load generator {name}: did not end within {timeout_s:g} s; {child.tail()}")
    if child.was_paused:
        raise TestbedError(f"load generator {name}: a signal suspended it, so it measured its own pause; run it again")
    if code != 0 or not json_path.exists():
        raise TestbedError(f"load generator {name}: ended with code {code}: {child.tail()}")
    usage = ComponentUsage(name, "load generator", time.monotonic() - started, cpu_s, None, count=1, switches=switches)
    argv = publishable(child.argv)
    return GeneratorOutput(name, argv, code, json_path, log, child.output(), usage)
