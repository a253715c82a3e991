"""What this machine is: what a reader needs to judge a measurement, and nothing that names its owner."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshtrial.errors import MissingToolError


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
