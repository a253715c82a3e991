"""What other programs use of this machine: how much by /proc/stat, and which they are by /proc/PID/stat.

How much is right whoever they belong to, also where /proc hides the processes of other users (proc(5), ``hidepid``) or
they run in another container; which they are is then not known. A process that ended is its parent's, as soon as that
has waited for it, so programs that start many short ones are seen too.
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
# A look that is so many times older than asked for says little of now.
_LONGEST = 3


@dataclass(frozen=True)
class Process:
    """A process, and what it has used so far, in ticks."""

    name: str
    parent: int
    started: int
    ticks: int  # by itself
    ended: int  # by ended children for which it has waited


@dataclass(frozen=True)
class LoadSnapshot:
    """The counters of all cores and of every visible process at one moment."""

    at_s: float  # of the monotonic clock, which all processes of a machine share
    own: int  # the process whose descendants, with itself, are the study's own
    cpu: list[int]  # in the order of :func:`meshtrial.testbed.local.proc.cpu_times`
    processes: Mapping[int, Process]

    @classmethod
    def now(cls, root: Path = Path("/proc")) -> LoadSnapshot:
        """Look; OSError where there is no /proc."""
        processes = {}
        for entry in root.iterdir():
            # A process may end meanwhile.
            with suppress(OSError, ValueError, IndexError):
                if entry.name.isdigit():
                    processes[int(entry.name)] = _process((entry / "stat").read_text())
        return cls(time.monotonic(), os.getpid(), proc.cpu_times(root), processes)

    def write(self, path: Path) -> None:
        """Hand it over to another process of the study, as a part of whose preparation it then is."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> LoadSnapshot:
        """What another process of the study has seen."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


def _process(stat: str) -> Process:
    # The name stands in brackets and may hold any.
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    ticks, ended = (sum(map(int, fields[first : first + 2])) for first in (11, 13))
    return Process(head.partition("(")[2], int(fields[1]), int(fields[19]), ticks, ended)


class Watch:
    """Watches other programs from its making on; called, it tells what they used since it was called last."""

    def __init__(
        self,
        begun: LoadSnapshot | None = None,
        look: Callable[[], LoadSnapshot] = LoadSnapshot.now,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look, self._clock, self._sleep = look, clock, sleep
        self._before = begun or look()

    def __call__(self, seconds: float) -> Others:
        """What they used over so many seconds at least, and not over many more."""
        own = self._before.own
        if self._clock() - self._before.at_s > _LONGEST * seconds:
            self._before = replace(self._look(), own=own)
        self._sleep(max(0.0, self._before.at_s + seconds - self._clock()))
        before, self._before = self._before, replace(self._look(), own=own)
        return between(before, self._before)


def between(before: LoadSnapshot, after: LoadSnapshot) -> Others:
    """What other programs used between two looks: shares of the time of all cores."""
    used = proc.MachineMeter(iter((before.cpu, after.cpu)).__next__).used()
    if used is None or not used.total_s:
        return Others(0.0)
    total = used.total_s * _TICKS
    spent, ended = _spent(before, after)
    own = _family(after, before.own)
    others = max(0.0, (used.programs_s or 0.0) * _TICKS - sum(spent[pid] + ended[pid] for pid in own))
    foreign = spent.keys() - own
    # Who adopts an orphan is charged with its whole life at its end: ended processes have used no more than the rest.
    rest = max(0.0, others - sum(spent[pid] for pid in foreign))
    seen = sorted(((min(spent[pid] + min(ended[pid], rest), others), pid) for pid in foreign), reverse=True)
    busiest = (Program(after.processes[pid].name, pid, ticks / total) for ticks, pid in seen[:_NAMED] if ticks)
    return Others(others / total, tuple(busiest), max(0.0, others - sum(ticks for ticks, _ in seen)) / total)


def _spent(before: LoadSnapshot, after: LoadSnapshot) -> tuple[dict[int, int], dict[int, int]]:
    """Ticks of every process that is there now, by itself and by children that have ended since."""
    there = {pid for pid, one in before.processes.items() if _same(one, after.processes.get(pid))}
    # What an ended one had used before is now among what its nearest living ancestor's children have used.
    inherited: Counter[int] = Counter()
    gone = before.processes.keys() - there
    for pid in gone:
        line = [pid]
        while (heir := before.processes[line[-1]].parent) in gone and heir not in line:
            line.append(heir)
        inherited[heir] += before.processes[pid].ticks + before.processes[pid].ended
    spent, ended = {}, {}
    for pid, now in after.processes.items():
        was = before.processes[pid] if pid in there else replace(now, ticks=0, ended=0)
        spent[pid] = max(0, now.ticks - was.ticks)
        ended[pid] = max(0, now.ended - was.ended - inherited[pid])
    return spent, ended


def _same(one: Process, other: Process | None) -> bool:
    return other is not None and one.started == other.started


def _family(look: LoadSnapshot, pid: int) -> set[int]:
    """A process and all of its descendants that are there."""
    children: dict[int, list[int]] = {}
    for child, process in look.processes.items():
        children.setdefault(process.parent, []).append(child)
    found, waiting = set[int](), [pid]
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += children.get(one, [])
    return found & look.processes.keys()
