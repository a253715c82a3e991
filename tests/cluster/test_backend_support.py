"""What the backend's cluster tests share: options of the test cluster, one run made and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterenv import Cluster

from meshtrial.load import fortio
from meshtrial.records.schema import ComponentUsage, Proof
from meshtrial.study import Load, Study, Treatment
from meshtrial.testbed.base import GeneratorOutput, usage_between
from meshtrial.testbed.kubernetes import KubernetesTestbed

LOAD = Load(rps=100, connections=4, duration_s=4, warmup_s=1)
MANAGED = "app.kubernetes.io/managed-by=meshtrial"


def options_for(cluster: Cluster, **more: Any) -> dict[str, Any]:
    """Options of a study on the test cluster: images and charts that were made here, nothing is pulled."""
    istio = cluster.istio()
    chosen = {
        "istio": {
            "version": istio.version,
            "charts": {
                "istio-base": {"path": str(istio.charts / "base")},
                "istiod": {"path": str(istio.charts / "istiod")},
            },
            "values": {"istiod": str(istio.values_file())},
        }
    }
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
    import json
    import time

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
