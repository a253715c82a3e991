"""One fresh deployment on this machine: its folder, its addresses, its children, its proofs."""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from meshtrial import native
from meshtrial.design.study import Load, Treatment
from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.errors import MeshtrialError, TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput, Target
from meshtrial.load.obeyed import Taken
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.temporary import PrivateFolder
from meshtrial.testbed.base import Facts
from meshtrial.testbed.local import apps, proc
from meshtrial.testbed.local.generator import run_generators
from meshtrial.testbed.local.processes import Child, stop_all
from meshtrial.testbed.local.sockets import Endpoint, free_ports, wait_listening
from meshtrial.testbed.local.versions import Version, merged

# What a restart of a part means here.
RESTARTED_ROLES = {"app": "app", "proxies": "data plane"}
# Beside the logs of what did not come up, or ended early.
_STATES = "failed-components.txt"
_LONGEST_LOG = 1 << 20  # characters
Prover = Callable[[str, int], Sequence[Proof]]


class Changer(Protocol):
    """What a data plane changes under load; see :class:`meshtrial.testbed.base.Deployment`."""

    def changes(self) -> tuple[str, ...]:
        """What it has."""

    def change(self, change: str, on: bool) -> Taken:
        """Change it away from how it was deployed, or back."""

    def churn(self, number: int) -> None:
        """Change something that no request meets."""


@dataclasses.dataclass(frozen=True)
class Component:
    """A process that is watched, and what it takes to start it again at the same addresses."""

    child: Child
    watched: proc.Watched
    listens: tuple[Endpoint, ...]
    proxy: Proxy | None = None


def numbered(name: str, copy: int) -> str:
    """The name of a component of which there may be several: ``app``, ``app 2``."""
    return f"{name} {copy + 1}" if copy else name


class LocalDeployment:
    """What one run stands on. Data planes and features add their parts to it; ``close`` removes them all.

    ``app`` is taken unless the treatment carries one of its own; ``options`` are the study's parameters, for features
    that have some; without a ``version`` it is the usual Envoy.
    """

    def __init__(
        self,
        treatment: Treatment,
        load: Load,
        app: str,
        options: Mapping[str, Any] | None = None,
        version: Version | None = None,
    ) -> None:
        self.treatment = treatment
        self.load = load
        self.options = options or {}
        self.app = apps.app(treatment.app or app)
        self.version = version
        self._private = PrivateFolder("meshtrial-run-")  # bootstraps, keys, logs
        self.folder = self._private.path
        self.target = Target("")
        self.versions: dict[str, str] = {}
        self.provers: list[Prover] = []
        self.told = Facts()
        self.changer: Changer | None = None
        self.closers: list[Callable[[], None]] = []
        # All that have been started: also one that never came to serve, and those that nobody watches.
        self.children: list[Child] = []
        self._components: list[Component] = []
        # A loopback network of its own (127.x.y.0/24), so that two deployments never meet on a port.
        self._network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(254) + 1}"
        self._hosts = 0
        self._trickle: Child | None = None

    def stand_up(self, build: Callable[[Self], None]) -> None:
        """Build it of its parts; on failure nothing of it is left, and the error carries what its components wrote."""
        try:
            build(self)
        except BaseException as error:
            if isinstance(error, MeshtrialError):
                error.evidence = {**self._last_words(), **error.evidence}
            self.close()
            raise

    def _last_words(self) -> dict[str, str]:
        """File name to text: what became of every component, and the end of its output."""
        texts = {_STATES: self._states()} if self.children else {}
        for child in self.children:
            if text := child.said():
                texts[f"failed-{child.log.name}"] = text[-_LONGEST_LOG:]
        return texts

    def _states(self) -> str:
        return "".join(f"{child.name}: {child.state()}\n" for child in self.children)

    def new_address(self) -> str:
        """Another loopback address that nothing else of this deployment uses."""
        self._hosts += 1
        return f"{self._network}.{self._hosts}"

    def new_endpoint(self) -> Endpoint:
        """A fresh address with a free port."""
        address = self.new_address()
        (port,) = free_ports(address)
        return address, port

    def spawn(
        self,
        name: str,
        role: str,
        argv: Sequence[str],
        listens: Sequence[Endpoint],
        *,
        threads_end: bool = False,
        proxy: Proxy | None = None,
    ) -> Child:
        """Start a component and wait until it listens; it is watched and stopped with the deployment."""
        child = Child(name, argv, self.folder / f"{name.replace(' ', '-')}.log", self.folder)
        self.children.append(child)
        wait_listening(child, listens)
        watched = proc.Watched(name, role, (child.pid,), threads_end)
        self._components.append(Component(child, watched, tuple(listens), proxy))
        return child

    def spawn_proxy(self, proxy: Proxy, role: str = "data plane") -> Child:
        """Start an Envoy with its bootstrap."""
        envoy = self._versioned(proxy) or native.find("envoy")
        argv = proxy.command(envoy, self.folder)
        listens = [proxy.admin]
        for made in proxy.listeners:
            where = made["address"]["socket_address"]
            listens.append((where["address"], where["port_value"]))
        return self.spawn(proxy.name, role, argv, listens, proxy=proxy)

    def _versioned(self, proxy: Proxy) -> Path | None:
        """Make a proxy the treatment's version; its program, None for the usual one."""
        version = self.version
        if version is None or version.envoy is None:
            self.note_version("envoy")
        if version is None:
            return None
        self.versions[f"version {version.name}"] = version.described()
        proxy.flags = (*proxy.flags, *map(str, version.flags))
        proxy.changed = functools.partial(merged, change=version.bootstrap)
        self.provers.append(lambda phase, _: [version.prove(self.child(proxy.name).pid, proxy.name, phase)])
        return version.envoy

    @property
    def http_filters(self) -> list[Json]:
        """Filters that the treatment's version adds to the server's sidecar."""
        return list(self.version.http_filters) if self.version else []

    def spawn_app(self, copy: int = 0, more: Sequence[str] = ()) -> tuple[Endpoint, ...]:
        """Start one copy of the application, counted from 0, with more arguments; the endpoint of each protocol."""
        self.versions.update(self.app.versions())
        address = self.new_address()
        http_port, grpc_port = free_ports(address, 2)
        endpoints = tuple((address, grpc_port if p == "grpc" else http_port) for p in self.load.protocols)
        argv = self.app.command(address, http_port, grpc_port)
        if self.load.echoes and self.app.tcp_command is not None:
            argv = self.app.tcp_command(address, http_port)
        self.spawn(numbered("app", copy), "app", (*argv, *more), endpoints, threads_end=self.app.threads_end)
        return endpoints

    def spawn_apps(self) -> tuple[tuple[Endpoint, ...], ...]:
        """Start every copy; the endpoints of each."""
        return tuple(self.spawn_app(copy) for copy in range(self.load.replicas))

    def set_target(
        self,
        entries: Sequence[Endpoint],
        headers: tuple[tuple[str, str], ...] = (),
        copies: Sequence[Sequence[Endpoint]] = (),
    ) -> None:
        """Say what the generators call: one entry for each protocol, or one that takes them all; and further copies."""
        grpc = "{}:{}".format(*entries[-1])
        first, *others = (self._url(of) for of in (entries, *copies))
        target = Target(first, headers, grpc if self.load.protocol == "mixed" else "", tuple(others))
        self.target = target.asking(self.load.response_bytes)

    def _url(self, entries: Sequence[Endpoint]) -> str:
        if self.load.protocols == ("grpc",):
            return "{}:{}".format(*entries[-1])
        if self.load.echoes:
            return "tcp://{}:{}".format(*entries[0])
        return "http://{}:{}{}".format(*entries[0], self.app.path)

    def note_version(self, binary: str) -> None:
        """Record the version of a binary that takes part."""
        if binary not in self.versions:
            self.versions[binary] = native.version(binary)

    def child(self, name: str) -> Child:
        """A component's process."""
        return next(child for child in self.children if child.name == name)

    @property
    def watched(self) -> Sequence[proc.Watched]:
        """The components whose usage is read, each with its processes."""
        return tuple(component.watched for component in self._components)

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        """Run every proof of the data plane and its features; where a component has ended, that alone is the reason."""
        if ended := self._ended(phase):
            return ended
        try:
            proofs = tuple(proof for prover in self.provers for proof in prover(phase, requests))
        except TestbedError:
            if ended := self._ended(phase):
                return ended
            raise
        return (*proofs, *self._ended(phase), *self._paused(phase))

    def _ended(self, phase: str) -> tuple[Proof, ...]:
        return tuple(
            Proof(f"{child.name} alive", phase, False, "running", f"{child.state()}: {child.why()}")
            for child in self.children
            if not child.alive()
        )

    def _paused(self, phase: str) -> tuple[Proof, ...]:
        """What somebody stopped for a while was slow for a reason that is not the treatment."""
        seen = "stopped and continued by a signal"
        return tuple(
            Proof(f"{child.name} ran on", phase, False, "never stopped", seen)
            for child in self.children
            if child.paused()
        )

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Cumulative counters of every component."""
        return {watched.component: proc.with_memory(proc.counters(watched), watched.pids) for watched in self.watched}

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """CPU seconds so far and resident bytes of every component."""
        samples = {}
        for watched in self.watched:
            cpu_s, memory_bytes = proc.sample(watched.pids)
            samples[watched.component] = (watched.ended_cpu_s + cpu_s, memory_bytes)
        return samples

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Stop the processes of a part and start them again at the same addresses, one after another.

        TestbedError when the part has no process here, or one does not come back.
        """
        role = RESTARTED_ROLES.get(part)
        which = [number for number, component in enumerate(self._components) if component.watched.role == role]
        if not which:
            raise TestbedError(f"treatment {self.treatment.name}: there is no process of {part} to restart")
        return tuple(map(self._again, which))

    def _again(self, number: int) -> Proof:
        component = self._components[number]
        old, before = component.child, component.watched
        cpu_s, switches = old.end()
        new = self.children[self.children.index(old)] = old.again()
        watched = dataclasses.replace(
            before,
            pids=(new.pid,),
            ended_cpu_s=before.ended_cpu_s + cpu_s,
            ended_switches=before.ended_switches + switches,
        )
        self._components[number] = dataclasses.replace(component, child=new, watched=watched)
        if component.proxy is not None:
            component.proxy.starts += 1
        wait_listening(new, component.listens)
        seen = f"process {old.pid} ended, {new.pid} listens"
        return Proof(f"{old.name} restarted", "during", not old.alive() and new.alive(), "another process", seen)

    def changes(self) -> tuple[str, ...]:
        """What its data plane can change under load."""
        return () if self.changer is None else self.changer.changes()

    def change(self, change: str, on: bool) -> Taken:
        """Change it away from how it was deployed, or back."""
        return self._changer.change(change, on)

    def churn(self, number: int) -> None:
        """Change something that no request meets."""
        self._changer.churn(number)

    @property
    def _changer(self) -> Changer:
        if self.changer is None:
            raise TestbedError(f"treatment {self.treatment.name}: there is nothing that could be changed under load")
        return self.changer

    def generate(self, calls: Sequence[GeneratorCall], folder: Path, timeout_s: float) -> tuple[GeneratorOutput, ...]:
        """Run the load generators to their end."""
        self.note_version("fortio")
        return run_generators(calls, self.target, folder, timeout_s)

    def keep_warm(self, call: GeneratorCall | None) -> None:
        """End the call that goes on, and begin this one."""
        if self._trickle is not None:
            self._trickle.stop(grace_s=0.2)
            self._trickle = None
        if call is not None:
            argv = (str(native.find("fortio")), "load", *call.arguments, *self.target.arguments(call))
            self._trickle = Child(call.name, argv, self.folder / f"{call.name}.txt", self.folder)

    def facts(self) -> Facts:
        """What the parts told."""
        return self.told

    def collect_logs(self, folder: Path) -> None:
        """Copy the components' logs; keys and bootstraps stay behind and are removed.

        Where one has ended, what became of each is written beside them.
        """
        if not all(child.alive() for child in self.children):
            (folder / _STATES).write_text(self._states())
        for child in self.children:
            if text := child.said():
                (folder / child.log.name).write_text(text)

    def close(self) -> None:
        """Stop every child and remove the folder."""
        try:
            for closer in reversed(self.closers):
                closer()
        finally:
            self.keep_warm(None)
            # Proxies first in the list stop together with the app: one grace period for all.
            stop_all(self.children)
            self._private.close()
