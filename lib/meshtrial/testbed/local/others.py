"""CPU use of other programs on this machine: their total from /proc/stat, their names from /proc/PID/stat.

The total is right for programs of all users, even if /proc hides other users' processes (proc(5), ``hidepid``) or they
run in another container; only their names are then unknown. A process that has ended counts as its parent's once the
parent has waited for it, so programs that start many short processes are found too.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from meshtrial.testbed.base import Others, Program
from meshtrial.testbed.local import proc

_TICKS = os.sysconf("SC_CLK_TCK")
_NAMED = 3
# A snapshot older than this multiple of the requested time is replaced before use.
_LONGEST = 3


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
    cpu: list[int]  # in the order of :func:`meshtrial.testbed.local.proc.cpu_times`
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
        return cls(time.monotonic(), os.getpid(), proc.cpu_times(root), processes)

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
    used = proc.MachineMeter(iter((before.cpu, after.cpu)).__next__).used()
    if used is None or not used.total_s:
        return Others(0.0)
    total = used.total_s * _TICKS
    spent, ended = _spent(before, after)
    own = _family(after, before.own)
    others = max(0.0, (used.programs_s or 0.0) * _TICKS - sum(spent[pid] + ended[pid] for pid in own))
    foreign = spent.keys() - own
    # A process that adopts an orphan is charged with the orphan's whole life when it ends, so limit the CPU time of
    # ended processes to what is not explained otherwise.
    rest = max(0.0, others - sum(spent[pid] for pid in foreign))
    seen = sorted(((min(spent[pid] + min(ended[pid], rest), others), pid) for pid in foreign), reverse=True)
    busiest = (Program(after.processes[pid].name, pid, ticks / total) for ticks, pid in seen[:_NAMED] if ticks)
    return Others(others / total, tuple(busiest), max(0.0, others - sum(ticks for ticks, _ in seen)) / total)


def _spent(before: LoadSnapshot, after: LoadSnapshot) -> tuple[dict[int, int], dict[int, int]]:
    """Return ticks since ``before`` of every present process: by itself, and by children that have ended."""
    remaining = {pid for pid, process in before.processes.items() if _same(process, after.processes.get(pid))}
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


def _same(one: Process, other: Process | None) -> bool:
    return other is not None and one.started == other.started


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
