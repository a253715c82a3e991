"""A growing deployment keeps its pods, adds others, and is measured at every size."""

from pathlib import Path

import pytest
from test_backend_support import bed_on, designed, executed, owned_namespaces
from testcluster import Cluster

from meshtrial.design.study import Gates, Treatment

GIVEN = {"backend": "kubernetes", "sizes": "3,6", "rates": "20", "connections": 8, "duration_s": 4, "warmup_s": 1}


@pytest.mark.parametrize("treatment", [pytest.param("none", marks=pytest.mark.wide), "istio+mtls"])
def test_a_deployment_is_kept_from_size_to_size(cluster: Cluster, tmp_path: Path, treatment: str):
    given = {**GIVEN, "order": "growing", "treatments": ",".join(dict.fromkeys(("none", treatment)))}
    alone = Treatment.parse(treatment)
    gates = Gates(generator_cpu=1.0, sample_floor=10, late_ratio=1.0)
    study = designed("scale_out", given, treatments=(alone,), baseline=alone, contrasts=(), blocks=1, gates=gates)
    pools = {"app_node_selector": "slot=n2", "load_node_selector": "slot=n1"}
    with bed_on(cluster, namespace="growth", mesh_reinstall="run", **pools) as bed:
        store = executed(bed, study, tmp_path)
    small, large = (run for run in store.records() if run.attempt == 1)
    assert small.valid, small.reasons
    assert large.valid, large.reasons
    assert (small.extra["endpoints"], large.extra["endpoints"]) == (3, 6)
    # The larger size keeps the pods of the smaller one and adds as many.
    before, after = (set(run.extra["placement"]) for run in (small, large))
    assert before < after
    assert "grown" not in small.extra
    assert large.extra["grown"]["ready_s"] > 0
    assert small.responses["ready_time_s"] > 0
    assert "ready_time_s" not in large.responses
    assert large.extra["policy"]["app_reinstall"] == "grown"
    assert not any(name.startswith("growth") for name in owned_namespaces(cluster))
