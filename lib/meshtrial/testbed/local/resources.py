"""Whether this machine is large enough for the three tiers: what a size needs, and what is available.

With Envoy 1.40 (one worker) a proxy was seen to need 43 file handles, 7 threads and about 16 MiB if it knows 400
endpoints. Each unused service adds 82 KiB. The constants add a margin. Limits are read from the kernel; a limit that
cannot be read is ignored.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from meshtrial.design.study import Load, Study
from meshtrial.errors import UsageError
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.tiers import TIERS, has_sidecars

MIB = 2**20
_FILES_PER_PROXY, _THREADS_PER_PROXY, _PSS_PER_PROXY = 50, 7, 17 * MIB
_PSS_PER_UNUSED_SERVICE = 90 * 2**10  # in each proxy
_BASE_FILES, _BASE_THREADS, _BASE_PSS = 500, 120, 400 * MIB


@dataclass(frozen=True)
class Resources:
    """What one load needs, or what is available; then None for a limit that does not exist or cannot be read."""

    files_per_process: int | None  # of the process with the most: fan-out, client or control plane
    files: int | None  # of all processes together
    threads: int | None  # of all processes; kernels count them against limits of processes
    memory_bytes: int | None  # proportional set size of all processes


def needs(load: Load, sidecars: bool, scoped: bool = False) -> Resources:
    """Return what a load needs, with or without sidecars; ``scoped`` ones do not know unused services."""
    proxies = len(TIERS) * load.replicas if sidecars else 0
    unused = 0 if scoped else load.unused_services
    # A request in flight holds a socket on both sides of every hop, and idle connections stay open.
    sockets = 2 * load.connections + 2 * len(TIERS) * load.replicas
    widest = max(2 * load.connections + load.replicas, proxies) + 200
    return Resources(
        files_per_process=widest,
        files=proxies * _FILES_PER_PROXY + 4 * sockets + _BASE_FILES,
        threads=proxies * _THREADS_PER_PROXY + _BASE_THREADS,
        memory_bytes=proxies * (_PSS_PER_PROXY + unused * _PSS_PER_UNUSED_SERVICE) + _BASE_PSS,
    )


def shortfalls(load: Load, required: Resources, available: Resources) -> tuple[str, ...]:
    """Return one line for each resource that is too small, with both numbers and what to do."""
    size, lists = f"{len(TIERS) * load.replicas} endpoints", "`sizes`"
    if load.unused_services:
        size, lists = f"{size} and {load.unused_services} unused services", "`sizes` or `unused_services`"
    checks = (
        (
            "open files per process",
            required.files_per_process,
            available.files_per_process,
            "raise `ulimit -n`",
        ),
        ("open files in total", required.files, available.files, "raise the sysctl fs.file-max"),
        ("threads", required.threads, available.threads, "raise `ulimit -u`, kernel.threads-max or the pids cgroup"),
        ("MiB of memory", _mib(required.memory_bytes), _mib(available.memory_bytes), "use a larger machine"),
    )
    return tuple(
        f"{size}: {needed} {unit} are needed and {limit} are available; {remedy}, or remove this size from {lists}"
        for unit, needed, limit, remedy in checks
        if needed is not None and limit is not None and limit < needed
    )


def _mib(value: int | None) -> int | None:
    return None if value is None else value // MIB


def problems(study: Study) -> tuple[str, ...]:
    """Return what this machine lacks for the study's sizes; UsageError for what no machine can provide."""
    if study.order == "growing":
        raise UsageError("order = 'growing': here every size is a fresh deployment; take ascending, or a cluster")
    sidecars = True in [has_sidecars(treatment) for treatment in study.treatments]  # all are checked
    available = machine()
    scoped = all(treatment.has("scoped") for treatment in study.treatments if has_sidecars(treatment))
    lines = [line for load in study.loads for line in shortfalls(load, needs(load, sidecars, scoped), available)]
    return tuple(dict.fromkeys(lines))


def machine() -> Resources:
    """Return what this machine has available now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Resources(
        files_per_process=None if soft == resource.RLIM_INFINITY else soft,
        files=_available_files(),
        threads=_least(
            _available_user_threads(),
            _available_kernel_threads(),
            _cgroup_available("pids", "pids.max", "pids.current"),
        ),
        memory_bytes=_least(
            proc.available_bytes(),
            _cgroup_available("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _cgroup_available("memory", "memory.max", "memory.current"),
        ),
    )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _numbers(path: str) -> list[int]:
    with suppress(OSError, ValueError):
        return [int(field) for field in Path(path).read_text().split()]
    return []


def _available_files() -> int | None:
    used = _numbers("/proc/sys/fs/file-nr")
    return used[2] - used[0] if len(used) == 3 else None


def _available_kernel_threads() -> int | None:
    most = _least(*_numbers("/proc/sys/kernel/threads-max"), *_numbers("/proc/sys/kernel/pid_max"))
    with suppress(OSError, ValueError, IndexError):
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        return None if most is None else most - running
    return most


def _available_user_threads() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    # The kernel does not apply this limit to root.
    if soft == resource.RLIM_INFINITY or os.geteuid() == 0:
        return None
    used = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                used += len(list((entry / "task").iterdir()))
    return soft - used


def _cgroup_available(controller: str, limit: str, used: str) -> int | None:
    """What this process's control group has available; file caches count as available."""
    for folder in proc.cgroup_folders(controller):
        most, now = _numbers(str(folder / limit)), _numbers(str(folder / used))
        if most and now:
            return most[0] - now[0] + _inactive_file(folder / "memory.stat")
    return None


def _inactive_file(stat: Path) -> int:
    with suppress(OSError, ValueError):
        counted = dict(line.split() for line in stat.read_text().splitlines())
        return int(counted.get("total_inactive_file", counted.get("inactive_file", "0")))
    return 0
