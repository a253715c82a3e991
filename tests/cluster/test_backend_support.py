"""Shared by the cluster tests of the backend: options of the test cluster, and one run made and checked."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import building
from testcluster import REGISTRY, Cluster, ClusterError

from meshtrial.design.generated import sealed_systems
from meshtrial.design.load import FixedRate, Load
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Study, Treatment
from meshtrial.design.system import System
from meshtrial.load import fortio
from meshtrial.load.generators import GeneratorOutput
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.records.store import StudyStore
from meshtrial.run.runner import execute
from meshtrial.testbed.base import Deployment, usage_between
from meshtrial.testbed.kubernetes import manifests
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

LOAD = FixedRate(rps=100, connections=4, duration_s=4, warmup_s=1)
MANAGED = "app.kubernetes.io/managed-by=meshtrial"


_OWN_BUILD = "own build"


def _split(reference: str) -> tuple[str, str]:
    """Split into repository and tag: ``x.test/kuma/kuma-cp:2`` is ``x.test/kuma/kuma-cp`` and ``2``."""
    repository, _, tag = reference.rpartition(":")
    return repository, tag


def _common(cluster: Cluster, *images: str) -> tuple[str, str]:
    """Return the registry with folder, and the tag, of a mesh's images; its charts accept only one of each."""
    found = {name: _split(cluster.mesh_image(name)) for name in images}
    hubs = {repository.rpartition("/")[0] for repository, _ in found.values()}
    tags = {tag for _, tag in found.values()}
    if len(hubs) != 1 or len(tags) != 1:
        raise ClusterError(
            f"{', '.join(images)}: must lie under one name and have one tag, not "
            f"{', '.join(':'.join(pair) for pair in found.values())}; tag them alike before 'docker save'"
        )
    return hubs.pop(), tags.pop()


def _build(hub: str) -> dict[str, str]:
    """Return the builder: a registry that cannot exist holds own builds, any other one releases."""
    return {"build": _OWN_BUILD} if hub.startswith(f"{REGISTRY}/") else {}


def _istio(cluster: Cluster) -> dict[str, Any]:
    istio = cluster.istio()
    return {
        "version": istio.version,
        "build": _OWN_BUILD,
        "charts": {name: {"path": str(istio.charts / chart)} for name, chart in _ISTIO_CHARTS.items()},
        "values": {"istiod": str(istio.values_file())},
    }


_ISTIO_CHARTS = {"istio-base": "base", "istiod": "istiod"}
_AMBIENT_CHARTS = {**_ISTIO_CHARTS, "istio-cni": "cni", "ztunnel": "ztunnel"}


def _ambient(cluster: Cluster) -> dict[str, Any]:
    istio = cluster.istio()
    hub, tag = _common(cluster, "ztunnel", "install-cni")
    return {
        # istiod is always the local build, whichever proxies the nodes have.
        "version": istio.version if tag == istio.tag else f"{istio.version}, ztunnel {tag}",
        "build": _OWN_BUILD,
        "charts": {name: {"path": str(istio.charts / chart)} for name, chart in _AMBIENT_CHARTS.items()},
        # Set after the parameters, so istiod and the waypoints are local builds.
        "values": {"istiod": str(istio.values_file())},
        "parameters": {
            "image_hub": hub,
            "image_tag": tag,
            "image_pull_policy": "Never",
            # The path on every node of the test cluster, private to it (testcluster/node-init.sh).
            "cni_bin_dir": "/opt/cni/bin",
            "cni_conf_dir": "/etc/cni/net.d",
            "cni_netns_dir": "/run/netns",
        },
    }


def _linkerd(cluster: Cluster) -> dict[str, Any]:
    hub, tag = _common(cluster, "controller", "proxy")
    return {
        "version": tag,
        **_build(hub),
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
        "version": tag,
        **_build(hub),
        "charts": {"kuma": {"path": str(cluster.charts["kuma"])}},
        "parameters": {
            "image_hub": hub,
            "image_tag": tag,
            "image_pull_policy": "Never",
            "kubectl_image_registry": registry,
            "kubectl_image_repository": repository,
            "kubectl_image_tag": kubectl_tag,
        },
    }


def _consul(cluster: Cluster) -> dict[str, Any]:
    parts = ("consul", "consul-k8s-control-plane", "consul-dataplane")
    server, injector, sidecar = (cluster.mesh_image(name) for name in parts)
    return {
        "version": _split(injector)[1],  # as its chart counts
        **_build(server.rpartition("/")[0]),
        "charts": {"consul": {"path": str(cluster.charts["consul"])}},
        "parameters": {
            "image": server,
            "image_k8s": injector,
            "image_dataplane": sidecar,
            "image_pull_policy": "Never",
        },
    }


# Meshes whose images come from the folder, with the options that they need on the test cluster.
_FOREIGN = {"istio-ambient": _ambient, "linkerd": _linkerd, "kuma": _kuma, "consul": _consul}


# Names of this cluster's images by the names in the manifests.
_OWN_IMAGES = ("fortio", "busybox", "envoy", "counter-api", "webrick-details")


def images_of(app: str) -> dict[str, str]:
    """Return the images that an application's manifests name, by name."""
    objects = manifests.read(KubernetesOptions().folder / "apps" / f"{app}.yaml")
    references = [container["image"] for item in objects for container in manifests.containers(item)]
    return {manifests.image_name(reference): reference for reference in references}


def _of_apps() -> set[str]:
    folder = KubernetesOptions().folder / "apps"
    return {name for path in folder.glob("*.yaml") for name in images_of(path.stem)}


def options_for(cluster: Cluster, **more: Any) -> dict[str, Any]:
    """Return the options of a study on the test cluster: available images and charts, nothing is pulled."""
    chosen = {"istio": _istio(cluster)}
    chosen |= {name: said(cluster) for name, said in _FOREIGN.items() if name in cluster.meshes}
    images = {name: cluster.images[name] for name in _OWN_IMAGES if name in cluster.images}
    images |= {manifests.image_name(ref): ref for ref in cluster.mesh_images if manifests.image_name(ref) in _of_apps()}
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


@contextmanager
def bed_on(cluster: Cluster, systems: Mapping[str, System] | None = None, **more: Any) -> Iterator[KubernetesTestbed]:
    """A testbed that is closed whatever happens, with generated systems."""
    bed = KubernetesTestbed({**options_for(cluster, **more), **sealed_systems(systems or {})})
    try:
        yield bed
    finally:
        cluster.start_api_server()
        bed.close()


def study(name: str, *treatments: str, load: Load = LOAD, app: str = "echo") -> Study:
    """A study of these treatments."""
    more = {"correction": "max-t", "own_failures": "ranked", "stopping": {"rule": "fixed", "n": 1}}
    given = {"title": name, "question": "?", "backend": "kubernetes", "app": app, "loads": (load,)}
    return building.study(treatments, 1, 1, name=name, primary=(), margins={}, **given, **more)


def designed(name: str, given: Mapping[str, Any], **changed: Any) -> Study:
    """Return the study of these parameters, with the given fields changed."""
    return replace(building.built(name, **{"seed": 0} | given), **changed)


def executed(bed: KubernetesTestbed, study: Study, folder: Path) -> StudyStore:
    """Execute a study, for which the cluster must lack nothing; return its folder."""
    assert bed.preflight(study) == ()
    store = StudyStore.create(folder, make_plan(study), {})
    execute(store, bed, lambda _: None)
    return store


@dataclass(frozen=True)
class Run:
    """The results of one run of a deployment."""

    proofs: tuple[Proof, ...]
    outputs: tuple[GeneratorOutput, ...]
    usage: Mapping[str, ComponentUsage]
    extra: Mapping[str, Any]
    versions: Mapping[str, str]
    requests: int
    deploy_s: float

    @property
    def failed(self) -> list[str]:
        """Return the proofs that failed, as text."""
        return [f"{p.name} ({p.phase}): expected {p.expected}, saw {p.observed}" for p in self.proofs if not p.passed]

    @property
    def names(self) -> set[str]:
        """Return the names of the proofs."""
        return {p.name for p in self.proofs}


def load_and_prove(deployment: Deployment, load: Load, folder: Path, deploy_s: float = 0.0) -> Run:
    """Load and verify a deployment as the runner does; return the results."""
    proofs = list(deployment.prove("before", 0))
    warm = deployment.generate(fortio.calls(load, "warmup"), folder, 60)
    before = deployment.snapshot()
    outputs = deployment.generate(fortio.calls(load, "measure"), folder, 60)
    after = deployment.snapshot()
    counts = [json.loads(o.json_path.read_text())["DurationHistogram"]["Count"] for o in (*warm, *outputs)]
    proofs += deployment.prove("after", sum(counts))
    deployment.collect_logs(folder / "logs")
    usage = {u.component: u for u in usage_between(before, after)}
    requests = sum(counts[len(warm) :])
    return Run(tuple(proofs), outputs, usage, deployment.facts().to_dict(), deployment.versions, requests, deploy_s)


def one_run(bed: KubernetesTestbed, treatment: str, folder: Path, load: Load = LOAD, app: str = "echo") -> Run:
    """Deploy, load, verify and remove a treatment as the runner does; return the results."""
    began = time.monotonic()
    deployment = bed.deploy(Treatment.parse(treatment), load, app)
    deploy_s = time.monotonic() - began
    try:
        return load_and_prove(deployment, load, folder, deploy_s)
    finally:
        deployment.close()


def owned_namespaces(cluster: Cluster) -> list[str]:
    """Return the names of our namespaces."""
    items = cluster.get("namespaces", "-l", MANAGED)["items"]
    return [item["metadata"]["name"] for item in items]


def load_runs() -> bool:
    """Whether a generator sends; the machine sees their processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # Keeping the neighbours warm is no load.
            if words[0] == b"fortio" and b"load" in words and b"trickle" not in words:
                return True
    return False
