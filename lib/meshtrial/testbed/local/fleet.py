"""The processes of one deployment: started, watched, restarted and stopped together, in a folder of their own.

Every process of a local treatment is started here, singly or as a batch of hundreds of sidecars. The treatment's data
plane (:mod:`meshtrial.testbed.local.dataplanes`) decides which processes these are.
"""

import dataclasses
import functools
import itertools
import json
import re
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
from meshtrial.testbed.local import proc, sockets
from meshtrial.testbed.local.processes import Child, stop_all
from meshtrial.testbed.local.sockets import Endpoint, free_ports, wait_listening
from meshtrial.testbed.local.versions import Version, merged

# The role of the processes that are restarted, by part of the system.
RESTARTED_ROLES = {"app": "app", "proxies": "data plane"}
LAUNCHER = Path(__file__).with_name("launcher.py")
# Written beside the logs if a process did not start or ended early.
_STATES = "failed-components.txt"
_LONGEST_LOG = 1 << 20  # characters
_END_S = 10.0  # enough for hundreds of sidecars


@dataclasses.dataclass
class _Member:
    """A monitored process, with what is needed to start it again at the same addresses."""

    child: Child
    watched: proc.MonitoredProcess
    listens: Sequence[Endpoint]
    proxy: Proxy | None


def numbered(name: str, copy: int) -> str:
    """Return the name of one of several copies of a component: ``app``, ``app 2``."""
    return f"{name} {copy + 1}" if copy else name


def host_port(endpoint: Endpoint) -> str:
    """Return ``address:port``."""
    return "{}:{}".format(*endpoint)


def envoy_command(name: str, bootstrap: Path) -> list[str]:
    """Return the command of a sidecar that a control plane configures, after the name of its process."""
    # All sidecars share one log, so each line begins with the sidecar's name.
    flags = ("--concurrency", "1", "--disable-hot-restart", "--skip-deprecated-logs", "-l", "warning")
    return [name, str(native.find("envoy")), "-c", str(bootstrap), *flags, "--log-format", f"{name} [%l] %v"]


def fan_out(admin: Endpoint, entry: Endpoint, endpoints: Sequence[Endpoint]) -> Proxy:
    """Return a proxy with one address in front of several, which the generators call.

    It is a plain TCP proxy that deals out connections in turn, so that each endpoint gets the same number if the
    connections are a multiple of the endpoints.
    """
    listener = envoy.listener("entry", *entry, [envoy.tcp_proxy("fan_out", "endpoints")])
    return Proxy("fan-out", admin, [listener], [envoy.cluster("endpoints", *endpoints[0], *endpoints[1:])])


class Batch:
    """Hundreds of sidecars that are started, watched and stopped together through a small launcher process.

    Each uses the bootstrap ``<bootstraps>/<name>.json``; the launcher's files are in ``folder``. ``pids`` follow the
    order of the names. ``forked`` is True if the sidecars were forked from one initialised process. The ``launcher``
    lives exactly as long as all sidecars do.
    """

    def __init__(self, names: Sequence[str], bootstraps: Path, folder: Path) -> None:
        self.names = tuple(names)
        self.pids: tuple[int, ...] = ()
        self.forked = False
        self._ready = folder / "sidecars.pids"
        spec = folder / "sidecars.json"
        commands = [envoy_command(name, bootstraps / f"{name}.json") for name in names]
        library = native.forkserver()
        order = {"pids": str(self._ready), "forkserver": library and str(library), "commands": commands}
        spec.write_text(json.dumps(order))
        argv = (sys.executable, "-I", "-S", str(LAUNCHER), str(spec))
        self.launcher = Child("sidecars", argv, folder / "sidecars.log")

    def wait_started(self, timeout_s: float) -> None:
        """Wait until every process exists, which does not yet mean that it serves."""

        def ready() -> bool:
            self.require_alive()
            return self._ready.exists()

        if not waiting.until(ready, timeout_s, 0.01):
            raise TestbedError(f"{len(self.names)} sidecars did not start within {timeout_s:g} s")
        started = json.loads(self._ready.read_text())
        self.pids, self.forked = tuple(started["pids"]), bool(started["forked"])

    def require_alive(self) -> None:
        """Raise TestbedError with the last log lines if any sidecar has ended."""
        if not self.launcher.alive():
            raise TestbedError(f"sidecars: {self.launcher.tail()}")

    def stop(self) -> None:
        """Stop all sidecars at once; returns when every one has ended."""
        self.launcher.stop(_END_S)


class Fleet:
    """All processes of one deployment; without a ``version`` its proxies run the default Envoy."""

    def __init__(self, version: Version | None = None) -> None:
        self._private = PrivateFolder("meshtrial-run-")  # bootstraps, keys, logs
        self.folder = self._private.path
        self.versions: dict[str, str] = {}
        # Everything that was started, including processes that never served, and launchers, which are not monitored.
        self.children: list[Child] = []
        self.batches: list[Batch] = []
        self._version = version
        self.watched: list[proc.MonitoredProcess] = []  # whose usage is read; the sidecars of a batch in groups
        self._members: list[_Member] = []
        self._closers: list[Callable[[], None]] = []
        # Each deployment has a random loopback network (127.x.y.0/24), so that two never compete for a port.
        self._network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(254) + 1}"
        self._hosts = 0
        self._was_read = False

    def new_address(self) -> str:
        """Return a loopback address that nothing else of this deployment uses."""
        self._hosts += 1
        return f"{self._network}.{self._hosts}"

    def new_endpoint(self) -> Endpoint:
        """Return a new address with a free port."""
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
        """Start a component and wait until it listens; it is monitored, and stopped with the deployment."""
        child = Child(name, argv, self.folder / f"{name.replace(' ', '-')}.log", self.folder)
        self.children.append(child)
        wait_listening(child, listens)
        watched = proc.MonitoredProcess(name, role, (child.pid,), threads_end)
        self.watched.append(watched)
        self._members.append(_Member(child, watched, listens, proxy))
        return child

    def start_proxy(self, proxy: Proxy, role: str = "data plane") -> Child:
        """Start an Envoy of the deployment's version with its bootstrap."""
        version = self._version
        if version is None or version.envoy is None:
            self.note_version("envoy")
        if version is not None:
            self.versions[f"version {version.name}"] = version.described()
            proxy.flags = (*proxy.flags, *map(str, version.flags))
            proxy.changed = functools.partial(merged, change=version.bootstrap)
        argv = proxy.command((version and version.envoy) or native.find("envoy"), self.folder)
        addresses = [listener["address"]["socket_address"] for listener in proxy.listeners]
        listens = [proxy.admin, *((address["address"], address["port_value"]) for address in addresses)]
        return self.start(proxy.name, role, argv, listens, proxy=proxy)

    def proxy_at(self, endpoint: Endpoint) -> Proxy | None:
        """Return the proxy that listens on an endpoint; None if another program does."""
        return next((member.proxy for member in self._members if endpoint in member.listens), None)

    def connections_at(self, endpoint: Endpoint) -> int:
        """Return how many are open there: by the proxy's own gauge, or by the kernel if there is no proxy."""
        proxy = self.proxy_at(endpoint)
        if proxy is None:
            return sockets.established(endpoint)
        gauge = "listener.{}_{}.downstream_cx_active".format(*endpoint)
        return proxy.stats(f"^{re.escape(gauge)}$").get(gauge, 0)

    def start_fan_out(self, endpoints: Sequence[Endpoint]) -> Endpoint:
        """Start a proxy in front of several endpoints, which counts as load generator; return its address."""
        entry = self.new_endpoint()
        self.start_proxy(fan_out(self.new_endpoint(), entry, endpoints), role="load generator")
        return entry

    def start_batch(self, groups: Mapping[str, Sequence[str]], bootstraps: Path, timeout_s: float) -> Batch:
        """Start many sidecars at once; ``groups`` maps a component to its sidecars, whose usage is read as one."""
        batch = Batch([name for names in groups.values() for name in names], bootstraps, self.folder)
        self.batches.append(batch)
        self.children.append(batch.launcher)
        batch.wait_started(timeout_s)
        pids = iter(batch.pids)
        for component, names in groups.items():
            own = tuple(itertools.islice(pids, len(names)))
            self.watched.append(proc.MonitoredProcess(component, "data plane", own))
        return batch

    def note_version(self, binary: str) -> None:
        """Record the version of a program that takes part."""
        if binary not in self.versions:
            self.versions[binary] = native.version(binary)

    def at_close(self, close: Callable[[], None]) -> None:
        """Have ``close`` called before the processes are stopped."""
        self._closers.append(close)

    def child(self, name: str) -> Child:
        """Return a component's process."""
        return next(child for child in self.children if child.name == name)

    def snapshot(self) -> Mapping[str, ComponentUsage]:
        """Return cumulative counters of every component; memory is measured from the second reading on."""
        used = {watched.component: proc.counters(watched) for watched in self.watched}
        if self._was_read:
            # Read all CPU before any memory: memory is slow to read and would stretch the later components' windows.
            used = {one.component: proc.with_memory(used[one.component], one.pids) for one in self.watched}
        self._was_read = True
        return used

    def sample(self) -> Mapping[str, tuple[float, int | None]]:
        """Return CPU seconds so far and resident bytes of every component."""
        samples = {}
        for watched in self.watched:
            cpu_s, memory_bytes = proc.sample(watched.pids)
            samples[watched.component] = (watched.ended_cpu_s + cpu_s, memory_bytes)
        return samples

    def restart(self, part: str) -> tuple[Proof, ...]:
        """Stop the processes of a part and start them again at the same addresses, one after another.

        Raise TestbedError if the part has no process here, or one does not start again.
        """
        role = RESTARTED_ROLES.get(part)
        members = [member for member in self._members if member.watched.role == role]
        if not members:
            raise TestbedError(f"there is no process of {part} to restart")
        return tuple(map(self._restart, members))

    def _restart(self, member: _Member) -> Proof:
        old, watched = member.child, member.watched
        cpu_s, switches = old.end()
        new = member.child = self.children[self.children.index(old)] = old.again()
        watched.pids = (new.pid,)
        watched.ended_cpu_s += cpu_s
        watched.ended_switches += switches
        if member.proxy is not None:
            member.proxy.starts += 1
        wait_listening(new, member.listens)
        observed = f"process {old.pid} ended, {new.pid} listens"
        return Proof(f"{old.name} restarted", "during", not old.alive() and new.alive(), "another process", observed)

    def prove_versions(self, phase: str) -> list[Proof]:
        """Prove that every proxy runs the program of the deployment's version."""
        version = self._version
        proxies = [member.child for member in self._members if member.proxy is not None]
        return [] if version is None else [version.prove(child.pid, child.name, phase) for child in proxies]

    def ended(self, phase: str) -> tuple[Proof, ...]:
        """Return a failed proof for every process that has ended."""
        return tuple(
            Proof(f"{child.name} alive", phase, False, "running", f"{child.state()}: {child.why()}")
            for child in self.children
            if not child.alive()
        )

    def paused(self, phase: str) -> tuple[Proof, ...]:
        """Return a failed proof for every process that a signal suspended: that time is not the treatment's."""
        return tuple(
            Proof(f"{child.name} ran on", phase, False, "never stopped", "stopped and continued by a signal")
            for child in self.children
            if child.paused()
        )

    def last_log_lines(self) -> dict[str, str]:
        """Return the state of every process and the end of its output, by file name."""
        texts = {_STATES: self._states()} if self.children else {}
        for child in self.children:
            if text := child.output():
                texts[f"failed-{child.log.name}"] = text[-_LONGEST_LOG:]
        return texts

    def _states(self) -> str:
        return "".join(f"{child.name}: {child.state()}\n" for child in self.children)

    def collect_logs(self, folder: Path) -> None:
        """Copy the logs to ``folder``, but neither keys nor bootstraps.

        If a process has ended, the state of every process is written beside them.
        """
        if not all(child.alive() for child in self.children):
            (folder / _STATES).write_text(self._states())
        for child in self.children:
            if text := child.output():
                (folder / child.log.name).write_text(text)

    def close(self) -> None:
        """Stop every process and remove the folder."""
        try:
            for close in reversed((*self._closers, *(batch.stop for batch in self.batches))):
                close()
        finally:
            # All processes share one grace period.
            stop_all(self.children)
            self._private.close()
