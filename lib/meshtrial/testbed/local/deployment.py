"""One fresh deployment on this machine: what it is to be, what its data plane started, and its proofs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from meshtrial import native
from meshtrial.design.load import Load
from meshtrial.design.study import Treatment
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.load.obeyed import ChangeTime
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local.apps import App
from meshtrial.testbed.local.fleet import Fleet, host_port, numbered
from meshtrial.testbed.local.generator import run_generators
from meshtrial.testbed.local.processes import Child
from meshtrial.testbed.local.sockets import Endpoint, free_ports
from meshtrial.testbed.local.versions import Version

# Called with the phase, "before" or "after" the load, and the requests that were sent since "before".
Prover = Callable[[str, int], Sequence[Proof]]


@dataclass(frozen=True)
class Spec:
    """What a deployment is to be."""

    treatment: Treatment
    load: Load
    app: App
    options: Mapping[str, Any] = field(default_factory=dict)  # the study's parameters
    version: Version | None = None  # of the proxies; None for the usual Envoy

    def start_app(self, fleet: Fleet, copy: int = 0, more: Sequence[str] = ()) -> tuple[Endpoint, ...]:
        """Start one copy of the application, counted from 0, with more arguments; the endpoint of each protocol."""
        fleet.versions.update(self.app.versions())
        address = fleet.new_address()
        http_port, grpc_port = free_ports(address, 2)
        endpoints = tuple((address, grpc_port if p == "grpc" else http_port) for p in self.load.protocols)
        argv = self.app.command(address, http_port, grpc_port)
        if self.load.echoes and self.app.tcp_command is not None:
            argv = self.app.tcp_command(address, http_port)
        fleet.start(numbered("app", copy), "app", (*argv, *more), endpoints, threads_end=self.app.threads_end)
        return endpoints

    def start_apps(self, fleet: Fleet) -> tuple[tuple[Endpoint, ...], ...]:
        """Start every copy; the endpoints of each."""
        return tuple(self.start_app(fleet, copy) for copy in range(self.load.replicas))

    def target(
        self,
        entries: Sequence[Endpoint],
        headers: Sequence[tuple[str, str]] = (),
        copies: Sequence[Sequence[Endpoint]] = (),
    ) -> Target:
        """What the generators call: one entry for each protocol, or one that takes them all; and further copies."""
        grpc = host_port(entries[-1]) if self.load.protocol == "mixed" else ""
        first, *others = (self._url(of) for of in (entries, *copies))
        return Target(first, tuple(headers), grpc, tuple(others)).asking(self.load.response_bytes)

    def _url(self, entries: Sequence[Endpoint]) -> str:
        if self.load.protocols == ("grpc",):
            return host_port(entries[-1])
        if self.load.echoes:
            return f"tcp://{host_port(entries[0])}"
        return f"http://{host_port(entries[0])}{self.app.path}"


class Changer(Protocol):
    """What a data plane changes under load; see :class:`meshtrial.testbed.base.Deployment`."""

    def changes(self) -> tuple[str, ...]:
        """What it has."""

    def change(self, change: str, on: bool) -> ChangeTime:
        """Change it away from how it was deployed, or back."""

    def churn(self, number: int) -> None:
        """Change something that no request meets."""


@dataclass(frozen=True)
class Started:
    """A data plane whose processes serve: what is called, how it is proven, what can be changed, what it tells."""

    target: Target
    provers: Sequence[Prover]
    changer: Changer | None = None
    facts: Callable[[], Facts] = Facts  # asked when the load is over


class LocalDeployment:
    """What one run stands on. ``start`` starts its data plane; on failure nothing is left.

    The error then carries what its components wrote.
    """

    def __init__(self, spec: Spec, start: Callable[[Spec, Fleet], Started]) -> None:
        self.spec = spec
        self.fleet = Fleet(spec.version)
        self._trickle: Child | None = None
        try:
            self.started = start(spec, self.fleet)
        except BaseException as error:
            if isinstance(error, MeshtrialError):
                error.evidence = {**self.fleet.last_log_lines(), **error.evidence}
            self.close()
            raise

    @property
    def target(self) -> Target:
        """What the generators call."""
        return self.started.target

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of everything that takes part, by name."""
        return self.fleet.versions

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Run every proof of the data plane; where a component has ended, that alone is the reason."""
        if ended := self.fleet.ended(phase):
            return ended
        try:
            proofs = [proof for prover in self.started.provers for proof in prover(phase, requests)]
        except TestbedError:
            if ended := self.fleet.ended(phase):
                return ended
            raise
        fleet = self.fleet
        return (*proofs, *fleet.prove_versions(phase), *fleet.ended(phase), *fleet.paused(phase))

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Cumulative counters of every component."""
        return self.fleet.snapshot()

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """CPU seconds so far and resident bytes of every component."""
        return self.fleet.sample()

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Stop the processes of a part and start them again at the same addresses, one after another."""
        return self.fleet.restart(part)

    def changes(self) -> tuple[str, ...]:
        """What its data plane can change under load."""
        return () if self.started.changer is None else self.started.changer.changes()

    def change(self, change: str, on: bool) -> ChangeTime:
        """Change it away from how it was deployed, or back."""
        return self._changer.change(change, on)

    def churn(self, number: int) -> None:
        """Change something that no request meets."""
        self._changer.churn(number)

    @property
    def _changer(self) -> Changer:
        if self.started.changer is None:
            raise TestbedError(f"treatment {self.spec.treatment.name}: there is nothing to change under load")
        return self.started.changer

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Run the load generators to their end."""
        self.fleet.note_version("fortio")
        return run_generators(calls, self.target, folder, timeout_s)

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """End the call that goes on, and begin this one."""
        if self._trickle is not None:
            self._trickle.stop(grace_s=0.2)
            self._trickle = None
        if call is not None:
            argv = (str(native.find("fortio")), "load", *call.arguments, *self.target.arguments(call))
            self._trickle = Child(call.name, argv, self.fleet.folder / f"{call.name}.txt", self.fleet.folder)

    def facts(self) -> Facts:
        """What its data plane tells; nothing where a process has ended, of which the proofs tell."""
        return Facts() if self.fleet.ended("after") else self.started.facts()

    def collect_logs(self, folder: Path) -> None:
        """Copy the components' logs."""
        self.fleet.collect_logs(folder)

    def close(self) -> None:
        """Stop every process and remove the folder."""
        try:
            self.keep_warm(None)
        finally:
            self.fleet.close()
