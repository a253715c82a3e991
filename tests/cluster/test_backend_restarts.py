"""Restarts under load on the cluster: of the application, of node agents, of a control plane, by rolling their pods."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ground import Ground
from test_backend_support import designed, executed, owned_namespaces
from testcluster import Cluster

from meshtrial.design.study import Gates, Study, Treatment
from meshtrial.errors import UsageError
from meshtrial.records.schema import RunRecord
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

# A pod with a sidecar takes up to half a minute to start or stop on a machine that also runs the cluster.
SHORT = {"backend": "kubernetes", "rps": 50, "connections": 4, "duration_s": 60, "warmup_s": 1}
WINDOW = {"restart_at_s": 5, "around_s": 45}


def rollout(treatment: str, **given: Any) -> Study:
    """Return the study that has this treatment."""
    calm = replace(Treatment.parse(treatment), restart="").name
    listed = ",".join(dict.fromkeys(("none", calm, treatment)))
    return designed("rollout", {**SHORT, **given, "treatments": listed})


def one_run(bed: KubernetesTestbed, treatment: str, folder: Path) -> RunRecord:
    """Run one run as a study does."""
    alone, gates = Treatment.parse(treatment), Gates(generator_cpu=1.0, sample_floor=20)
    only = {"treatments": (alone,), "baseline": alone, "contrasts": (), "blocks": 1, "gates": gates}
    return executed(bed, replace(rollout(treatment, **WINDOW), **only), folder).records()[-1]


@pytest.mark.parametrize(
    ("treatment", "mesh"),
    [
        pytest.param("none+restart-app", "", marks=pytest.mark.wide),
        ("istio+mtls+restart-app", ""),
        pytest.param("istio+mtls+restart-control-plane", "", marks=pytest.mark.wide),
        pytest.param("istio-ambient+restart-proxies", "istio-ambient", marks=pytest.mark.wide),
        pytest.param("linkerd+restart-control-plane", "linkerd", marks=pytest.mark.wide),
        # A StatefulSet with one replica, which returns with its volume.
        pytest.param("consul+l7+restart-control-plane", "consul", marks=pytest.mark.wide),
    ],
)
def test_a_part_is_rolled_over_under_load(
    ground: Ground, bed: KubernetesTestbed, tmp_path: Path, treatment: str, mesh: str
):
    with ground.ready_for(bed, mesh):
        run = one_run(bed, treatment, tmp_path)
    assert run.valid, run.reasons
    part = Treatment.parse(treatment).restart
    (replaced,) = [proof for proof in run.proofs if proof.phase == "during"]
    assert replaced.name == f"pods of {part} replaced"
    assert replaced.observed.endswith(", 0 old")
    restart = run.extra["restart"]
    assert 3 < restart["began_s"] < restart["ended_s"] < 60
    assert run.responses["restart_s"] > 0.5
    assert run.responses["failed_requests"] == sum(run.failures.values())
    # The CPU use of the replaced pods is lost, and no number replaces it.
    assert not [name for name in run.responses if "cpu" in name or "memory" in name]
    assert any("was restarted" in line for line in run.extra["resources"]["missing"])
    if part == "control-plane":
        # Proxies keep their configuration without a control plane.
        assert run.responses["failed_requests"] < 0.05 * run.responses["requests"]
    if treatment.startswith("istio+"):
        assert run.extra["pushes"]["count"] > 0
        assert 0 < run.responses["convergence_s"] < 30


def test_what_is_not_there_is_refused_before_anything_runs(bed: KubernetesTestbed, cluster: Cluster):
    before = owned_namespaces(cluster)

    def refused(treatment: str) -> str:
        with pytest.raises(UsageError) as caught:
            bed.preflight(rollout(treatment))
        return str(caught.value)

    assert "its proxies are in the app's pods: take restart-app" in refused("istio+restart-proxies")
    assert "only its app can be restarted" in refused("none+restart-control-plane")
    assert set(owned_namespaces(cluster)) <= set(before)
