"""Whether the machine is large enough for the three tiers: what a size needs, and what is there.

What a proxy needs was measured with Envoy 1.40 (one worker): 43 file handles, 7 threads and about 16 MiB of its own
when it knows 400 endpoints, and 82 KiB more for every service that nobody calls; with margin. Limits are read where the
kernel keeps them; one that cannot be read is not held against the machine.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from meshtrial.design.load import Load
from meshtrial.design.study import Study
from meshtrial.errors import UsageError
from meshtrial.testbed.local import proc
from meshtrial.testbed.local.tiers import TIERS, has_sidecars

MIB = 2**20
FILES_A_PROXY, THREADS_A_PROXY, PSS_A_PROXY = 50, 7, 17 * MIB
PSS_AN_UNUSED_SERVICE = 90 * 2**10
_BASE_FILES, _BASE_THREADS, _BASE_PSS = 500, 120, 400 * MIB


@dataclass(frozen=True)
class Resources:
    """What one load needs, or what is there: then None where it cannot be read or is not limited."""

    files_a_process: int | None  # of the process that holds most: fan-out, client or control plane
    files: int | None  # of all processes together
    threads: int | None  # of all processes; kernels count them against limits on processes
    memory_bytes: int | None  # proportional set size of everything


def needs(load: Load, sidecars: bool, scoped: bool = False) -> Resources:
    """What a load needs, with sidecars or without; scoped ones are told of nothing that they do not call."""
    proxies = len(TIERS) * load.replicas if sidecars else 0
    unused = 0 if scoped else load.unused_services
    # A request in flight holds a socket on both sides of every hop; idle connections stay open.
    sockets = 2 * load.connections + 2 * len(TIERS) * load.replicas
    widest = max(2 * load.connections + load.replicas, proxies) + 200
    return Resources(
        files_a_process=widest,
        files=proxies * FILES_A_PROXY + 4 * sockets + _BASE_FILES,
        threads=proxies * THREADS_A_PROXY + _BASE_THREADS,
        memory_bytes=proxies * (PSS_A_PROXY + unused * PSS_AN_UNUSED_SERVICE) + _BASE_PSS,
    )


def shortfalls(load: Load, wanted: Resources, there: Resources) -> tuple[str, ...]:
    """One line for each thing that is too small, with the number needed, the number there, and what to do."""
    size, lists = f"{len(TIERS) * load.replicas} endpoints", "`sizes`"
    if load.unused_services:
        size, lists = f"{size} and {load.unused_services} unused services", "`sizes` or `unused_services`"
    checks = (
        ("open files a process", wanted.files_a_process, there.files_a_process, "raise it with `ulimit -n`"),
        ("open files in all", wanted.files, there.files, "raise the sysctl fs.file-max"),
        ("threads", wanted.threads, there.threads, "raise `ulimit -u`, kernel.threads-max or the pids cgroup"),
        ("MiB of memory", _mib(wanted.memory_bytes), _mib(there.memory_bytes), "use a larger machine"),
    )
    return tuple(
        f"{size}: {needed} {what} are needed and {left} are there; {mend}, or leave this size out of {lists}"
        for what, needed, left, mend in checks
        if needed is not None and left is not None and left < needed
    )


def _mib(value: int | None) -> int | None:
    return None if value is None else value // MIB


def problems(study: Study) -> tuple[str, ...]:
    """What this machine lacks for the study's sizes; UsageError for what no machine could do."""
    if study.order == "growing":
        raise UsageError("order = 'growing': here every size is a fresh deployment; take ascending, or a cluster")
    sidecars = True in [has_sidecars(treatment) for treatment in study.treatments]  # all are checked
    there = machine()
    scoped = all(treatment.has("scoped") for treatment in study.treatments if has_sidecars(treatment))
    lacking = [line for load in study.loads for line in shortfalls(load, needs(load, sidecars, scoped), there)]
    return tuple(dict.fromkeys(lacking))


def machine() -> Resources:
    """What this machine has left now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Resources(
        files_a_process=None if soft == resource.RLIM_INFINITY else soft,
        files=_files_left(),
        threads=_least(_user_threads_left(), _kernel_threads_left(), _cgroup_left("pids", "pids.max", "pids.current")),
        memory_bytes=_least(
            proc.available_bytes(),
            _cgroup_left("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _cgroup_left("memory", "memory.max", "memory.current"),
        ),
    )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _numbers(path: str) -> list[int]:
    with suppress(OSError, ValueError):
        return [int(field) for field in Path(path).read_text().split()]
    return []


def _files_left() -> int | None:
    used = _numbers("/proc/sys/fs/file-nr")
    return used[2] - used[0] if len(used) == 3 else None


def _kernel_threads_left() -> int | None:
    most = _least(*_numbers("/proc/sys/kernel/threads-max"), *_numbers("/proc/sys/kernel/pid_max"))
    with suppress(OSError, ValueError, IndexError):
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        return None if most is None else most - running
    return most


def _user_threads_left() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    # The kernel does not hold root to this limit.
    if soft == resource.RLIM_INFINITY or os.geteuid() == 0:
        return None
    mine = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                mine += len(list((entry / "task").iterdir()))
    return soft - mine


def _cgroup_left(controller: str, limit: str, used: str) -> int | None:
    """What our control group has left; file caches can be given up."""
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
