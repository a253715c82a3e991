"""Kuma as data: a Mesh of its own, no help from the mesh, what the proofs count, the chart's values."""

import re

import pytest
import yaml
from unit.kubernetes.rendering import TOKENS, find, meshes_for, render

from meshtrial.testbed.kubernetes import manifests, workload
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.values import Values

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
    (mesh,) = (o for o in rendered.objects if o["kind"] == "Mesh")  # never "default", which may be somebody's
    assert mesh["metadata"]["name"] == "meshtrial"
    assert mesh is rendered.objects[0]  # the webhook refuses a policy whose Mesh is not there
    assert mesh["spec"]["skipCreatingInitialPolicies"] == ["*"]
    assert mesh["spec"]["meshServices"] == {"mode": "Exclusive"}
    assert ("mtls" in mesh["spec"]) == ("mtls" in text)
    # Nothing else lies outside of the study.
    assert policies(rendered)
    for item in policies(rendered):
        assert item["metadata"]["namespace"] == "trial", item["metadata"]["name"]
        assert item["metadata"]["labels"]["kuma.io/mesh"] == "meshtrial", item["metadata"]["name"]


def test_pods_and_services_are_put_into_it():
    rendered = render("kuma")
    assert rendered.namespace_labels == {"kuma.io/sidecar-injection": "enabled", "kuma.io/mesh": "meshtrial"}
    assert not [name for name in kuma().features if kuma().features[name].namespace_labels]


def test_mtls_is_strict_and_everybody_of_the_mesh_may_call():
    rendered = render("kuma+mtls")
    mtls = find(rendered, "Mesh", "meshtrial")["spec"]["mtls"]
    (backend,) = mtls["backends"]
    assert (mtls["enabledBackend"], backend["mode"]) == (backend["name"], "STRICT")
    (rule,) = find(rendered, "MeshTrafficPermission", "all")["spec"]["rules"]
    # A trailing slash is refused by the webhook.
    assert rule["default"]["allow"] == [{"spiffeID": {"type": "Prefix", "value": "spiffe://meshtrial"}}]
    assert "MeshTrafficPermission" not in {o["kind"] for o in render("kuma").objects}


@pytest.mark.parametrize("text", TREATMENTS)
def test_there_are_no_retries_no_time_outs_and_no_limits_on_requests(text: str):
    rendered = render(text)
    kinds = [o["kind"] for o in policies(rendered)]
    assert "MeshRetry" not in kinds
    for side, rules in (("outbound", "to"), ("inbound", "rules")):
        (timeout,) = find(rendered, "MeshTimeout", side)["spec"][rules]
        assert timeout["default"]["http"] == OFF  # what is left out has Kuma's own: 15 s for a request
        (breaker,) = find(rendered, "MeshCircuitBreaker", side)["spec"][rules]
        assert set(breaker["default"]) == {"connectionLimits"}
        assert set(breaker["default"]["connectionLimits"].values()) == {2**32 - 1}


def test_every_pod_has_its_token_and_two_workers_and_may_have_a_root_init_container():
    rendered = render("kuma")
    for name in ("echo", "load"):
        template = find(rendered, "Deployment", name)["spec"]["template"]
        assert template["spec"]["automountServiceAccountToken"] is True  # kuma-dp signs on with it
        assert template["metadata"]["annotations"]["kuma.io/sidecar-proxy-concurrency"] == "2"
        assert not {"runAsNonRoot", "runAsUser"} & set(template["spec"].get("securityContext", {}))
    without = find(render("none"), "Deployment", "echo")["spec"]["template"]["spec"]
    assert without["automountServiceAccountToken"] is False


def modifications(rendered: workload.Rendered, name: str) -> list[dict]:
    patch = find(rendered, "MeshProxyPatch", name)["spec"]
    assert patch["targetRef"] == {"kind": "Dataplane", "labels": {"meshtrial.dev/part": "app"}}
    return patch["default"]["appendModifications"]


def test_jwt_and_opa_stand_together_and_each_keeps_its_own_filter():
    rendered = render("kuma+jwt+opa")
    (jwt,) = modifications(rendered, "jwt")
    cluster, opa = modifications(rendered, "opa")
    jwt_filter = yaml.safe_load(jwt["httpFilter"]["value"])
    assert jwt_filter["name"] == "envoy.filters.http.jwt_authn"
    assert TOKENS.jwks["keys"][0]["n"] in str(jwt_filter["typedConfig"]["providers"])
    assert jwt["httpFilter"]["match"] == opa["httpFilter"]["match"] == {"origin": "inbound"}
    opa_filter = yaml.safe_load(opa["httpFilter"]["value"])
    assert opa_filter["name"] == "envoy.filters.http.ext_authz"
    asked = opa_filter["typedConfig"]["grpcService"]["envoyGrpc"]["clusterName"]
    assert yaml.safe_load(cluster["cluster"]["value"])["name"] == asked


@pytest.mark.parametrize("server", ["opa", "opa-extauthz"])
def test_the_filter_asks_where_the_policy_server_listens(server: str):
    rendered = render("kuma+opa", options=KubernetesOptions(opa_server=server))
    cluster, _ = modifications(rendered, "opa")
    (group,) = yaml.safe_load(cluster["cluster"]["value"])["loadAssignment"]["endpoints"]
    (endpoint,) = group["lbEndpoints"]
    address = endpoint["endpoint"]["address"]["socketAddress"]
    template = find(rendered, "Deployment", "echo")["spec"]["template"]
    (policy,) = (c for c in template["spec"]["containers"] if c["name"] == "opa")
    assert address["address"] == "127.0.0.1"
    assert re.search(rf":{address['portValue']}$", "\n".join(policy["args"]), re.MULTILINE)
    # Its own counters are read from outside of the mesh.
    assert rendered.policy_counter is not None
    open_port = template["metadata"]["annotations"]["traffic.kuma.io/exclude-inbound-ports"]
    assert rendered.policy_counter[0].startswith(f"{open_port}/")


def test_the_collector_stands_outside_of_the_mesh_and_is_sent_to():
    rendered = render("kuma+observability")
    labels = find(rendered, "Deployment", "collector")["spec"]["template"]["metadata"]["labels"]
    assert labels["kuma.io/sidecar-injection"] == "disabled"
    (port,) = find(rendered, "Service", "collector")["spec"]["ports"]
    endpoint = f"collector.trial.svc.cluster.local:{port['port']}"
    (trace,) = find(rendered, "MeshTrace", "traces")["spec"]["default"]["backends"]
    assert trace["openTelemetry"]["endpoint"] == endpoint
    sampling = find(rendered, "MeshTrace", "traces")["spec"]["default"]["sampling"]
    assert set(sampling.values()) == {100}
    page, pushed = find(rendered, "MeshMetric", "metrics")["spec"]["default"]["backends"]
    assert pushed["openTelemetry"]["endpoint"] == endpoint
    # In place of the base's, whose page the proofs still read.
    assert page == find(render("kuma"), "MeshMetric", "metrics")["spec"]["default"]["backends"][0]
    config = yaml.safe_load(find(rendered, "ConfigMap", "collector")["data"]["envoy.yaml"])
    listeners = config["static_resources"]["listeners"]
    assert port["targetPort"] in [item["address"]["socket_address"]["port_value"] for item in listeners]


def test_both_sides_log_every_request():
    rendered = render("kuma+observability")
    inbound, outbound = (find(rendered, "MeshAccessLog", side)["spec"] for side in ("inbound", "outbound"))
    assert "rules" in inbound  # one policy may not hold both
    assert "to" in outbound
    line = '[2026-11-22T18:08:06.625Z] meshtrial "{} HTTP/2" 200 - 0 0 1 0 "-" "fortio.org/fortio-1.68.1" "-"\n'
    text = line.format("GET /echo") + line.format("POST /fgrpc.PingServer/Ping") + 'info: "GET" is a method\n'
    for lines in kuma().features["observability"].logs:
        assert len(re.findall(lines.pattern, text)) == 2


# As kuma-dp 2.14.3 says it, less most of its labels.
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


def test_the_page_that_the_counters_read_is_there_without_a_certificate_and_holds_them():
    metrics = find(render("kuma"), "MeshMetric", "metrics")["spec"]["default"]
    (page,) = metrics["backends"]
    assert page["prometheus"]["tls"] == {"mode": "Disabled"}
    for counter in kuma().counters:
        assert counter.url == f"{page['prometheus']['port']}{page['prometheus']['path']}"
    (kept,) = metrics["sidecar"]["profiles"]["include"]
    assert all(f"^{kept['match']}" in counter.pattern for counter in kuma().counters)


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


def values(**parameters: str) -> dict:
    options = KubernetesOptions(meshes={"kuma": {"parameters": parameters}}, proxy_cpu="1500m", proxy_memory="300Mi")
    mesh = kuma(options)
    return Values(options, mesh).of(mesh.releases[0])


def test_proxies_have_the_limits_of_every_proxy_and_the_hooks_image_can_be_chosen():
    said = values(kubectl_image_registry="r.test", kubectl_image_repository="kubectl", kubectl_image_tag="1.34.4")
    limits = said["dataPlane"]["sidecarContainer"]["resources"]["limits"]
    assert limits == {"cpu": "1500m", "memory": "300Mi"}
    assert said["kubectl"]["image"] == {"registry": "r.test", "repository": "kubectl", "tag": "1.34.4"}


def test_kuma_is_told_to_make_no_mesh_and_to_touch_no_crd_of_somebody_else():
    own = yaml.safe_load((kuma().folder / "values.yaml").read_text())
    assert own["controlPlane"]["defaults"] == {"skipMeshCreation": True}
    assert own["installCrdsOnUpgrade"] == {"enabled": False}


def test_a_user_is_told_what_kuma_3_takes_away():
    assert any("Kuma 3" in line and "mtls" in line for line in kuma().remarks)


def test_the_manifests_are_objects_as_they_lie():
    for path in sorted((kuma().folder / "features").glob("*.yaml")):
        for item in manifests.read(path):
            assert item["metadata"].get("namespace", "default") == "default", path.name
