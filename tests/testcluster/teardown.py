"""Down: every trace of a cluster, found by namespace, cgroup and mount and not only by what was written down."""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from testcluster import cgroups, host, procs
from testcluster.procs import call, wait_for
from testcluster.settings import CONTROL_PLANE, HOST_LINK, NODES, ClusterError, Layout, node_pods
from testcluster.state import State

Say = Callable[[str], None]


def raise_interrupt(number: int, _frame: FrameType | None) -> None:
    """Handler for SIGTERM: as Ctrl-C, so that what was started is ended."""
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def shielded() -> Iterator[None]:
    """Complete a clean-up although somebody presses Ctrl-C again; deliver the signal afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _frame: FrameType | None) -> None:
        pending.append(number)

    previous = {number: signal.signal(number, note) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(pending):
            os.kill(os.getpid(), late)


def _namespaces(layout: Layout) -> dict[str, Path]:
    return {name: layout.netns(name) for name in (CONTROL_PLANE, *NODES)}


def _mounts(layout: Layout) -> list[Path]:
    """List the mounts of the machine that are inside the home, deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path = Path(line.split()[4].encode().decode("unicode_escape"))
        if path.is_relative_to(layout.home):
            found.append(path)
    return sorted(found, key=lambda path: -len(path.parts))


def _our_pids(layout: Layout, state: State | None) -> set[int]:
    """Find every process of the cluster: by namespace and cgroup, so nothing escapes by not being written down."""
    mounted = set(_mounts(layout))
    inodes = [procs.namespace_inode(path) for path in _namespaces(layout).values() if path in mounted]
    recorded = {proc.pid for proc in state.alive()} if state else set()
    return recorded | set(procs.in_namespaces("net", inodes)) | cgroups.members(NODES)


def down(layout: Layout, say: Say) -> None:
    """End the cluster and remove every trace of it; ClusterError names what remains."""
    state = State.load(layout)
    started = time.monotonic()
    if state is None and not leftovers(layout):
        say("no cluster is up")
        return
    # Processes are killed: the data is deleted, and an API server takes a minute to end its watches.
    # The first process of a pid namespace takes all others with it, and the last one its mounts.
    if state:
        procs.kill(proc.pid for proc in state.alive())
    with contextlib.suppress(ClusterError):  # what resists is listed below
        wait_for("end of the processes", lambda: not _end_all(layout, state), 15, every_s=0.05)
    for path in _mounts(layout):
        with contextlib.suppress(ClusterError):
            call(["umount", path])
    if Path(f"/sys/class/net/{HOST_LINK}").exists():
        call(["ip", "link", "del", HOST_LINK])  # its routes go with it
    cgroups.remove(NODES)
    if state:
        cgroups.take_back(state.handed_down)
        for name, value in state.sysctls.items():
            path = Path("/proc/sys", name)
            if path.read_text().strip() != value:
                path.write_text(value)
        for folder in reversed(state.folders):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    problems = leftovers(layout)
    if not _mounts(layout):  # never through a mount
        shutil.rmtree(layout.run, ignore_errors=True)
        if layout.run.exists():
            problems.append(f"folder {layout.run}")
    if problems:
        raise ClusterError(f"left after down: {'; '.join(problems)}")
    say(f"down in {time.monotonic() - started:.1f} s, nothing left")


def remove_killed(layout: Layout, say: Say) -> None:
    """Remove the remains of killed sessions' clusters in other homes, so that none of their processes is alive."""
    for other in host.other_homes(layout):
        if not host.inhabited(other):
            say(f"removing what a cluster left that was killed in {other.home}")
            down(other, say)


def _end_all(layout: Layout, state: State | None) -> set[int]:
    pids = _our_pids(layout, state)
    procs.kill(pids)
    return pids


def leftovers(layout: Layout) -> list[str]:
    """Return what remains of a cluster on this machine, looked up now."""
    state = State.load(layout)
    found = [f"process {procs.describe(pid)}" for pid in sorted(_our_pids(layout, state))]
    for pid in procs.all_pids():  # programs of the home that somebody runs on the machine itself
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{pid}/exe").readlink()
            line = f"process {procs.describe(pid)}"
            if program.is_relative_to(layout.bin) and procs.start_time(pid) and line not in found:
                found.append(line)
    found += [f"mount {path}" for path in _mounts(layout)]
    found += [f"cgroup {path}" for path in cgroups.trees(NODES)]
    if Path(f"/sys/class/net/{HOST_LINK}").exists():
        found.append(f"link {HOST_LINK}")
    routes = call(["ip", "-4", "route", "show", "table", "all"]).splitlines() if host.which("ip") else []
    networks = tuple(str(node_pods(node)) for node in NODES)
    found += [f"route {line.strip()}" for line in routes if line.startswith(networks)]
    if state:
        for name, value in state.sysctls.items():
            now = Path("/proc/sys", name).read_text().strip()
            if now != value:
                found.append(f"sysctl {name} = {now}, was {value}")
        found += [f"folder {folder}" for folder in state.folders if Path(folder).exists()]
    return found
