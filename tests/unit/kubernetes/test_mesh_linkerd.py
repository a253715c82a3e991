"""Linkerd's data against what its proxies, its injector and its policy controller (edge-26.6.3) do with it."""

import re
from typing import Any

import pytest
import yaml
from unit.kubernetes.rendering import of_kind, render

from meshtrial.testbed.kubernetes import manifests, workload
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

MESH = find_meshes(KubernetesOptions())["linkerd"]
APPS = sorted(path.stem for path in (KubernetesOptions().folder / "apps").glob("*.yaml"))

# Lines of a proxy of edge-26.6.3, some labels left out: a generator's calls, a kubelet's probe, and the admin port.
INBOUND = """\
request_total{direction="inbound",target_addr="10.0.0.9:8080",tls="no_identity",no_tls_reason="no_tls_from_remote",\
srv_name="entry-http",route_name="probes",authz_name="probes"} 24
request_total{direction="inbound",target_addr="10.0.0.9:8080",tls="true",\
client_id="load.trial.serviceaccount.identity.linkerd.cluster.local",srv_name="entry-http",authz_name="measured"} 106
request_total{direction="inbound",target_addr="10.0.0.9:8079",tls="true",\
client_id="load.trial.serviceaccount.identity.linkerd.cluster.local",srv_name="entry-grpc",authz_name="measured"} 104
request_total{direction="inbound",target_addr="0.0.0.0:4191",tls="no_identity",srv_name="proxy-admin"} 5
request_total{direction="outbound",authority="echo:8080",tls="true",server_id="echo.trial"} 7
inbound_http_authz_allow_total{target_port="8080",srv_name="entry-http",route_name="measured",\
authz_kind="authorizationpolicy",authz_name="measured",tls="true",client_id="load.trial"} 106
inbound_http_authz_allow_total{target_port="8079",srv_name="entry-grpc",route_name="measured",\
authz_kind="authorizationpolicy",authz_name="measured",tls="true",client_id="load.trial"} 104
inbound_http_authz_allow_total{target_port="8080",srv_name="entry-http",route_name="probes",\
authz_kind="authorizationpolicy",authz_name="probes",tls="no_identity"} 24
inbound_http_authz_allow_total{target_port="8080",srv_name="entry-http",route_name="default",\
authz_kind="authorizationpolicy",authz_name="generators-http",tls="true",client_id="load.trial"} 3
inbound_http_authz_allow_total{target_port="8080",srv_kind="default",srv_name="all-authenticated",\
authz_kind="default",authz_name="all-authenticated",tls="true",client_id="load.trial"} 50
"""
# Bytes, by the same proxies.
OPAQUE = """\
tcp_read_bytes_total{direction="inbound",peer="src",target_addr="10.0.0.9:8078",tls="true",\
client_id="load.trial.serviceaccount.identity.linkerd.cluster.local"} 4096
tcp_read_bytes_total{direction="inbound",peer="src",target_addr="10.0.0.9:8078",tls="no_identity"} 64
tcp_read_bytes_total{direction="inbound",peer="dst",target_addr="10.0.0.9:8078",tls="no_identity"} 4160
tcp_write_bytes_total{direction="outbound",peer="dst",authority="echo:8078",tls="true",server_id="echo.trial"} 4096
tcp_write_bytes_total{direction="outbound",peer="src",target_addr="10.0.0.9:8078",tls="no_identity"} 4096
"""
OUTBOUND = """\
request_total{direction="inbound",target_addr="0.0.0.0:4191",tls="no_identity",srv_name="proxy-admin"} 1
request_total{direction="outbound",authority="echo:8080",target_port="8080",tls="true",server_id="echo.trial"} 106
request_total{direction="outbound",authority="echo:8080",target_port="8080",tls="no_identity"} 9
response_total{direction="outbound",authority="echo:8080",tls="true",server_id="echo.trial",status_code="200"} 106
"""


def selected(rendered: workload.Rendered, server: Any) -> list[Any]:
    """Return the pods that a Server selects."""
    wanted = server["spec"]["podSelector"].get("matchLabels", {}).items()
    pods = [t for o in rendered.objects if (t := manifests.template(o)) is not None]
    return [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]


def counted(name: str, page: str) -> int:
    assert MESH.tcp is not None
    counters = [*MESH.counters, *MESH.tcp.counters, *(c for f in MESH.features.values() for c in f.counters)]
    (counter,) = (c for c in counters if c.name == name)
    assert counter.url == "4191/metrics"
    return sum(int(number) for number in re.findall(counter.pattern, page))


def test_a_pod_that_cannot_be_injected_is_refused_and_nobody_else_waits_for_the_webhooks():
    values = yaml.safe_load((MESH.folder / "values.yaml").read_text())
    assert values["webhookFailurePolicy"] == "Fail"
    enrolled = render("linkerd").namespace_labels
    for webhook in ("proxyInjector", "policyValidator", "profileValidator"):
        chosen = values[webhook]["namespaceSelector"]["matchLabels"]
        assert chosen.items() <= enrolled.items(), webhook
        assert f"{webhook}.namespaceSelector" in MESH.open_values["linkerd-control-plane"]
    # A treatment that is not Linkerd's has no such label.
    assert not render("none").namespace_labels


def test_proxies_get_their_limits_and_so_their_workers_by_annotation():
    pod = manifests.template(of_kind(render("linkerd"), "Deployment")["echo"])
    assert pod is not None
    assert pod["metadata"]["annotations"]["config.linkerd.io/proxy-cpu-limit"] == "2"
    assert pod["metadata"]["annotations"]["config.linkerd.io/proxy-memory-limit"] == "512Mi"
    free = manifests.template(
        of_kind(render("linkerd", options=KubernetesOptions(proxy_cpu="", proxy_memory="")), "Deployment")["echo"]
    )
    assert free is not None
    assert not [key for key in free["metadata"]["annotations"] if key.endswith("-limit")]
    # The control plane's own proxies keep the chart's values.
    assert not any(MESH.parameters["proxy_cpu"].values())


def test_the_counters_count_what_came_by_mutual_tls_and_nothing_of_probes_or_readings():
    assert counted("requests of the generators' identity, by mutual TLS, through the server's proxy", INBOUND) == 210
    assert counted("requests through the client's proxy, by mutual TLS", OUTBOUND) == 106
    assert counted("requests that the policy let in", INBOUND) == 3
    assert counted("requests that the route's policy let in", INBOUND) == 210
    assert counted("bytes of the generators' identity, by mutual TLS, through the server's proxy", OPAQUE) == 4096
    assert counted("bytes through the client's proxy, by mutual TLS", OPAQUE) == 4096


def test_the_identity_that_the_application_sees_is_the_generators():
    header = str(MESH.expect["header"])
    assert re.search(header, "GET /debug\nL5d-Client-Id: load.trial.serviceaccount.identity.linkerd.cluster.local\n")
    assert not re.search(header, "L5d-Client-Id: other.trial.serviceaccount.identity.linkerd.cluster.local")


@pytest.mark.parametrize("feature", ["authz", "authz-route"])
@pytest.mark.parametrize("app", APPS)
def test_authorization_stands_on_the_entry_pods_ports_for_the_generators_alone(app: str, feature: str):
    rendered = render(f"linkerd+{feature}", app)
    servers = of_kind(rendered, "Server")
    for name in ("entry-http", "entry-grpc"):
        assert servers[name]["spec"]["accessPolicy"] == "deny"
        pod, *others = selected(rendered, servers[name])
        assert len(others) == bool(rendered.setup.app.second)  # the other version, which may be what is called next
        labels = of_kind(rendered, "Service")[rendered.setup.app.service]["spec"]["selector"]
        assert labels.items() <= pod["metadata"]["labels"].items()
    ports = {p["name"]: p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports", [])}
    assert ports[servers["entry-http"]["spec"]["port"]] == rendered.setup.app.app_port
    (identity,) = of_kind(rendered, "MeshTLSAuthentication")["generators"]["spec"]["identityRefs"]
    generator = manifests.template(of_kind(rendered, "Deployment")["load"])
    assert generator is not None
    assert identity == {"kind": "ServiceAccount", "name": generator["spec"]["serviceAccountName"]}


@pytest.mark.parametrize("app", APPS)
def test_with_routes_the_kubelets_probes_still_come_through(app: str):
    rendered = render("linkerd+authz-route", app)
    routes = of_kind(rendered, "HTTPRoute")
    (rule,) = routes["probes"]["spec"]["rules"]
    open_paths = {match["path"]["value"] for match in rule["matches"]}
    pods = selected(rendered, of_kind(rendered, "Server")["entry-http"])
    probes = [
        c[k] for pod in pods for c in pod["spec"]["containers"] for k in ("readinessProbe", "livenessProbe") if k in c
    ]
    assert probes
    for probe in probes:
        assert "httpGet" not in probe or probe["httpGet"]["path"] in open_paths
    # Measured and refused calls are not among them.
    assert not open_paths & {rendered.setup.app.path, MESH.features["authz-route"].expect["path"]}


def test_every_route_has_a_policy_of_its_own_but_the_one_that_nobody_may_take():
    rendered = render("linkerd+authz-route")
    targets = {o["spec"]["targetRef"]["name"] for o in of_kind(rendered, "AuthorizationPolicy").values()}
    # A policy on the Server would open all of its routes.
    assert {o["spec"]["targetRef"]["kind"] for o in of_kind(rendered, "AuthorizationPolicy").values()} == {"HTTPRoute"}
    routes = of_kind(rendered, "HTTPRoute")
    assert set(routes) - targets == {"closed"}
    (match,) = routes["closed"]["spec"]["rules"][0]["matches"]
    assert match["path"]["value"] == MESH.features["authz-route"].expect["path"]
    for name in ("measured", "closed"):
        assert {ref["name"] for ref in routes[name]["spec"]["parentRefs"]} == {"entry-http", "entry-grpc"}
