"""Requirements on the machine: why it cannot run the cluster, and the Debian packages that it needs."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from testcluster import cgroups
from testcluster.procs import call, in_namespaces, namespace_inode
from testcluster.settings import (
    CONTROL_PLANE,
    HOST_LINK,
    NODE_NETWORK,
    NODES,
    POD_NETWORK,
    SERVICE_NETWORK,
    ClusterError,
    Layout,
    image_architecture,
)

# Programs of the nodes, and the Debian package that brings each.
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "iptables-nft": "iptables",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "modprobe": "kmod",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
_SYSTEM_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
}
_PROBES = (
    ("new namespaces are refused", "true"),
    ("no bridge or veth links", "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2"),
    (
        "iptables cannot redirect, track or balance connections",
        "iptables -t nat -A OUTPUT -p tcp -m conntrack --ctstate NEW -m statistic --mode random --probability 0.5 "
        "-m comment --comment probe -j REDIRECT --to-ports 1",
    ),
)


@dataclass(frozen=True)
class Machine:
    """Facts about the machine that the cluster needs."""

    plugins: Path
    snapshotter: str


def which(program: str) -> str | None:
    """Find a system program, also outside a user's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATHS}")


def plugin_folder() -> Path | None:
    """Return the folder with the CNI plugins, if they are installed."""
    for folder in _PLUGIN_FOLDERS:
        if all((folder / plugin).exists() for plugin in _PLUGINS):
            return folder
    return None


def missing_packages() -> list[str]:
    """Return the Debian packages that contain the missing programs."""
    missing = {package for program, package in _PROGRAMS.items() if which(program) is None}
    if plugin_folder() is None:
        missing.add("containernetworking-plugins")
    return sorted(missing)


def install_packages(say: Callable[[str], None]) -> None:
    """Install what is missing by apt; ClusterError where this is not root, or apt is not there or failed."""
    packages = missing_packages()
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"missing packages: {' '.join(packages)}; install them as root")
    say(f"installing {' '.join(packages)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # containerd's package would start an unwanted daemon that nobody stops.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = Path("/run/systemd/system").exists() and not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
            done = subprocess.run(
                ["apt-get", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or ["no message"]
                raise ClusterError(f"apt-get {arguments[0]} failed: {lines[0]}")
    finally:
        if ours:
            policy.unlink()


def _in_namespaces(script: str) -> bool:
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--uts", "--ipc", "/bin/sh", "-c", script]
    environment = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:{_SYSTEM_PATHS}"}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def snapshotter(layout: Layout) -> str:
    """Return how containerd stacks layers: overlayfs, or copies if the home's file system does not support it."""
    probe = layout.home / "overlay-probe"
    folders = [probe / name for name in ("lower", "upper", "work", "merged")]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        lower, upper, work, merged = folders
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        works = _in_namespaces(f"mount -t overlay overlay -o '{options}' '{merged}'")
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    return "overlayfs" if works else "native"


def _missing_capabilities() -> list[str]:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    return []


def _taken_networks() -> list[str]:
    """Return the machine's routes that overlap with the cluster's addresses."""
    taken = []
    for line in call(["ip", "-4", "route", "show", "table", "all"]).splitlines():
        words = line.split()
        if HOST_LINK in words or not words[0][0].isdigit():
            continue
        network = IPv4Network(words[0], strict=False)
        if network.prefixlen and any(network.overlaps(ours) for ours in (NODE_NETWORK, POD_NETWORK, SERVICE_NETWORK)):
            taken.append(words[0])
    return taken


def other_homes(layout: Layout) -> list[Layout]:
    """Return other homes with a cluster's network namespaces, running or killed."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        path = Path(words[4].encode().decode("unicode_escape"))
        home = Layout(path.parents[2]) if len(path.parents) > 2 else layout
        if words[words.index("-") + 1] == "nsfs" and path == home.netns(CONTROL_PLANE) and home != layout:
            found.append(home)
    return found


def inhabited(layout: Layout) -> bool:
    """Whether any process lives in the network namespaces of a home's cluster, and so somebody may be using it."""
    inodes = [namespace_inode(layout.netns(name)) for name in (CONTROL_PLANE, *NODES)]
    return bool(in_namespaces("net", inodes))


def _living_cluster_elsewhere(layout: Layout) -> str:
    if not Path(f"/sys/class/net/{HOST_LINK}").exists() or layout.run.exists():
        return ""
    others = other_homes(layout)
    for other in others:
        if inhabited(other):
            return f"a cluster is up in {other.home}; 'MESHTRIAL_CLUSTER_HOME={other.home} cluster down' ends it"
    return "" if others else f"link {HOST_LINK} exists, and is of no cluster that can be seen from here"


def reasons(layout: Layout) -> list[str]:
    """Return why this machine cannot run the cluster, one short phrase each; empty if it can.

    A running cluster in the same home is no reason, nor is one of another home without processes.
    """
    if platform.system() != "Linux":
        return [f"{platform.system()}, not Linux"]
    if os.geteuid() != 0:
        return ["not root"]
    try:
        image_architecture()
    except ClusterError as error:
        return [str(error)]
    found = []
    if absent := _missing_capabilities():
        found.append(f"root without {', '.join(absent)}")
    if packages := missing_packages():
        found.append(f"missing packages: {' '.join(packages)} ('tests/testcluster/cluster build --install-packages')")
    if which("unshare") and which("ip") and which("iptables") and not absent:
        for reason, script in _PROBES:
            if not _in_namespaces(script):
                found.append(reason)
                break
    found += cgroups.reasons()
    if which("ip"):
        if taken := _taken_networks():
            found.append(f"addresses already in use on this machine: {', '.join(taken)}")
        if other := _living_cluster_elsewhere(layout):
            found.append(other)
    memory = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    if (free := memory.get("MemAvailable", 0) >> 20) < 4:
        found.append(f"{free} GiB of memory available, 4 needed")
    return found


def inspect(layout: Layout) -> Machine:
    """Return the facts that a start needs; call it only after :func:`reasons` found none."""
    folder = plugin_folder()
    if folder is None:
        raise ClusterError("no CNI plugins; install the Debian package containernetworking-plugins")
    return Machine(folder, snapshotter(layout))
