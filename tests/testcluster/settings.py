"""Versions, names, addresses and folders: everything that two modules must agree on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]

KUBERNETES_VERSION = "1.34.4"
COREDNS_VERSION = "1.14.5"
FORTIO_VERSION = "1.68.1"
KWOK_VERSION = "0.8.0"
HELM_VERSION = "3.21.0"
# A development snapshot, and the only commit of Istio that the Go module proxy serves whole: never call it a release.
ISTIO_VERSION = "1.31-dev.eed52ebb66ad"
ISTIO_REVISION = "eed52ebb66ad"

# `.test` is reserved and never resolves: a node that tried to pull such an image would fail at once.
REGISTRY = "meshtrial.test"
ISTIO_HUB = f"{REGISTRY}/istio"
ISTIO_TAG = ISTIO_VERSION

NODES = ("n1", "n2")
NODE_NETWORK = IPv4Network("10.99.0.0/24")
POD_NETWORK = IPv4Network("10.244.0.0/16")
SERVICE_NETWORK = IPv4Network("10.96.0.0/16")
API_ADDRESS = "10.99.0.1"
API_PORT = 6443
HOST_ADDRESS = "10.99.0.254"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

# Names on the machine. They are the project's own, so that cleaning up by name can hit nobody else's things.
HOST_LINK = "mtrial0"
CGROUP_PREFIX = "meshtrial-"
CONTROL_PLANE = "cp"


class ClusterError(Exception):
    """An error in one line: what, where, and what to do next."""


class CannotRunError(ClusterError):
    """This machine cannot run the cluster; the message says why."""


@dataclass(frozen=True)
class Layout:
    """The folders of one cluster home: what was built, and the state of a running cluster."""

    home: Path

    @classmethod
    def default(cls, environ: Mapping[str, str] = os.environ) -> Layout:
        """``MESHTRIAL_CLUSTER_HOME``, else ``~/.cache/meshtrial/cluster``."""
        override = environ.get("MESHTRIAL_CLUSTER_HOME")
        home = Path(override).expanduser() if override else Path.home() / ".cache" / "meshtrial" / "cluster"
        home = home.absolute()
        if home.is_relative_to(CHECKOUT):
            raise ClusterError(f"MESHTRIAL_CLUSTER_HOME={home} is inside the checkout; choose a folder outside of it")
        return cls(home)

    @property
    def bin(self) -> Path:
        """Built programs."""
        return self.home / "bin"

    @property
    def share(self) -> Path:
        """Charts, CRDs and stage files, copied out of the Go modules."""
        return self.home / "share"

    @property
    def images(self) -> Path:
        """Image archives and their index."""
        return self.home / "images"

    @property
    def logs(self) -> Path:
        """Logs of the last cluster; they stay after it."""
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """Everything that exists only while a cluster is up, keys included."""
        return self.home / "run"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig of the running cluster."""
        return self.run / "kubeconfig"

    def program(self, name: str) -> Path:
        """Path of a built program."""
        return self.bin / name

    def netns(self, name: str) -> Path:
        """The file that holds a network namespace."""
        return self.run / "netns" / name


def node_address(node: str) -> str:
    """Address of a node on the cluster's own bridge: n1 is 10.99.0.11."""
    return str(NODE_NETWORK[10 + NODES.index(node) + 1])


def node_pods(node: str) -> IPv4Network:
    """Pod addresses of a node: n1 has 10.244.1.0/24."""
    return list(POD_NETWORK.subnets(new_prefix=24))[NODES.index(node) + 1]


def image_architecture() -> str:
    """Architecture in the words of an image's configuration."""
    machine = platform.machine()
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    if machine not in known:
        raise CannotRunError(f"no images for {machine} machines; the cluster runs on x86_64 and aarch64")
    return known[machine]


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is CI, where a cluster that cannot run is a failure and not a skip."""
    return environ.get("CI", "").lower() in ("1", "true", "yes")


@dataclass(frozen=True)
class Options:
    """Options of a cluster's start."""

    pin: bool = False  # half of the machine's CPUs for each node's pods; calms measurements on a quiet machine only
    # How often the kubelet samples CPU use. Its own default is 10s, too coarse for load windows of seconds.
    housekeeping: str = "1s"
