"""CPU, memory and context switches of processes, and of the machine, from /proc.

CPU comes from the scheduler's nanosecond counters of every thread, one small file each, so that hundreds of processes
are read in a fraction of a second. The counters of a thread vanish when it ends; components whose threads end are read
from the process-wide tick counter instead. Reading the proportional set size makes the kernel walk a process's memory
(about 2 ms each), so of many similar processes only a sample is read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.base import MachineUse

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
# user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
_IDLE, _IOWAIT, _STEAL, _FIELDS = 3, 4, 7, 8
# Processes of one component whose memory is read at most.
_SAMPLED = 25


@dataclass(frozen=True)
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


def _kib(path: str, name: str) -> int | None:
    """Return a field given in KiB as bytes; None if it cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


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
