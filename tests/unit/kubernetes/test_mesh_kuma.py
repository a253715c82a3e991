"""Kuma as data: a Mesh of its own, no help from the mesh, counters of proofs, values of the chart."""

import re

import pytest
from unit.kubernetes.rendering import find, meshes_for, render

from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions

TREATMENTS = [
    "kuma",
    "kuma+mtls",
    "kuma+mtls+jwt",
    "kuma+mtls+opa",
    "kuma+mtls+observability",
    "kuma+jwt+opa+observability",
]
OFF = {"requestTimeout": "0s", "streamIdleTimeout": "0s", "maxStreamDuration": "0s", "maxConnectionDuration": "0s"}


def kuma(options: KubernetesOptions | None = None) -> Mesh:
    return meshes_for(options or KubernetesOptions())["kuma"]


def policies(rendered: workload.Rendered) -> list[dict]:
    return [o for o in rendered.objects if o["apiVersion"].startswith("kuma.io/") and o["kind"] != "Mesh"]


@pytest.mark.parametrize("text", TREATMENTS)
def test_the_mesh_is_our_own_comes_first_has_no_policies_by_default_and_alone_lies_outside_of_the_study(text: str):
    rendered = render(text)
    (mesh,) = (o for o in rendered.objects if o["kind"] == "Mesh")  # never "default", which may belong to somebody else
    assert mesh["metadata"]["name"] == "meshtrial"
    assert mesh is rendered.objects[0]  # the webhook refuses a policy without its Mesh
    assert mesh["spec"]["skipCreatingInitialPolicies"] == ["*"]
    assert mesh["spec"]["meshServices"] == {"mode": "Exclusive"}
    assert ("mtls" in mesh["spec"]) == ("mtls" in text)
    # All other objects are in the study's namespace.
    assert policies(rendered)
    for item in policies(rendered):
        assert item["metadata"]["namespace"] == "trial", item["metadata"]["name"]
        assert item["metadata"]["labels"]["kuma.io/mesh"] == "meshtrial", item["metadata"]["name"]


@pytest.mark.parametrize("text", TREATMENTS)
def test_there_are_no_retries_no_time_outs_and_no_limits_on_requests(text: str):
    rendered = render(text)
    kinds = [o["kind"] for o in policies(rendered)]
    assert "MeshRetry" not in kinds
    for side, rules in (("outbound", "to"), ("inbound", "rules")):
        (timeout,) = find(rendered, "MeshTimeout", side)["spec"][rules]
        assert timeout["default"]["http"] == OFF  # the omitted value is Kuma's default: 15 s per request
        (breaker,) = find(rendered, "MeshCircuitBreaker", side)["spec"][rules]
        assert set(breaker["default"]) == {"connectionLimits"}
        assert set(breaker["default"]["connectionLimits"].values()) == {2**32 - 1}


# Output of kuma-dp 2.14.3, without most labels.
LINE = 'envoy_http_downstream_rq_total{{app="x",envoy_http_conn_manager_prefix="{}",kuma_io_zone="default"}} {}\n'


def counted(name: str, *lines: tuple[str, str]) -> float:
    counters = [*kuma().counters, *kuma().features["observability"].counters]
    (counter,) = (c for c in counters if c.name == name)
    page = "# TYPE envoy_http_downstream_rq_total counter\n" + "".join(LINE.format(*line) for line in lines)
    return sum(float(number) for number in re.findall(counter.pattern, page))


OWN = [("_kuma_dynamicconfig", "39"), ("_kuma_metrics_prometheus_default-backend", "7"), ("admin", "5")]
INBOUND = [("localhost_8080", "1.234567e+06"), ("localhost_8079", "3")]
OUTBOUND = [("meshtrial_echo_kuma-x_default_msvc_8080", "2e+06")]


def test_the_counters_tell_the_two_sides_and_kumas_own_requests_apart():
    page = [*OWN, *INBOUND, *OUTBOUND]
    assert counted("requests through the server's sidecar", *page) == 1234570
    assert counted("requests through the client's sidecar", *page) == 2000000
    assert counted("requests through the server's sidecar", *OWN, *OUTBOUND) == 0
    assert counted("requests through the client's sidecar", *OWN, *INBOUND) == 0


def test_the_counters_know_kumas_other_names():
    page = [*OWN, ("self_inbound_http", "4"), ("kri_msvc_meshtrial_default_kuma-x_echo_http", "5")]
    assert counted("requests through the server's sidecar", *page) == 4
    assert counted("requests through the client's sidecar", *page) == 5


@pytest.mark.parametrize(
    ("header", "seen"),
    [
        ("By=spiffe://meshtrial/echo_x_svc_8080;By=kuma://app/echo;URI=spiffe://meshtrial/load_x_svc_8099", True),
        ("By=spiffe://meshtrial/load_x_svc_8099;Hash=1f;URI=spiffe://meshtrial/echo_x_svc_8080", False),
        ("By=spiffe://default/echo_x_svc_8080;Hash=1f;URI=spiffe://default/load_x_svc_8099", False),
    ],
)
def test_the_identity_is_the_generators_in_our_mesh(header: str, seen: bool):
    pattern = kuma().features["mtls"].expect["header"]
    assert bool(re.search(pattern, f"GET /debug HTTP/1.1\nX-Forwarded-Client-Cert: {header}\n")) == seen
