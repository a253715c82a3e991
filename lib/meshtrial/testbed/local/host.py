"""This machine: what a reader needs to judge a measurement, how awake it is, and nothing that names its owner.

A request that finds its core asleep waits until it woke, which on a virtual machine can be as long as the rest of a
small latency; light work beside a study keeps cores awake and so makes it look faster. So every run records before it
starts what it takes to wake an idle core and how fast a busy one runs, and a plan may hold the cores awake
(https://docs.kernel.org/power/pm_qos_interface.html).
"""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from meshtrial.errors import MissingToolError
from meshtrial.testbed.local import proc

DEVICE = Path("/dev/cpu_dma_latency")
LOOK_S = 0.2
_NAP_S = 0.0005
_WORK = bytes(2**20)


def require() -> None:
    """MissingToolError, with what works there, on a machine on which nothing local can be measured."""
    if not Path("/proc/self/stat").exists():
        raise MissingToolError(
            f"backend=local needs Linux with /proc, and this is {platform.system()} on {platform.machine()}"
            f"{' without it' if platform.system() == 'Linux' else ''}; "
            "give backend=kubernetes, or run the study on a Linux machine"
        )


def describe() -> dict[str, Any]:
    """CPU, cores, memory, kernel, governors, virtualisation, Python.

    What an idle core costs is part of every small latency: a request that finds its core asleep waits until it woke.
    """
    return {
        "cpu_model": _cpu_field("model name"),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not reported",
        "cpu_idle": _idle_driver() or "not reported",
        "halt_polling_ns": int(_read("/sys/module/haltpoll/parameters/guest_halt_poll_ns") or 0),
        "hypervisor": "hypervisor" in _cpu_field("flags").split(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "system": _os_name(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _cpu_field(name: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return "not reported"


def _idle_driver() -> str:
    folder = "/sys/devices/system/cpu/cpuidle"
    names = {"driver": "current_driver", "governor": "current_governor_ro"}
    drivers = {what: _read(f"{folder}/{name}") for what, name in names.items()}
    return ", ".join(f"{what} {value}" for what, value in drivers.items() if value)


def _os_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def look() -> dict[str, float]:
    """How idle and how fast the machine is, looked at for a fifth of a second.

    ``idle_before``, a share, where it can be read; ``wakeup_s``, the median delay with which a sleeping thread runs;
    ``spin_s``, the median time of hashing a mebibyte.
    """
    meter = proc.MachineMeter()
    late = []
    with _exact_timers():
        end = time.monotonic() + LOOK_S
        while (began := time.monotonic()) < end:
            time.sleep(_NAP_S)
            late.append(time.monotonic() - began - _NAP_S)
    used = meter.used()
    idle = {} if used is None else {"idle_before": 1.0 - used.busy}
    return idle | {"wakeup_s": statistics.median(late), "spin_s": statistics.median(_work_s() for _ in range(5))}


def _work_s() -> float:
    began = time.perf_counter()
    hashlib.sha256(_WORK).digest()
    return time.perf_counter() - began


@contextmanager
def _exact_timers() -> Iterator[None]:
    """Timers of this thread without the 50 µs by which the kernel may delay them to put wake-ups together."""
    file, before = Path(f"/proc/{threading.get_native_id()}/timerslack_ns"), ""
    with suppress(OSError):
        before = file.read_text()
        file.write_text("1")
    try:
        yield
    finally:
        with suppress(OSError):
            file.write_text(before)


class CpuLatencyHold:
    """Holds all cores out of their sleep states, from its making to :meth:`close`; MissingToolError where it cannot."""

    def __init__(self) -> None:
        try:
            self._held = os.open(DEVICE, os.O_WRONLY)
        except OSError as error:
            raise MissingToolError(
                f"keep_awake: {DEVICE} cannot be opened ({error.strerror}); run as root on a machine that has it, or "
                "leave it out"
            ) from None
        # Microseconds that a wake-up may take, for as long as the file is open.
        os.write(self._held, (0).to_bytes(4, "little"))

    def close(self) -> None:
        """Let them sleep again."""
        os.close(self._held)


def advice() -> str:
    """What waking a core takes here, and what to do about it."""
    wakeup_s = look()["wakeup_s"]
    said = f"wake up in {1e6 * wakeup_s:.0f} µs"
    if os.access(DEVICE, os.W_OK):
        return f"{said}; `-p keep_awake=true` holds them awake for a study"
    return f"{said}; as root, `-p keep_awake=true` holds them awake for a study where {DEVICE} is"
