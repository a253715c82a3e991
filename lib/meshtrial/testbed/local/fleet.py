"""The processes of one deployment: started, watched, restarted and stopped together, in a folder of their own.

Whatever a local treatment consists of is started here, one process at a time or hundreds of sidecars at once. How a
treatment is put together is said by its data plane (:mod:`meshtrial.testbed.local.dataplanes`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from meshtrial import native, waiting
from meshtrial.envoy import bootstrap as envoy
from meshtrial.envoy.bootstrap import Proxy
from meshtrial.errors import TestbedError
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.temporary import PrivateFolder
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.processes import Child, stop_all
from meshtrial.testbed.local.sockets import Endpoint, free_ports, wait_listening
from meshtrial.testbed.local.versions import Version, merged

# What a restart of a part means here.
RESTARTED_ROLES = {"app": "app", "proxies": "data plane"}
LAUNCHER = Path(__file__).with_name("launcher.py")
# Beside the logs of what did not come up, or ended early.
_STATES = "failed-components.txt"
_LONGEST_LOG = 1 << 20  # characters
_END_S = 10.0  # for hundreds of sidecars


@dataclasses.dataclass(frozen=True)
class _Member:
    """A process that is watched, and what it takes to start it again at the same addresses."""

    child: Child
    watched: proc.MonitoredProcess
    listens: tuple[Endpoint, ...]
    proxy: Proxy | None


def numbered(name: str, copy: int) -> str:
    """The name of a component of which there may be several: ``app``, ``app 2``."""
    return f"{name} {copy + 1}" if copy else name


def host_port(endpoint: Endpoint) -> str:
    """An address as programs take it."""
    return "{}:{}".format(*endpoint)


def envoy_command(name: str, bootstrap: Path) -> list[str]:
    """The command of a sidecar that a control plane configures; its name comes first, as that of the process."""
    # One log for all, so each line says whose it is.
    flags = ("--concurrency", "1", "--disable-hot-restart", "--skip-deprecated-logs", "-l", "warning")
    return [name, str(native.find("envoy")), "-c", str(bootstrap), *flags, "--log-format", f"{name} [%l] %v"]


def fan_out(admin: Endpoint, entry: Endpoint, endpoints: Sequence[Endpoint]) -> Proxy:
    """One address in front of several, which the generators call.

    As plain TCP proxy it deals connections out in turn, so with a multiple of the endpoints each of them gets the
    same number.
    """
    listener = envoy.listener("entry", *entry, [envoy.tcp_proxy("fan_out", "endpoints")])
    return Proxy("fan-out", admin, [listener], [envoy.cluster("endpoints", *endpoints[0], *endpoints[1:])])


class Batch:
    """Hundreds of sidecars as one thing: started by a small launcher, watched through it, ended with it.

    Each has the bootstrap ``<bootstraps>/<name>.json``; the launcher's files go to ``folder``. ``pids`` are in the
    order of the names; ``forked`` says whether they were forked from one that had done its static initialisation, else
    each did its own; the ``launcher`` lives as long as every sidecar does.
    """

    def __init__(self, names: Sequence[str], bootstraps: Path, folder: Path) -> None:
        self.names = tuple(names)
        self.pids: tuple[int, ...] = ()
        self.forked = False
        self._ready = folder / "sidecars.pids"
        spec = folder / "sidecars.json"
        commands = [envoy_command(name, bootstraps / f"{name}.json") for name in names]
        library = native.forkserver()
        wanted = {"pids": str(self._ready), "forkserver": library and str(library), "commands": commands}
        spec.write_text(json.dumps(wanted))
        argv = (sys.executable, "-I", "-S", str(LAUNCHER), str(spec))
        self.launcher = Child("sidecars", argv, folder / "sidecars.log")

    def wait_started(self, timeout_s: float) -> None:
        """Wait until every process exists; what it does then is another matter."""

        def ready() -> bool:
            self.require_alive()
            return self._ready.exists()

        if not waiting.until(ready, timeout_s, 0.01):
            raise TestbedError(f"{len(self.names)} sidecars: not started within {timeout_s:g} s")
        started = json.loads(self._ready.read_text())
        self.pids, self.forked = tuple(started["pids"]), bool(started["forked"])

    def require_alive(self) -> None:
        """TestbedError with the last lines of their log when any of them ended."""
        if not self.launcher.alive():
            raise TestbedError(f"sidecars: {self.launcher.tail()}")

    def stop(self) -> None:
        """End all of them at once; back when none is left."""
        self.launcher.stop(_END_S)


class Fleet:
    """All processes of one deployment; without a ``version`` its proxies are the usual Envoy."""

    def __init__(self, version: Version | None = None) -> None:
        self._private = PrivateFolder("meshtrial-run-")  # bootstraps, keys, logs
        self.folder = self._private.path
        self.versions: dict[str, str] = {}
        # All that have been started: also one that never came to serve, and launchers, which nobody watches.
        self.children: list[Child] = []
        self.batches: list[Batch] = []
        self._version = version
        self._members: list[_Member] = []
        self._groups: list[proc.MonitoredProcess] = []  # of sidecars that were started at once
        self._closers: list[Callable[[], None]] = []
        # A loopback network of its own (127.x.y.0/24), so that two deployments never meet on a port.
        self._network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(254) + 1}"
        self._hosts = 0
        self._was_read = False

    def new_address(self) -> str:
        """Another loopback address that nothing else of this deployment uses."""
        self._hosts += 1
        return f"{self._network}.{self._hosts}"

    def new_endpoint(self) -> Endpoint:
        """A fresh address with a free port."""
        address = self.new_address()
        (port,) = free_ports(address)
        return address, port

    def start(
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
        watched = proc.MonitoredProcess(name, role, (child.pid,), threads_end)
        self._members.append(_Member(child, watched, tuple(listens), proxy))
        return child

    def start_proxy(self, proxy: Proxy, role: str = "data plane") -> Child:
        """Start an Envoy with its bootstrap, as the version of the deployment has it."""
        version = self._version
        if version is None or version.envoy is None:
            self.note_version("envoy")
        if version is not None:
            self.versions[f"version {version.name}"] = version.described()
            proxy.flags = (*proxy.flags, *map(str, version.flags))
            proxy.changed = functools.partial(merged, change=version.bootstrap)
        argv = proxy.command((version and version.envoy) or native.find("envoy"), self.folder)
        at = [listener["address"]["socket_address"] for listener in proxy.listeners]
        listens = [proxy.admin, *((where["address"], where["port_value"]) for where in at)]
        return self.start(proxy.name, role, argv, listens, proxy=proxy)

    def start_fan_out(self, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Start one address in front of several, which belongs to the load generator; the address."""
        entry = self.new_endpoint()
        self.start_proxy(fan_out(self.new_endpoint(), entry, endpoints), role="load generator")
        return entry

    def start_batch(self, groups: Mapping[str, Sequence[str]], bootstraps: Path, timeout_s: float) -> Batch:
        """Start many sidecars at once; each group, names of sidecars by the name of a component, is watched as one."""
        batch = Batch([name for names in groups.values() for name in names], bootstraps, self.folder)
        self.batches.append(batch)
        self.children.append(batch.launcher)
        batch.wait_started(timeout_s)
        pids = iter(batch.pids)
        for component, names in groups.items():
            self._groups.append(
                proc.MonitoredProcess(component, "data plane", tuple(itertools.islice(pids, len(names))))
            )
        return batch

    def note_version(self, binary: str) -> None:
        """Record the version of a binary that takes part."""
        if binary not in self.versions:
            self.versions[binary] = native.version(binary)

    def at_close(self, close: Callable[[], None]) -> None:
        """Call this before the processes are stopped."""
        self._closers.append(close)

    def child(self, name: str) -> Child:
        """A component's process."""
        return next(child for child in self.children if child.name == name)

    @property
    def watched(self) -> Sequence[proc.MonitoredProcess]:
        """The components whose usage is read, each with its processes."""
        return (*(member.watched for member in self._members), *self._groups)

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Cumulative counters of every component; memory from the second reading on, for the first is a beginning."""
        used = {watched.component: proc.counters(watched) for watched in self.watched}
        if self._was_read:
            # All CPU before any memory, which takes longer and would stretch the later ones' windows.
            used = {one.component: proc.with_memory(used[one.component], one.pids) for one in self.watched}
        self._was_read = True
        return used

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
        which = [number for number, member in enumerate(self._members) if member.watched.role == role]
        if not which:
            raise TestbedError(f"there is no process of {part} to restart")
        return tuple(map(self._again, which))

    def _again(self, number: int) -> Proof:
        member = self._members[number]
        old, before = member.child, member.watched
        cpu_s, switches = old.end()
        new = self.children[self.children.index(old)] = old.again()
        watched = dataclasses.replace(
            before,
            pids=(new.pid,),
            ended_cpu_s=before.ended_cpu_s + cpu_s,
            ended_switches=before.ended_switches + switches,
        )
        self._members[number] = dataclasses.replace(member, child=new, watched=watched)
        if member.proxy is not None:
            member.proxy.starts += 1
        wait_listening(new, member.listens)
        seen = f"process {old.pid} ended, {new.pid} listens"
        return Proof(f"{old.name} restarted", "during", not old.alive() and new.alive(), "another process", seen)

    def prove_versions(self, phase: str) -> list[Proof]:
        """Every proxy runs the program of the deployment's version."""
        version = self._version
        proxies = [member.child for member in self._members if member.proxy is not None]
        return [] if version is None else [version.prove(child.pid, child.name, phase) for child in proxies]

    def ended(self, phase: str) -> tuple[Proof, ...]:
        """A failed proof for every process that has ended."""
        return tuple(
            Proof(f"{child.name} alive", phase, False, "running", f"{child.state()}: {child.why()}")
            for child in self.children
            if not child.alive()
        )

    def paused(self, phase: str) -> tuple[Proof, ...]:
        """A failed proof for every process that a signal stopped for a while: its time is not the treatment's."""
        seen = "stopped and continued by a signal"
        return tuple(
            Proof(f"{child.name} ran on", phase, False, "never stopped", seen)
            for child in self.children
            if child.paused()
        )

    def last_log_lines(self) -> dict[str, str]:
        """File name to text: what became of every process, and the end of its output."""
        texts = {_STATES: self._states()} if self.children else {}
        for child in self.children:
            if text := child.said():
                texts[f"failed-{child.log.name}"] = text[-_LONGEST_LOG:]
        return texts

    def _states(self) -> str:
        return "".join(f"{child.name}: {child.state()}\n" for child in self.children)

    def collect_logs(self, folder: Path) -> None:
        """Copy the logs; keys and bootstraps stay behind and are removed.

        Where a process has ended, what became of each is written beside them.
        """
        if not all(child.alive() for child in self.children):
            (folder / _STATES).write_text(self._states())
        for child in self.children:
            if text := child.said():
                (folder / child.log.name).write_text(text)

    def close(self) -> None:
        """Stop every process and remove the folder."""
        try:
            for close in reversed((*self._closers, *(batch.stop for batch in self.batches))):
                close()
        finally:
            # Proxies first in the list stop together with the app: one grace period for all.
            stop_all(self.children)
            self._private.close()
