"""CPU and memory of hundreds of processes, read in a fraction of a second.

CPU and switches come from one small file a thread, of every process. Proportional set size makes the kernel walk a
process's memory (about 2 ms each), so a part of a tier's sidecars stands for all: they hold the same configuration.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from meshtrial.records.schema import ComponentUsage

SAMPLED = 25


def fleet_usage(component: str, role: str, pids: Sequence[int]) -> ComponentUsage:
    """Cumulative CPU and switches of several processes as one component; ``window_s`` is the clock behind them."""
    ran_ns = slices = 0
    for pid in pids:
        for task in _tasks(pid):
            with suppress(OSError, ValueError, IndexError):
                # Nanoseconds on a CPU, nanoseconds waiting for one, times it was switched in.
                fields = (task / "schedstat").read_text().split()
                ran_ns += int(fields[0])
                slices += int(fields[2])
    now = time.monotonic()
    return ComponentUsage(component, role, now, ran_ns / 1e9, None, count=len(pids), switches=slices)


def fleet_memory(pids: Sequence[int], sampled: int = SAMPLED) -> tuple[int | None, int | None]:
    """Proportional set size of several like processes, and of the largest; from ``sampled`` of them, evenly spaced."""
    step = max(1, -(-len(pids) // sampled))
    found = [value for pid in pids[::step] if (value := pss_bytes(pid)) is not None]
    return (round(sum(found) / len(found) * len(pids)), max(found)) if found else (None, None)


def pss_bytes(pid: int) -> int | None:
    """Proportional set size of a process: what is shared is counted by shares."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []
