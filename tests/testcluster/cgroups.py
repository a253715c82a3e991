"""One cgroup tree per node in every hierarchy, so that a node's pods can be counted and removed.

Version 1 and hybrid machines have been tested. Version 2 uses the same path with one hierarchy; there the kernel
requires delegated controllers, which is undone afterwards.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testcluster import procs
from testcluster.settings import CGROUP_PREFIX, CannotRunError

_NEEDED = ("cpu", "cpuacct", "cpuset", "devices", "memory", "pids")
_NEEDED_V2 = ("cpu", "cpuset", "memory", "pids")


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup file system."""

    path: Path
    version: int
    options: frozenset[str]


def hierarchies() -> list[Hierarchy]:
    """Every cgroup file system that is mounted, once each."""
    found: dict[Path, Hierarchy] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            path = Path(left.split()[4])
            found.setdefault(path, Hierarchy(path, 2 if kind == "cgroup2" else 1, frozenset(options.split(","))))
    return list(found.values())


def version() -> int:
    """Return the version of the hierarchy with the controllers: 1 also on a hybrid machine, 0 if nothing is mounted."""
    mounted = hierarchies()
    if any(tree.version == 1 and tree.options & set(_NEEDED) for tree in mounted):
        return 1
    return 2 if mounted else 0


def _controllers(tree: Hierarchy, name: str) -> set[str]:
    try:
        return set((tree.path / name).read_text().split())
    except OSError:
        return set()


def reasons() -> list[str]:
    """Return why nodes could not have their cgroups here."""
    mounted = hierarchies()
    if not mounted:
        return ["no cgroups mounted"]
    if version() == 1:
        present = set().union(*(tree.options for tree in mounted if tree.version == 1))
        absent = [name for name in _NEEDED if name not in present]
    else:
        absent = [name for name in _NEEDED_V2 if name not in _controllers(mounted[0], "cgroup.controllers")]
    found = [f"no cgroup controllers {', '.join(absent)}"] if absent else []
    probe = mounted[0].path / f"{CGROUP_PREFIX}probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        found.append(f"cannot make a cgroup: {error.strerror}")
    return found


def make(node: str) -> list[str]:
    """Make a node's trees; return the version 2 controllers that had to be delegated for them."""
    handed = []
    two = version() == 2
    for tree in hierarchies():
        folder = tree.path / f"{CGROUP_PREFIX}{node}"
        if two:
            wanted = set(_NEEDED_V2) | ({"io", "hugetlb"} & _controllers(tree, "cgroup.controllers"))
            for name in sorted(wanted - _controllers(tree, "cgroup.subtree_control")):
                try:
                    (tree.path / "cgroup.subtree_control").write_text(f"+{name}")
                except OSError as error:  # inside a container, whose own processes block delegation
                    reason = f"cannot hand down cgroup controller {name} from {tree.path}: {error.strerror}"
                    raise CannotRunError(reason) from None
                handed.append(name)
            folder.mkdir(exist_ok=True)
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(wanted)))
            continue
        folder.mkdir(exist_ok=True)
        if "cpuset" in tree.options:  # version 1 leaves them empty, and an empty set takes no process
            for name in ("cpuset.cpus", "cpuset.mems"):
                (folder / name).write_text((tree.path / name).read_text())
    return handed


def trees(nodes: Sequence[str]) -> list[Path]:
    """Return the existing trees of nodes."""
    paths = [tree.path / f"{CGROUP_PREFIX}{node}" for tree in hierarchies() for node in nodes]
    return [path for path in paths if path.exists()]


def members(nodes: Sequence[str]) -> set[int]:
    """Return the processes anywhere in the nodes' trees."""
    found: set[int] = set()
    for tree in trees(nodes):
        for listing in tree.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is threaded
                found.update(
                    int(word) for word in listing.read_text().split() if word != "0"
                )  # 0: in another pid namespace
    return found


def remove(nodes: Sequence[str], timeout_s: float = 10) -> None:
    """End all processes in the nodes' trees and remove the trees; the caller sees what resists."""
    deadline = time.monotonic() + timeout_s
    while trees(nodes):
        procs.kill(members(nodes))
        for tree in trees(nodes):
            # Leaves first. A dying task keeps its group busy for a moment, so the outer loop retries.
            for folder in sorted((path for path in tree.rglob("*") if path.is_dir()), key=lambda p: -len(p.parts)):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                tree.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def take_back(controllers: Sequence[str]) -> None:
    """Undo what :func:`make` delegated."""
    for tree in hierarchies():
        for name in controllers:
            with contextlib.suppress(OSError):  # somebody else uses it
                (tree.path / "cgroup.subtree_control").write_text(f"-{name}")
