"""What the backend's cluster tests share: options of the cluster at hand, one run made and checked.

Most tests use the test cluster (fixture ``cluster``). Those that hold on any cluster take the fixture ``ground``: the
test cluster by default, and with ``MESHTRIAL_TEST_KUBECONFIG`` a cluster of the user's own, which pulls release images.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clusterenv import Cluster, ClusterError, procs
from clusterenv.meshimages import MESHES
from clusterenv.settings import REGISTRY

from meshtrial.load import fortio
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.study import Load, Study, Treatment
from meshtrial.testbed.base import GeneratorOutput, usage_between
from meshtrial.testbed.kubernetes import KubernetesTestbed
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

OWN_KUBECONFIG = "MESHTRIAL_TEST_KUBECONFIG"
OWN_CLUSTER_FILE = "MESHTRIAL_TEST_CLUSTER_FILE"
LOAD = Load(rps=100, connections=4, duration_s=4, warmup_s=1)
MANAGED = "app.kubernetes.io/managed-by=meshtrial"


def _split(reference: str) -> tuple[str, str]:
    """Repository and tag: ``x.test/kuma/kuma-cp:2`` is ``x.test/kuma/kuma-cp`` and ``2``."""
    repository, _, tag = reference.rpartition(":")
    return repository, tag


def _common(cluster: Cluster, *images: str) -> tuple[str, str]:
    """Registry with folder, and tag, that a mesh's images share: its charts take no more than one of each."""
    found = {name: _split(cluster.foreign.reference(name)) for name in images}
    hubs = {repository.rpartition("/")[0] for repository, _ in found.values()}
    tags = {tag for _, tag in found.values()}
    if len(hubs) != 1 or len(tags) != 1:
        raise ClusterError(
            f"{', '.join(images)}: must lie under one name and have one tag, not "
            f"{', '.join(':'.join(pair) for pair in found.values())}; tag them alike before 'docker save'"
        )
    return hubs.pop(), tags.pop()


def _version(hub: str, tag: str) -> str:
    """What records call it: a registry that cannot exist holds own builds."""
    return f"{tag} (own build)" if hub.startswith(f"{REGISTRY}/") else tag


def _istio(cluster: Cluster) -> dict[str, Any]:
    istio = cluster.istio()
    return {
        "version": istio.version,
        "charts": {name: {"path": str(istio.charts / chart)} for name, chart in _ISTIO_CHARTS.items()},
        "values": {"istiod": str(istio.values_file())},
    }


_ISTIO_CHARTS = {"istio-base": "base", "istiod": "istiod"}
_AMBIENT_CHARTS = {**_ISTIO_CHARTS, "istio-cni": "cni", "ztunnel": "ztunnel"}


def _ambient(cluster: Cluster) -> dict[str, Any]:
    istio = cluster.istio()
    hub, tag = _common(cluster, "ztunnel", "install-cni")
    return {
        # istiod is the one that is built here, whatever the nodes' proxies are.
        "version": istio.version if tag == istio.tag else f"{istio.version}, ztunnel {tag}",
        "charts": {name: {"path": str(istio.charts / chart)} for name, chart in _AMBIENT_CHARTS.items()},
        # After the parameters, so istiod and the waypoints are the images that are built here.
        "values": {"istiod": str(istio.values_file())},
        "parameters": {
            "image_hub": hub,
            "image_tag": tag,
            "image_pull_policy": "Never",
            # Where every node of the test cluster has them, private to it (clusterenv/node-init.sh).
            "cni_bin_dir": "/opt/cni/bin",
            "cni_conf_dir": "/etc/cni/net.d",
            "cni_netns_dir": "/run/netns",
        },
    }


def _linkerd(cluster: Cluster) -> dict[str, Any]:
    hub, tag = _common(cluster, "controller", "proxy")
    return {
        "version": _version(hub, tag),
        "charts": {name: {"path": str(cluster.charts[name])} for name in ("linkerd-crds", "linkerd-control-plane")},
        "parameters": {
            "image_tag": tag,
            "controller_image": f"{hub}/controller",
            "proxy_image": f"{hub}/proxy",
            "image_pull_policy": "Never",
        },
    }


def _kuma(cluster: Cluster) -> dict[str, Any]:
    hub, tag = _common(cluster, "kuma-cp", "kuma-dp", "kuma-init")
    kubectl, kubectl_tag = _split(cluster.images["kubectl"])
    registry, _, repository = kubectl.partition("/")
    return {
        "version": _version(hub, tag),
        "charts": {"kuma": {"path": str(cluster.charts["kuma"])}},
        "parameters": {"image_hub": hub, "image_tag": tag, "image_pull_policy": "Never"},
        "values": {
            "kuma": {
                "kubectl": {"image": {"registry": registry, "repository": repository, "tag": kubectl_tag}},
                # Its hook asks for a shell beside kubectl; Helm itself installs the CRDs of a first installation.
                "installCrdsOnUpgrade": {"enabled": False},
            }
        },
    }


# Meshes whose images come from the folder of meshes, and what a study on the test cluster must say of each.
_FOREIGN = {"istio-ambient": _ambient, "linkerd": _linkerd, "kuma": _kuma}


def options_for(cluster: Cluster, **more: Any) -> dict[str, Any]:
    """Options of a study on the test cluster: images and charts that are there, nothing is pulled."""
    chosen = {"istio": _istio(cluster)}
    chosen |= {name: said(cluster) for name, said in _FOREIGN.items() if cluster.has_mesh(name)}
    names = {"fortio": "fortio", "busybox": "busybox", "envoy": "envoy", "counter-api": "counter-api"}
    images = {name: cluster.images[key] for name, key in names.items() if key in cluster.images}
    for key in ("opa-extauthz", "opa-ext-authz"):
        if key in cluster.images:
            images["opa-extauthz"] = images["opa"] = cluster.images[key]
    return {
        "kubernetes": {
            "kubeconfig": str(cluster.kubeconfig),
            "helm": str(cluster.program("helm")),
            "meshes": chosen,
            "images": images,
            "image_pull_policy": "Never",
            "opa_server": "opa-extauthz",
            "proxy_cpu": "1",
            "api_patience_s": 30,
            **more,
        }
    }


def own_kubeconfig(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Kubeconfig of the user's own cluster that the tests are asked to use; None for the test cluster.

    Raises
    ------
    ClusterError
        It is not there, or options without it.
    """
    for name in (OWN_KUBECONFIG, OWN_CLUSTER_FILE):
        if environ.get(name) and not Path(environ[name]).expanduser().is_file():
            raise ClusterError(f"{name}={environ[name]} is not a file; name one, or unset it for the test cluster")
    if not environ.get(OWN_KUBECONFIG):
        if environ.get(OWN_CLUSTER_FILE):
            raise ClusterError(f"{OWN_CLUSTER_FILE} is set without {OWN_KUBECONFIG}; set both, or neither")
        return None
    return Path(environ[OWN_KUBECONFIG]).expanduser().absolute()


@dataclass(frozen=True)
class Ground:
    """The cluster that a conformance test stands on.

    Attributes
    ----------
    kubeconfig : Path
    meshes : tuple of str
        Those that can be installed on it; on an own cluster all, for it pulls their releases.
    cluster : Cluster, optional
        The test cluster; None on an own one.
    cluster_file : str
        The user's options for an own cluster.
    """

    kubeconfig: Path
    meshes: tuple[str, ...]
    cluster: Cluster | None = None
    cluster_file: str = ""

    @property
    def own(self) -> bool:
        """Whether it is the user's own cluster: other things may run on it."""
        return self.cluster is None

    def options(self, **more: Any) -> dict[str, Any]:
        """Options of a study on it."""
        if self.cluster is not None:
            return options_for(self.cluster, **more)
        file = {"cluster_file": self.cluster_file} if self.cluster_file else {}
        return {"kubernetes": {**file, "kubeconfig": str(self.kubeconfig), **more}}

    @contextmanager
    def bed(self, **more: Any) -> Iterator[KubernetesTestbed]:
        """A testbed on it, closed whatever happens."""
        bed = KubernetesTestbed(self.options(**more))
        try:
            yield bed
        finally:
            if self.cluster is not None:
                self.cluster.start_api_server()
            bed.close()

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl on it; ClusterError with its last line if it fails."""
        if self.cluster is not None:
            return self.cluster.kubectl(*arguments, stdin=stdin, timeout_s=timeout_s)
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError("kubectl is not on PATH; tests on a cluster of your own need it")
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        return procs.call([program, *arguments], stdin=stdin, timeout_s=timeout_s, env=environment)

    def get(self, *arguments: str) -> Any:
        """``kubectl get ... -o json``, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def require_mesh(self, name: str) -> None:
        """Skip the test by the mesh's name where it cannot be installed; fail where it must be (CI with the folder)."""
        if self.cluster is not None:
            must, reason = self.cluster.foreign.verdict(name)
            if reason:
                (pytest.fail if must else pytest.skip)(reason)
        elif name not in self.meshes:
            pytest.fail(f"{name}: no such mesh; there are {', '.join(self.meshes)}", pytrace=False)


def ground_on(cluster: Cluster) -> Ground:
    """The test cluster, with the meshes that it has images of."""
    meshes = ("istio", *(name for name in MESHES if cluster.has_mesh(name)))
    return Ground(cluster.kubeconfig, meshes, cluster)


def own_ground(kubeconfig: Path, environ: Mapping[str, str] = os.environ) -> Ground:
    """A cluster of the user's own."""
    file = environ.get(OWN_CLUSTER_FILE, "")
    options = KubernetesOptions.read({"kubernetes": {"cluster_file": file} if file else {}})
    meshes = tuple(name for name, mesh in find_meshes(options).items() if not mesh.reference)
    return Ground(kubeconfig, meshes, cluster_file=file)


@contextmanager
def bed_on(cluster: Cluster, **more: Any) -> Iterator[KubernetesTestbed]:
    """A testbed that is closed whatever happens."""
    bed = KubernetesTestbed(options_for(cluster, **more))
    try:
        yield bed
    finally:
        cluster.start_api_server()
        bed.close()


def study(name: str, *treatments: str, load: Load = LOAD, app: str = "echo") -> Study:
    """A study of these treatments."""
    parsed = tuple(Treatment.parse(t) for t in treatments)
    return Study(
        name=name,
        title=name,
        question="?",
        backend="kubernetes",
        app=app,
        treatments=parsed,
        baseline=parsed[0],
        loads=(load,),
        primary=(),
        margins={},
        blocks=1,
        seed=1,
    )


@dataclass(frozen=True)
class Run:
    """What one run of a deployment left."""

    proofs: tuple[Proof, ...]
    outputs: tuple[GeneratorOutput, ...]
    usage: Mapping[str, ComponentUsage]
    extra: Mapping[str, Any]
    versions: Mapping[str, str]
    requests: int
    deploy_s: float

    @property
    def failed(self) -> list[str]:
        """Proofs that failed, in words."""
        return [f"{p.name} ({p.phase}): expected {p.expected}, saw {p.observed}" for p in self.proofs if not p.passed]

    @property
    def names(self) -> set[str]:
        """Names of the proofs that were made."""
        return {p.name for p in self.proofs}


def one_run(bed: KubernetesTestbed, treatment: str, folder: Path, load: Load = LOAD, app: str = "echo") -> Run:
    """What the runner does with a deployment, from its birth to its end."""
    began = time.monotonic()
    deployment = bed.deploy(Treatment.parse(treatment), load, app)
    deploy_s = time.monotonic() - began
    try:
        proofs = list(deployment.prove("before", 0))
        warm = deployment.generate(fortio.calls(load, "warmup"), folder, 60)
        before = deployment.snapshot()
        outputs = deployment.generate(fortio.calls(load, "measure"), folder, 60)
        after = deployment.snapshot()
        counts = [json.loads(o.json_path.read_text())["DurationHistogram"]["Count"] for o in (*warm, *outputs)]
        proofs += deployment.prove("after", sum(counts))
        deployment.collect_logs(folder / "logs")
        usage = {u.component: u for u in usage_between(before, after)}
        return Run(
            tuple(proofs), outputs, usage, deployment.extra(), deployment.versions, sum(counts[len(warm) :]), deploy_s
        )
    finally:
        deployment.close()


def owned_namespaces(cluster: Cluster) -> list[str]:
    """Namespaces of ours that stand and are not going."""
    items = cluster.get("namespaces", "-l", MANAGED)["items"]
    return [item["metadata"]["name"] for item in items]
