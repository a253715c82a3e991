"""Build recipes: programs from pinned Go modules, and files that those modules contain.

Versions are pinned by the go.mod and go.sum files under ``go/``; nothing is tidied or resolved here.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testcluster.settings import (
    HELM_VERSION,
    HERE,
    ISTIO_HUB,
    ISTIO_REVISION,
    ISTIO_TAG,
    ISTIO_VERSION,
    KUBERNETES_VERSION,
    KWOK_VERSION,
    ClusterError,
)

_RECIPE = 1  # raised when the way programs are built changes
_KUBE = "k8s.io/component-base/version"
_ISTIO = "istio.io/istio/pkg/version"


@dataclass(frozen=True)
class Program:
    """One program: the module folder under ``go/``, the package, and how it is linked."""

    name: str
    module: str
    package: str = "."
    tags: str = ""
    values: Mapping[str, str] | None = None
    also: tuple[str, ...] = ()

    def command(self, go: Path, output: Path) -> list[str]:
        """The compiler's command line."""
        flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in (self.values or {}).items())])
        tags = [f"-tags={self.tags}"] if self.tags else []
        # No debugging records: the linker drops them (-s -w), and making them takes the compiler a sixth of its time.
        compiling = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"]
        head = [str(go), "build", *compiling, *tags]
        return [*head, f"-ldflags={flags}", "-o", str(output), self.package]

    def key(self) -> str:
        """Changes exactly if the program would."""
        folder = HERE / "go" / self.module
        digest = hashlib.sha256(repr((_RECIPE, self.command(Path("go"), Path(self.name)), self.also)).encode())
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()


_major, _minor, _ = KUBERNETES_VERSION.split(".")
_ISTIO_VALUES = {
    f"{_ISTIO}.buildVersion": ISTIO_VERSION,
    f"{_ISTIO}.buildGitRevision": ISTIO_REVISION,
    f"{_ISTIO}.buildTag": ISTIO_TAG,
    f"{_ISTIO}.buildHub": ISTIO_HUB,
    f"{_ISTIO}.buildStatus": "Clean",
}
# Two modules and not one for each program: within a module the versions agree, so the packages that programs share are
# compiled once. etcd is the version that this Kubernetes asks for itself; nothing in that module is raised by it.
PROGRAMS = (
    Program(
        "hyperkube",
        "kube",
        # Without these the API server says v0.0.0, and every client that checks for skew refuses it.
        values={
            f"{_KUBE}.gitVersion": f"v{KUBERNETES_VERSION}",
            f"{_KUBE}.gitMajor": _major,
            f"{_KUBE}.gitMinor": _minor,
            f"{_KUBE}.gitTreeState": "clean",
            f"{_KUBE}.gitCommit": "0" * 40,
            f"{_KUBE}.buildDate": "2026-01-01T00:00:00Z",
        },
        also=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    ),
    Program("etcd", "kube", "go.etcd.io/etcd/server/v3"),
    Program(
        "pilot-discovery",
        "tools",
        "istio.io/istio/pilot/cmd/pilot-discovery",
        tags="vtprotobuf,disable_pgv",
        values=_ISTIO_VALUES,
    ),
    Program(
        "pilot-agent",
        "tools",
        "istio.io/istio/pilot/cmd/pilot-agent",
        tags="agent,disable_pgv,grpcnotrace,retrynotrace",
        values=_ISTIO_VALUES,
    ),
    Program(
        "helm",
        "tools",
        "helm.sh/helm/v3/cmd/helm",
        values={"helm.sh/helm/v3/internal/version.version": f"v{HELM_VERSION}"},
    ),
    Program("coredns", "tools", "./coredns"),
    Program(
        "kwok",
        "tools",
        "sigs.k8s.io/kwok/cmd/kwok",
        values={"sigs.k8s.io/kwok/pkg/consts.Version": f"v{KWOK_VERSION}"},
    ),
    Program("fortio", "fortio", "fortio.org/fortio"),
    Program("pause", "pause"),
)
# Programs that no test needs are built on first request.
BY_HAND = (
    Program(
        "istioctl", "tools", "istio.io/istio/istioctl/cmd/istioctl", tags="vtprotobuf,disable_pgv", values=_ISTIO_VALUES
    ),
)


@dataclass(frozen=True)
class Files:
    """Files copied out of a Go module: charts and the like, which the module carries but no program embeds."""

    name: str
    module: str
    source: str
    copies: Mapping[str, str]  # a file or folder of the module to its name here
    # A copied file's name to the texts that are replaced in it; each must be there.
    swaps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)  # a file beside this one to its name among the copies

    def key(self) -> str:
        """Changes when the module's version, the list or a file of ours does."""
        folder = HERE / "go" / self.module
        content = (folder / "go.mod").read_text() + (folder / "go.sum").read_text()
        content += "".join((HERE / path).read_text() for path in self.added)
        return hashlib.sha256(repr((_RECIPE, self, content)).encode()).hexdigest()

    def adapt(self, copied: Path) -> None:
        """Make the replacements and additions; ClusterError for a text that a newer module does not have any more."""
        for name, texts in self.swaps.items():
            content = (copied / name).read_text()
            for old, new in texts.items():
                if old not in content:
                    raise ClusterError(f"{self.source}: {name} has no {old!r} any more; correct recipes.py")
                content = content.replace(old, new)
            (copied / name).write_text(content)
        for path, name in self.added.items():
            shutil.copyfile(HERE / path, copied / name)


FILES = (
    Files(
        "istio",
        "tools",
        "istio.io/istio",
        {
            "manifests/charts/base": "charts/base",
            "manifests/charts/istio-control/istio-discovery": "charts/istiod",
            "manifests/charts/istio-cni": "charts/cni",
            "manifests/charts/ztunnel": "charts/ztunnel",
            "manifests/charts/gateway": "charts/gateway",
            "tools/packaging/common/envoy_bootstrap.json": "envoy_bootstrap.json",
            "LICENSE": "LICENSE",
        },
        # Waypoints on a vanilla Envoy. The agent asks for this extension in every waypoint, whatever its options say.
        swaps={"envoy_bootstrap.json": {"{{- if .metadata_discovery }}": "{{- if false }}"}},
        added={"manifests/vanilla-waypoints.yaml": "charts/istiod/templates/vanilla-waypoints.yaml"},
    ),
    Files("gateway-api", "tools", "sigs.k8s.io/gateway-api", {"config/crd/standard": "crds", "LICENSE": "LICENSE"}),
    Files(
        "kwok",
        "tools",
        "sigs.k8s.io/kwok",
        {
            "kustomize/stage/node/fast/node-initialize.yaml": "node-initialize.yaml",
            # The one without a lease: every 20 to 25 s. That with a lease expects --node-lease-duration-seconds and
            # speaks every ten minutes; without leases its nodes are NotReady after 50 s, and their pods for good
            # (https://github.com/kubernetes-sigs/kwok/issues/1464). Leases would have a race of their own: a pod that
            # is bound before the simulator's cache has its node's lease is skipped and never looked at again.
            "kustomize/stage/node/heartbeat/node-heartbeat.yaml": "node-heartbeat.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml": "pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml": "pod-complete.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml": "pod-delete.yaml",
            "LICENSE": "LICENSE",
        },
    ),
)


def fingerprint() -> str:
    """Key of everything that a build makes from sources: a CI cache may be named by it."""
    keys = [item.key() for item in (*PROGRAMS, *FILES)]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
