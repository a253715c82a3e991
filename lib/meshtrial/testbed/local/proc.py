"""CPU, memory and context switches of processes, and of the machine, from /proc.

CPU comes from the scheduler's nanosecond counters of every thread, one small file each, so that hundreds of processes
are read in a fraction of a second. The counters of a thread vanish when it ends; components whose threads end are read
from the process-wide tick counter instead. Reading the proportional set size makes the kernel walk a process's memory
(about 2 ms each), so of many similar processes only a sample is read.

The CPU use of other programs is right for those of all users, even if /proc hides other users' processes (proc(5),
``hidepid``) or they run in another container; only their names are then unknown. A process that has ended counts as its
parent's once the parent has waited for it, so programs that start many short processes are found too.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.base import MachineUse, Others, Program

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
# user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
_IDLE, _IOWAIT, _STEAL, _FIELDS = 3, 4, 7, 8
# Processes of one component whose memory is read at most.
_SAMPLED = 25
_NAMED = 3  # other programs
# A snapshot older than this multiple of the requested time is replaced before use.
_LONGEST = 3


@dataclass
class MonitoredProcess:
    """A component whose usage is read; ``ended_*`` is the usage of its processes that have ended."""

    component: str
    role: str
    pids: tuple[int, ...]
    threads_end: bool = False
    ended_cpu_s: float = 0.0
    ended_switches: int = 0


def counters(watched: MonitoredProcess) -> ComponentUsage:
    """Return cumulative CPU time and context switches; ``window_s`` is the monotonic clock, to be subtracted later."""
    cpu_s = sample(watched.pids)[0] if watched.threads_end else _summed(watched.pids, "schedstat", _ran_ns) / 1e9
    return ComponentUsage(
        component=watched.component,
        role=watched.role,
        window_s=time.monotonic(),
        cpu_s=watched.ended_cpu_s + cpu_s,
        pss_bytes=None,
        throttled_s=cgroup_throttled_s() if watched.role == "app" else None,
        count=len(watched.pids),
        switches=watched.ended_switches + _summed(watched.pids, "status", _switches),
    )


def with_memory(used: ComponentUsage, pids: Sequence[int]) -> ComponentUsage:
    """Return ``used`` with the proportional set size of all its processes (extrapolated) and of the largest."""
    step = max(1, -(-len(pids) // _SAMPLED))
    known = [value for pid in pids[::step] if (value := pss_bytes(pid)) is not None]
    if not known:
        return used
    return replace(used, pss_bytes=round(sum(known) / len(known) * len(pids)), largest_bytes=max(known))


def pss_bytes(pid: int) -> int | None:
    """Proportional set size of a process, in which shared memory is divided among its users; None if unreadable."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Pss")


def available_bytes() -> int | None:
    """Memory that programs can still allocate on this machine; None if unreadable."""
    return _kib("/proc/meminfo", "MemAvailable")


def sample(pids: Sequence[int]) -> tuple[float, int | None]:
    """Return CPU seconds so far and resident bytes of some processes (proc(5), ``stat``)."""
    cpu_s, pages = 0.0, 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / _TICKS
            pages += int(fields[21])
    return cpu_s, pages * _PAGE


def cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group that may hold a controller's files, for cgroup v1 and v2."""
    with suppress(OSError):
        for entry in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = entry.split(":", 2)
            if not controllers or controller in controllers.split(","):
                yield Path("/sys/fs/cgroup") / (controller if controllers else "") / path.lstrip("/")


def cgroup_throttled_s() -> float | None:
    """Seconds for which this process's control group was throttled; None if there is no such counter."""
    for folder in cgroup_folders("cpu"):
        with suppress(OSError, ValueError):
            counted = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
                if name in counted:
                    return int(counted[name]) * unit
    return None


def _summed(pids: Sequence[int], file: str, count: Callable[[str], int]) -> int:
    """Return the sum of ``count(text)`` over a file of every thread of the processes."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, ValueError, IndexError):
                    total += count((task / file).read_text())
    return total


def _ran_ns(schedstat: str) -> int:
    return int(schedstat.split()[0])


def _switches(status: str) -> int:
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def field(path: str, name: str) -> str:
    """Return the value of the first line ``name: value`` of a file; empty if there is none, or it cannot be read."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""


def _kib(path: str, name: str) -> int | None:
    value = field(path, name)
    return int(value.split()[0]) * 1024 if value else None


def cpu_times(root: Path = Path("/proc")) -> list[int]:
    """Return ticks of all cores so far, by state in the order of proc(5)."""
    return [int(field) for field in (root / "stat").read_text().splitlines()[0].split()[1 : _FIELDS + 1]]


class MachineMeter:
    """Use of all cores, from counters in the order of :func:`cpu_times`."""

    def __init__(self, read: Callable[[], list[int]] = cpu_times) -> None:
        self._read = read
        self._last = self._read()
        self._own_s = time.process_time()

    def used(self) -> MachineUse | None:
        """Return the use since the last call (or construction); None if no time has passed."""
        now = self._read()
        spent = [end - start for start, end in zip(self._last, now, strict=True)]
        self._last = now
        own_s, self._own_s = self._own_s, time.process_time()
        if (total := sum(spent)) <= 0:
            return None
        waiting = spent[_IDLE] + spent[_IOWAIT]  # iowait may decrease (proc(5))
        return MachineUse(
            busy=min(1.0, max(0.0, 1 - waiting / total)),
            stolen=max(0.0, spent[_STEAL] / total),
            # Interrupts belong to no program, and most of them here are due to the load itself.
            programs_s=sum(spent[:_IDLE]) / _TICKS,
            total_s=total / _TICKS,
            own_s=self._own_s - own_s,
        )


@dataclass(frozen=True)
class Process:
    """A process and its CPU time so far, in ticks."""

    name: str
    parent: int
    started: int
    ticks: int  # by itself
    ended: int  # by children that ended and were waited for


@dataclass(frozen=True)
class LoadSnapshot:
    """The counters of all cores and of every visible process at one moment."""

    at_s: float  # of the monotonic clock, which all processes of a machine share
    own: int  # the process that, with its descendants, is the study
    cpu: list[int]  # in the order of :func:`cpu_times`
    processes: Mapping[int, Process]

    @classmethod
    def now(cls, root: Path = Path("/proc")) -> LoadSnapshot:
        """Read the counters; OSError without /proc."""
        processes = {}
        for entry in root.iterdir():
            # A process may end while it is read.
            with suppress(OSError, ValueError, IndexError):
                if entry.name.isdigit():
                    processes[int(entry.name)] = _process((entry / "stat").read_text())
        return cls(time.monotonic(), os.getpid(), cpu_times(root), processes)

    def write(self, path: Path) -> None:
        """Write the snapshot to a file, from which another process of the study begins its watch."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> LoadSnapshot:
        """Read the snapshot that another process of the study has written."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


def _process(stat: str) -> Process:
    # The name is in brackets and may itself contain brackets and spaces.
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    ticks, ended = (sum(map(int, fields[first : first + 2])) for first in (11, 13))
    return Process(head.partition("(")[2], int(fields[1]), int(fields[19]), ticks, ended)


class Watch:
    """Watches other programs; each call returns what they used since the previous call (or since construction)."""

    def __init__(
        self,
        begun: LoadSnapshot | None = None,
        read: Callable[[], LoadSnapshot] = LoadSnapshot.now,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._clock, self._sleep = read, clock, sleep
        self._before = begun or read()

    def __call__(self, seconds: float) -> Others:
        """Return the use of other programs over at least ``seconds``, and not much longer."""
        own = self._before.own
        if self._clock() - self._before.at_s > _LONGEST * seconds:
            self._before = replace(self._read(), own=own)
        self._sleep(max(0.0, self._before.at_s + seconds - self._clock()))
        before, self._before = self._before, replace(self._read(), own=own)
        return between(before, self._before)


def between(before: LoadSnapshot, after: LoadSnapshot) -> Others:
    """Return the use of other programs between two snapshots, as shares of the time of all cores."""
    used = MachineMeter(iter((before.cpu, after.cpu)).__next__).used()
    if used is None or not used.total_s:
        return Others(0.0)
    total = used.total_s * _TICKS
    spent, ended = _spent(before, after)
    own = _family(after, before.own)
    others = max(0.0, (used.programs_s or 0.0) * _TICKS - sum(spent[pid] + ended[pid] for pid in own))
    foreign = spent.keys() - own
    # When an orphan ends, its adopter's counter grows by all the CPU time that the orphan ever used, part of it before
    # this interval. So ended processes are given at most the time that running ones did not use.
    rest = max(0.0, others - sum(spent[pid] for pid in foreign))
    seen = sorted(((min(spent[pid] + min(ended[pid], rest), others), pid) for pid in foreign), reverse=True)
    busiest = (Program(after.processes[pid].name, pid, ticks / total) for ticks, pid in seen[:_NAMED] if ticks)
    return Others(others / total, tuple(busiest), max(0.0, others - sum(ticks for ticks, _ in seen)) / total)


def _spent(before: LoadSnapshot, after: LoadSnapshot) -> tuple[dict[int, int], dict[int, int]]:
    """Return ticks since ``before`` of every present process: by itself, and by children that have ended."""
    # A process id may belong to another process now.
    started = {pid: process.started for pid, process in after.processes.items()}
    remaining = {pid for pid, process in before.processes.items() if process.started == started.get(pid)}
    # The earlier use of an ended process now counts as use by children of its nearest living ancestor.
    inherited: Counter[int] = Counter()
    gone = before.processes.keys() - remaining
    for pid in gone:
        ancestors = [pid]
        while (parent := before.processes[ancestors[-1]].parent) in gone and parent not in ancestors:
            ancestors.append(parent)
        inherited[parent] += before.processes[pid].ticks + before.processes[pid].ended
    spent, ended = {}, {}
    for pid, now in after.processes.items():
        was = before.processes[pid] if pid in remaining else replace(now, ticks=0, ended=0)
        spent[pid] = max(0, now.ticks - was.ticks)
        ended[pid] = max(0, now.ended - was.ended - inherited[pid])
    return spent, ended


def _family(snapshot: LoadSnapshot, pid: int) -> set[int]:
    """Return the present ones of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for child, process in snapshot.processes.items():
        children.setdefault(process.parent, []).append(child)
    family, waiting = set[int](), [pid]
    while waiting:
        if (member := waiting.pop()) not in family:
            family.add(member)
            waiting += children.get(member, [])
    return family & snapshot.processes.keys()
