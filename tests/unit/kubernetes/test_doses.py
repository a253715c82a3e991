"""Telemetry by dose: the objects of each feature, and that its proofs check the requested dose."""

import re
from typing import Any

import pytest
import yaml
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.rendering import LOAD, find, of_kind, our_meshes, render

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import probing, proofs
from meshtrial.testbed.kubernetes.pods import PodRef

ENOUGH = FixedRate(rps=500, connections=4, duration_s=3)
POD = PodRef("trial", "load-1", "fortio", "uid", "n1", "10.0.0.1")
TRACING = {"istio": "istio+mtls", "istio-ambient": "istio-ambient+waypoint", "kuma": "kuma+mtls"}
SCRAPED = {**TRACING, "linkerd": "linkerd", "consul": "consul"}
LOGGED = {**SCRAPED, "consul": "consul+l7"}
STANDS = {"access-log": set(), "metrics": {"scraper"}, "tracing": {"collector"}, "tracing-1pct": {"collector"}}
CASES = [
    *((base, dose) for base in TRACING.values() for dose in ("tracing", "tracing-1pct")),
    *((base, "access-log") for base in LOGGED.values()),
    *((base, "metrics") for base in SCRAPED.values()),
]
# The mesh's objects that switch a feature on; Kuma's "observability" is all of them, with its metrics pushed.
SAYS = {
    ("istio", "access-log"): {"accessLogging"},
    ("istio", "tracing"): {"tracing"},
    ("istio", "tracing-1pct"): {"tracing"},
}


@pytest.mark.parametrize(("base", "dose"), CASES)
def test_a_dose_brings_its_own_part_and_no_other(base: str, dose: str):
    found = render(f"{base}+{dose}", load=ENOUGH)
    without = render(base, load=ENOUGH)
    more = {*of_kind(found, "Deployment")} - {*of_kind(without, "Deployment")}
    assert more == STANDS[dose]
    helpers = [find(found, "Deployment", name)["spec"]["template"]["metadata"]["labels"] for name in more]
    assert all(labels["meshtrial.dev/part"] == "collector" for labels in helpers)
    telemetry = [set(item["spec"]) for item in of_kind(found, "Telemetry").values()]
    assert telemetry == ([SAYS["istio", dose]] if base.startswith("istio") and dose != "metrics" else [])
    if base.startswith("kuma"):
        wanted = {"access-log": {"MeshAccessLog"}, "metrics": set()}.get(dose, {"MeshTrace"})
        kinds = ({o["kind"] for o in of.objects if o["apiVersion"].startswith("kuma.io")} for of in (found, without))
        assert next(kinds) - next(kinds) == wanted


@pytest.mark.parametrize("base", TRACING.values())
def test_the_rate_of_a_treatment_is_what_its_proof_expects(base: str):
    rates = {}
    for dose in ("tracing", "tracing-1pct"):
        found = render(f"{base}+{dose}", load=ENOUGH)
        if base.startswith("kuma"):
            rate = find(found, "MeshTrace", "traces")["spec"]["default"]["sampling"]["random"]
        else:
            (said,) = find(found, "Telemetry", dose)["spec"]["tracing"]
            rate = said["randomSamplingPercentage"]
        spans = [c for c in found.setup.features[-1].counters if c.name.startswith("spans sent")]
        assert len(spans) == (1 if "ambient" in base else 2)
        assert {c.percent or 100 for c in spans} == {rate}
        rates[dose] = rate
    assert rates == {"tracing": 100, "tracing-1pct": 1}


@pytest.mark.parametrize("base", SCRAPED.values())
def test_every_proxy_is_asked_at_the_page_that_its_proofs_read(base: str):
    found = render(f"{base}+metrics")
    mesh = found.setup.mesh
    assert mesh is not None
    config = yaml.safe_load(find(found, "ConfigMap", "scraper")["data"]["envoy.yaml"])
    asked = [cluster for cluster in config["static_resources"]["clusters"] if "health_checks" in cluster]
    pods = [o["spec"]["template"]["metadata"]["labels"] for o in of_kind(found, "Deployment").values()]
    chosen = []
    for cluster in asked:
        (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        address = endpoint["endpoint"]["address"]["socket_address"]
        (check,) = cluster["health_checks"]
        read = [*mesh.counters, *(c for f in found.setup.features for c in f.counters)]
        assert f"{address['port_value']}{check['http_health_check']['path']}" in {c.url for c in read}
        assert check["interval"] == check["no_traffic_interval"] == "1s"  # nobody else sends there
        service = find(found, "Service", address["address"].removesuffix(".trial.svc.cluster.local"))
        assert service["spec"]["clusterIP"] == "None"
        selector = service["spec"]["selector"].items()
        chosen += [labels["meshtrial.dev/part"] for labels in pods if selector <= labels.items()]
        counted = [c.pattern for c in found.setup.features[-1].counters if c.pods == "collector"]
        line = f'envoy_cluster_health_check_success{{envoy_cluster_name="{cluster["name"]}"}} 7'
        assert [n for pattern in counted for n in re.findall(pattern, line)] == ["7"]
    if "ambient" in base:
        assert selector == {"gateway.networking.k8s.io/gateway-name": "waypoint"}.items()
    else:
        assert sorted(chosen) == ["app", "load"]


@pytest.mark.parametrize(
    "treatment",
    [
        "istio+mtls+access-log+tracing",
        "istio+observability+metrics+tracing-1pct",
        "istio-ambient+waypoint+tracing+tracing-1pct",
        "kuma+observability+metrics",
    ],
)
def test_what_would_be_there_twice_is_refused(treatment: str):
    with refused(UsageError):
        render(treatment, load=ENOUGH)
    both = "kuma+mtls+access-log+tracing+metrics"  # three policies there, and three kinds
    page = find(render(both), "MeshMetric", "metrics")["spec"]["default"]["sidecar"]["profiles"]
    assert page == {"appendProfiles": [{"name": "All"}]}  # which also counts the spans


def test_too_few_requests_are_refused_before_the_study():
    with refused(UsageError, names=["istio+mtls+tracing-1pct", 500, 1375]):
        render("istio+mtls+tracing-1pct", load=LOAD)
    render("istio+mtls+tracing", load=LOAD)


@pytest.mark.parametrize(("mesh", "dose"), [(m, d) for m in ("linkerd", "consul") for d in ("tracing", "tracing-1pct")])
def test_what_a_mesh_can_not_do_is_said(mesh: str, dose: str):
    with refused(UsageError, names=[f"{mesh}+{dose}", mesh, "access-log", "metrics"]):
        our_meshes()[mesh].check(Treatment.parse(f"{mesh}+{dose}"))


@pytest.mark.parametrize(("spans", "passed"), [(0, False), (20, True), (200, False), (2000, False)])
def test_a_share_is_held_against_what_the_same_proxy_counted(
    spans: int, passed: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    found = render("istio+mtls+tracing-1pct", load=ENOUGH)
    pages: dict[str, Any] = {"downstream_rq_total": 100, "spans_sent": 7}

    def total(cluster: Any, probe: Any, addresses: Any, url: str, pattern: str) -> float:
        return float(next(value for word, value in pages.items() if word in pattern))

    monkeypatch.setattr(probing, "total", total)
    monkeypatch.setattr(proofs, "applicable_proofs", lambda setup: ([], ()))
    subject = proofs.ProofContext(None, found, {}, POD, POD)  # type: ignore[arg-type]
    assert proofs.prove(subject, "before", 0) == ()
    # Warm-up and proofs pass it too: 2000, of which the generators sent 1500.
    pages["downstream_rq_total"] += 2000
    pages["spans_sent"] += spans
    after = {proof.name: proof for proof in proofs.prove(subject, "after", 1500)}
    for side in ("server", "client"):
        proof = after[f"spans sent by the {side}'s sidecar"]
        assert (proof.passed, proof.observed) == (passed, str(spans))
        assert proof.expected == "3 to 44: 1 % of 2000 requests"
        assert after[f"requests through the {side}'s sidecar"].passed
