"""Changes under load on the cluster: real requests follow them, and records have the times within the clock error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ground import Ground
from test_backend_support import designed, executed

from meshtrial.design.study import Gates, Study, Treatment
from meshtrial.records.schema import RunRecord
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

# With a tenth of two cores a control plane is slow; the time is no mesh's result.
SHORT = {"backend": "kubernetes", "rps": 50, "connections": 4, "warmup_s": 1, "change_every_s": 10, "cycles": 1}


def changed(treatment: str, **given: Any) -> Study:
    """Return a study of one treatment's changes with one block."""
    alone, gates = Treatment.parse(treatment), Gates(generator_cpu=1.0, sample_floor=20)
    study = designed("propagation", {"churn_per_min": "0", **SHORT, **given, "treatments": treatment})
    return replace(study, treatments=(alone,), baseline=alone, contrasts=(), blocks=1, gates=gates)


def one_run(bed: KubernetesTestbed, treatment: str, folder: Path, **given: Any) -> RunRecord:
    """Run one run as a study does."""
    return executed(bed, changed(treatment, **given), folder).records()[-1]


@pytest.mark.parametrize(
    ("treatment", "mesh"),
    [
        pytest.param("none", "", marks=pytest.mark.wide),
        ("istio+mtls", ""),
        pytest.param("istio-ambient", "istio-ambient", marks=pytest.mark.wide),
        pytest.param("linkerd", "linkerd", marks=pytest.mark.wide),
        pytest.param("kuma+mtls", "kuma", marks=pytest.mark.wide),
    ],
)
def test_real_requests_obey_a_change(ground: Ground, bed: KubernetesTestbed, tmp_path: Path, treatment: str, mesh: str):
    with ground.ready_for(bed, mesh):
        run = one_run(bed, treatment, tmp_path, churn_per_min="60")
    assert run.valid, run.reasons
    changes = run.extra["changes"]
    denied = [] if treatment == "none" else ["deny", "allow"]
    assert [one["name"] for one in changes] == [*denied, "endpoints", "endpoints"]
    for one in changes:
        assert 0 <= one["first_s"] <= one["all_s"] < SHORT["change_every_s"]
        # Half of the API server's response time, and the error between two clocks of one machine.
        assert 0 < one["error_s"] < 2
    assert abs(run.extra["generators_clock"]["offset_s"]) <= run.extra["generators_clock"]["error_s"] + 0.05
    if denied:
        assert sum(changes[0]["failed"].values()) > 0
    assert run.responses["propagation_all_endpoints_s"] > 0


def test_kept_connections_stay_where_connections_are_carried(bed: KubernetesTestbed, tmp_path: Path):
    run = one_run(bed, "none", tmp_path, keepalive=True, changes="endpoints", change_every_s=5)
    assert not run.valid
    (reason,) = run.reasons
    assert reason.startswith("check obeyed: exchanged endpoint never obeyed within 5 s")
    assert "propagation_all_endpoints_s" not in run.responses
