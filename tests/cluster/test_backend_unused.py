"""Unused services: real ones, which proxies know unless their configuration is scoped."""

from pathlib import Path

from test_backend_support import bed_on, designed, executed, owned_namespaces
from testcluster import Cluster

from meshtrial.design.study import Gates, Treatment
from meshtrial.testbed.kubernetes import apps

SERVICES = 400
GIVEN = {
    "backend": "kubernetes",
    "sizes": "3",
    "unused_services": f"0,{SERVICES}",
    "rates": "20",
    "connections": 8,
    "duration_s": 4,
    "warmup_s": 1,
    "treatments": "istio+mtls,istio+mtls+scoped",
}


def test_proxies_hold_services_that_nobody_calls_unless_scoped(cluster: Cluster, tmp_path: Path):
    alone = tuple(map(Treatment.parse, ("istio+mtls", "istio+mtls+scoped")))
    gates = Gates(generator_cpu=1.0, sample_floor=10, late_ratio=1.0)
    crowded = tuple(load for load in designed("scale_out", GIVEN).loads if load.unused_services)
    only = {"treatments": alone, "baseline": alone[0], "contrasts": (), "blocks": 1, "gates": gates, "loads": crowded}
    pools = {"app_node_selector": "slot=n2", "load_node_selector": "slot=n1"}
    with bed_on(cluster, namespace="unused", mesh_reinstall="once", **pools) as bed:
        store = executed(bed, designed("scale_out", GIVEN, **only), tmp_path)
    runs = {run.treatment: run for run in store.records() if run.attempt == 1}
    assert [f"{run.treatment}: {run.reasons}" for run in runs.values() if not run.valid] == []
    for run in runs.values():
        counted = [proof for proof in run.proofs if proof.name == "unused services"]
        seen = f"{SERVICES} with {SERVICES * apps.UNUSED_ENDPOINTS} endpoints"
        assert [(proof.phase, proof.observed) for proof in counted] == [("before", seen), ("after", seen)]
    full, scoped = (runs[name].responses["proxy_largest_memory_bytes"] for name in ("istio+mtls", "istio+mtls+scoped"))
    assert full - scoped > SERVICES * 4096  # at least one page of each
    assert owned_namespaces(cluster) == []
