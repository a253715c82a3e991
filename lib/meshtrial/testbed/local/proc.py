"""CPU, memory and context switches of a process, from /proc.

CPU comes from the scheduler's own nanosecond counters of every thread; where threads end during a run
their counters vanish with them, so such components are read from the process-wide tick counter instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from meshtrial.records.schema import ComponentUsage
from meshtrial.testbed.base import MachineUse

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
# user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user's already.
_IDLE, _IOWAIT, _STEAL, _FIELDS = 3, 4, 7, 8


@dataclass(frozen=True)
class Watched:
    """A component whose usage is read: its processes, whether its threads come and go, what ended processes used."""

    component: str
    role: str
    pids: tuple[int, ...]
    threads_end: bool = False
    ended_cpu_s: float = 0.0
    ended_switches: int = 0


def usage(watched: Watched) -> ComponentUsage:
    """Cumulative counters now; ``window_s`` is the monotonic clock, to be subtracted."""
    cpu = sum(_cpu_ticks(pid) if watched.threads_end else _cpu_schedstat(pid) for pid in watched.pids)
    pss = [_pss(pid) for pid in watched.pids]
    known = [value for value in pss if value is not None]
    return ComponentUsage(
        component=watched.component,
        role=watched.role,
        window_s=time.monotonic(),
        cpu_s=watched.ended_cpu_s + cpu,
        pss_bytes=sum(known) if len(known) == len(pss) else None,
        throttled_s=cgroup_throttled_s() if watched.role == "app" else None,
        count=len(watched.pids),
        switches=watched.ended_switches + sum(_switches(pid) for pid in watched.pids),
        largest_bytes=max(known, default=None),
    )


def sample(pids: Sequence[int]) -> tuple[float, int | None]:
    """CPU seconds so far and resident bytes of some processes, from one small file each (proc(5), ``stat``)."""
    cpu_s, pages = 0.0, 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / _TICKS
            pages += int(fields[21])
    return cpu_s, pages * _PAGE


def _cpu_schedstat(pid: int) -> float:
    total = 0
    for task in _tasks(pid):
        with suppress(OSError, ValueError, IndexError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def _cpu_ticks(pid: int) -> float:
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0


def _pss(pid: int) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None


def _switches(pid: int) -> int:
    total = 0
    for task in _tasks(pid):
        with suppress(OSError, ValueError):
            for line in (task / "status").read_text().splitlines():
                if "ctxt_switches" in line:
                    total += int(line.split()[1])
    return total


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def cgroup_throttled_s() -> float | None:
    """Time that this process's cgroup spent throttled, or None where there is no such counter."""
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers == "":
            stat, key, unit = Path("/sys/fs/cgroup") / path.lstrip("/") / "cpu.stat", "throttled_usec", 1e-6
        elif "cpu" in controllers.split(","):
            stat, key, unit = Path("/sys/fs/cgroup/cpu") / path.lstrip("/") / "cpu.stat", "throttled_time", 1e-9
        else:
            continue
        with suppress(OSError, ValueError):
            for line in stat.read_text().splitlines():
                name, value = line.split()
                if name == key:
                    return int(value) * unit
    return None


def cpu_times() -> list[int]:
    """Ticks of all cores so far, in the order of proc(5)."""
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1 : _FIELDS + 1]]


class MachineMeter:
    """Use of all cores, from the first line of /proc/stat (proc(5)).

    Parameters
    ----------
    read : callable
        Gives the counters in the order of :func:`cpu_times`.
    """

    def __init__(self, read: Callable[[], list[int]] = cpu_times) -> None:
        self._read = read
        self._last = self._read()
        self._own_s = time.process_time()

    def used(self) -> MachineUse | None:
        """Use since the last call (or construction)."""
        now = self._read()
        spent = [end - start for start, end in zip(self._last, now, strict=True)]
        self._last = now
        own_s, self._own_s = self._own_s, time.process_time()
        if (total := sum(spent)) <= 0:
            return None
        waiting = spent[_IDLE] + spent[_IOWAIT]  # the kernel says itself that iowait may go back
        return MachineUse(
            busy=min(1.0, max(0.0, 1 - waiting / total)),
            stolen=max(0.0, spent[_STEAL] / total),
            # Interrupts belong to no program, and most of them here to the load itself.
            programs_s=sum(spent[:_IDLE]) / _TICKS,
            total_s=total / _TICKS,
            own_s=self._own_s - own_s,
        )


def idle_share(look_s: float = 0.2) -> float | None:
    """Idle share of the machine over a short look."""
    meter = MachineMeter()
    time.sleep(look_s)
    used = meter.used()
    return None if used is None else 1.0 - used.busy
