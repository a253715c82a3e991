"""This machine: its description for the record without its owner's name, and how fast and how idle it is.

A request whose core is asleep waits until the core has woken up. On a virtual machine this can take as long as the rest
of a small latency, so light work beside a study, which keeps cores awake, makes the study look faster. Every run
therefore records beforehand how long an idle core takes to wake up, how fast a busy one, its memory and its network
stack are, and how fragmented memory is. A plan may also keep the cores awake
(https://docs.kernel.org/power/pm_qos_interface.html).
"""

import functools
import hashlib
import mmap
import os
import platform
import resource
import socket
import statistics
import threading
import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial.errors import MissingToolError
from meshtrial.testbed.local import proc

DEVICE = Path("/dev/cpu_dma_latency")
_SAMPLE_S = 0.2
_NAP_S = 0.0005
_WORK = bytes(2**20)
# Larger than any cache that a core has to itself, and touched so sparsely that setting it up takes a few milliseconds.
_CHAIN_BYTES, _CHAIN_NODES, _CHAIN_STEPS = 2**26, 2**17, 2000
_ROUND_TRIPS, _MESSAGE = 100, bytes(100)
_HUGE_PAGE_ORDER = 9  # 2 MiB in pages of 4 KiB


def require() -> None:
    """Raise MissingToolError, with an alternative, if this machine cannot run the local backend."""
    if not Path("/proc/self/stat").exists():
        raise MissingToolError(
            f"backend=local needs Linux with /proc, and this is {platform.system()} on {platform.machine()}"
            f"{' without it' if platform.system() == 'Linux' else ''}; "
            "give backend=kubernetes, or run the study on a Linux machine"
        )


def describe() -> dict[str, Any]:
    """Return CPU, cores, memory, kernel, governors, virtualisation and Python version, for the record."""
    names = {"driver": "current_driver", "governor": "current_governor_ro"}
    drivers = {label: _read(f"/sys/devices/system/cpu/cpuidle/{name}") for label, name in names.items()}
    return {
        "cpu_model": proc.field("/proc/cpuinfo", "model name") or "not reported",
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not reported",
        "cpu_idle": ", ".join(f"{label} {value}" for label, value in drivers.items() if value) or "not reported",
        "halt_polling_ns": int(_read("/sys/module/haltpoll/parameters/guest_halt_poll_ns") or 0),
        "hypervisor": "hypervisor" in proc.field("/proc/cpuinfo", "flags").split(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "system": _os_name(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _os_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def sample() -> dict[str, float]:
    """Sample the machine for a fifth of a second; return responses that describe how idle and how fast it is.

    - ``idle_before``: the idle share of all cores, if it can be read
    - ``wakeup_s``: the median delay of a sleeping thread's wake-up
    - ``spin_s``: the median time to hash one mebibyte
    - ``memory_latency_s``: the time of a read from memory that depends on the previous read
    - ``loopback_s``: the median time of a message over loopback TCP and back, within one thread
    - ``free_huge_pages``: the share of free memory in blocks of at least 2 MiB, if it can be read
    """
    meter = proc.MachineMeter()
    late = []
    with _exact_timers():
        end = time.monotonic() + _SAMPLE_S
        while (began := time.monotonic()) < end:
            time.sleep(_NAP_S)
            late.append(time.monotonic() - began - _NAP_S)
    used = meter.used()
    idle = {} if used is None else {"idle_before": 1.0 - used.busy}
    unfragmented = free_huge_pages()
    return {
        **idle,
        "wakeup_s": statistics.median(late),
        "spin_s": statistics.median(timeit.repeat(lambda: hashlib.sha256(_WORK).digest(), number=1, repeat=5)),
        "memory_latency_s": _memory_latency_s(),
        "loopback_s": _loopback_s(),
        **({} if unfragmented is None else {"free_huge_pages": unfragmented}),
    }


class Chain:
    """A cycle through memory in random order; every node holds the index of the next."""

    def __init__(self, memory: memoryview, nodes: int) -> None:
        cells = np.frombuffer(memory, dtype=np.int64)
        order = np.random.default_rng(0).permutation(nodes) * (len(cells) // nodes)
        cells[order] = np.roll(order, -1)
        self.cells, self.at = memory.cast("q"), 0

    def step_s(self) -> float:
        """Return the median seconds of a step with the interpreter's time; calls continue each other's walk."""
        return statistics.median(self._walk() for _ in range(5)) / _CHAIN_STEPS

    def _walk(self) -> float:
        cells, at, began = self.cells, self.at, time.perf_counter()
        for _ in range(_CHAIN_STEPS):
            at = cells[at]
        self.at = at
        return time.perf_counter() - began


@functools.cache
def _chains() -> tuple[Chain, Chain]:
    """Return one in memory and one that the innermost cache holds."""
    memory = mmap.mmap(-1, _CHAIN_BYTES)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # the pages that most programs get
    return Chain(memoryview(memory), _CHAIN_NODES), Chain(memoryview(bytearray(2**12)), 2**9)


def _memory_latency_s() -> float:
    """Return the time of a dependent read from memory: the time of a long chain of reads less that of a short one."""
    long, short = _chains()
    return max(0.0, long.step_s() - short.step_s())


def _loopback_s() -> float:
    """Return the time that the kernel takes to send and receive a message twice; no other thread has to wake up."""
    taken = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            for sender, receiver in ((near, far), (far, near)):
                sender.sendall(_MESSAGE)
                receiver.recv(len(_MESSAGE))
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def free_huge_pages(path: Path = Path("/proc/buddyinfo")) -> float | None:
    """Return the share of free memory in blocks of at least a huge page; None if it cannot be read."""
    free = huge = 0
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            # Node 0, zone Normal, then the number of free blocks of 1, 2, 4, 8 ... pages
            for order, blocks in enumerate(line.split()[4:]):
                free += int(blocks) << order
                huge += (int(blocks) << order) * (order >= _HUGE_PAGE_ORDER)
    return huge / free if free else None


@contextmanager
def _exact_timers() -> Iterator[None]:
    """Switch off the 50 µs by which the kernel may delay this thread's timers to coalesce wake-ups."""
    file, before = Path(f"/proc/{threading.get_native_id()}/timerslack_ns"), ""
    with suppress(OSError):
        before = file.read_text()
        file.write_text("1")
    try:
        yield
    finally:
        with suppress(OSError):
            file.write_text(before)


def settle(root: Path = Path("/proc/sys/vm")) -> tuple[str, ...]:
    """Drop the kernel's caches and compact memory, which both need root; return what was done, in words.

    The fragmentation of memory differs between sessions and decides how many huge pages a process gets
    (https://docs.kernel.org/admin-guide/sysctl/vm.html).
    """
    os.sync()
    done = []
    for name, value, words in (("drop_caches", "3", "caches dropped"), ("compact_memory", "1", "memory compacted")):
        with suppress(OSError):
            (root / name).write_text(value)
            done.append(words)
    return tuple(done)


class CpuLatencyHold:
    """Keeps all cores out of sleep states until :meth:`close`; MissingToolError if this machine does not allow it."""

    def __init__(self) -> None:
        try:
            self._device = os.open(DEVICE, os.O_WRONLY)
        except OSError as error:
            raise MissingToolError(
                f"keep_awake: {DEVICE} cannot be opened ({error.strerror}); run as root on a machine that has it, or "
                "leave out keep_awake"
            ) from None
        # The longest permitted wake-up in microseconds, in force while the file is open.
        os.write(self._device, (0).to_bytes(4, "little"))

    def close(self) -> None:
        """Let the cores sleep again."""
        os.close(self._device)


def advice() -> str:
    """Return how long a core takes to wake up on this machine, and how to keep cores awake during a study."""
    measured = f"wake up in {1e6 * sample()['wakeup_s']:.0f} µs"
    if os.access(DEVICE, os.W_OK):
        return f"{measured}; `-p keep_awake=true` keeps them awake during a study"
    return f"{measured}; as root on a machine with {DEVICE}, `-p keep_awake=true` keeps them awake during a study"


@dataclass(frozen=True)
class Resources:
    """Resources that a load needs, or that are available; None for a limit that does not exist or is unreadable."""

    files_per_process: int | None  # open files of the process that has the most: fan-out, client or control plane
    files: int | None  # of all processes together
    threads: int | None  # of all processes; kernels count them against limits of processes
    memory_bytes: int | None  # proportional set size of all processes


def available() -> Resources:
    """Return what this machine has available now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allocated = _numbers("/proc/sys/fs/file-nr")  # in use, unused, the most
    return Resources(
        files_per_process=None if soft == resource.RLIM_INFINITY else soft,
        files=allocated[2] - allocated[0] if len(allocated) == 3 else None,
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
    """Resources available to this process's control group; file caches count as available."""
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
