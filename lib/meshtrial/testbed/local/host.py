"""What this machine is: what a reader needs to judge a measurement, and nothing that names its owner."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from meshtrial.errors import MissingToolError


def require() -> None:
    """Refuse a machine on which nothing local can be measured.

    Raises
    ------
    MissingToolError
        In one line, with what works there.
    """
    if not Path("/proc/self/stat").exists():
        raise MissingToolError(
            f"backend=local needs Linux with /proc, and this is {platform.system()} on {platform.machine()}"
            f"{' without it' if platform.system() == 'Linux' else ''}; "
            "give backend=kubernetes, or run the study on a Linux machine"
        )


def describe() -> dict[str, Any]:
    """CPU, cores, memory, kernel, governor, virtualisation, Python."""
    return {
        "cpu_model": _cpu_field("model name"),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not reported",
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


def _os_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""
