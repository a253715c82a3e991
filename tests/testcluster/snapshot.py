"""A snapshot of a machine without the cluster's own records, taken before and after, to prove that nothing remains.

Deliberately shares no code with the clean-up that it checks.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "runc", "etcd", "hyperkube", "kwok", "kubelet")
_SYSCTLS = ("vm", "kernel", "fs/inotify", "net/ipv4/conf/all", "net/ipv4/conf/default", "net/bridge", "net/netfilter")
# Counters, random numbers, and values that the kernel itself moves.
_VOLATILE = (
    "ns_last_pid",
    "random/",
    "nf_conntrack_count",
    "stat_refresh",
    "compact_memory",
    "drop_caches",
    "sched_domain",
    "perf_event_max_sample_rate",
    "pty/nr",
)
# mount(8) creates its own files at the first mount on a machine, and they remain.
_OF_THE_MACHINE = {"/run/mount", "/var/run/mount"}
_FOLDERS = ("/run", "/var/lib", "/var/log", "/var/run", "/etc", "/etc/cni", "/opt", "/opt/cni", "/usr/libexec")


@dataclass(frozen=True)
class Snapshot:
    """Sets of lines, one set for each kind of thing."""

    kinds: dict[str, frozenset[str]]

    def added(self, later: Snapshot) -> dict[str, list[str]]:
        """Return what `later` has and this one lacks, by kind; empty kinds are left out."""
        new = {kind: sorted(later.kinds[kind] - lines) for kind, lines in self.kinds.items()}
        return {kind: lines for kind, lines in new.items() if lines}


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def _processes() -> set[str]:
    """Programs that only a cluster runs, and whatever is in a network namespace other than this process's own."""
    own = Path("/proc/self/ns/net").readlink()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name = (entry / "exe").readlink().name
                if name in _PROGRAMS or (entry / "ns/net").readlink() != own:
                    found.add(f"{entry.name} {name}")
    return found


def _cgroups() -> set[str]:
    """Groups at the top of every hierarchy, and those that containers made; other programs' groups change anyway."""
    root = Path("/sys/fs/cgroup")
    tops = {str(path) for path in [*root.iterdir(), *root.glob("*/*")] if path.is_dir()}
    return tops | {str(path) for path in root.rglob("kubepods*") if path.is_dir()}


def _sysctls() -> set[str]:
    found = set()
    for root in _SYSCTLS:
        for path in Path("/proc/sys", root).rglob("*"):
            if path.is_file() and not any(word in str(path) for word in _VOLATILE):
                with contextlib.suppress(OSError, ValueError):
                    found.add(f"{path} = {path.read_text().strip()}")
    return found


def take() -> Snapshot:
    """Take a snapshot of the machine."""
    links = {link["ifname"] for link in json.loads(_ip("-json", "link"))}
    routes = {line.strip() for line in _ip("route", "show", "table", "all").splitlines()}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    cgroups = _cgroups()
    folders = {str(path) for root in _FOLDERS if Path(root).is_dir() for path in Path(root).iterdir()} - _OF_THE_MACHINE
    kinds = {
        "process": _processes(),
        "link": links,
        "route": routes,
        "mount": mounts,
        "cgroup": cgroups,
        "sysctl": _sysctls(),
        "folder": folders,
    }
    return Snapshot({kind: frozenset(lines) for kind, lines in kinds.items()})
