"""Consul's data: what is rendered, and whether its numbers are found in what its sidecars say."""

import base64
import json
import re
from pathlib import Path

import pytest
import yaml
from refused import refused
from unit.kubernetes.rendering import TOKENS, carrying, render

from meshtrial.design.studies import mesh_comparison
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshread import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

OPTIONS = KubernetesOptions()
CONSUL = find_meshes(OPTIONS)["consul"]
VALUES = yaml.safe_load((CONSUL.folder / "values.yaml").read_text())
DATA = Path(__file__).parent / "data"


def entries(rendered: workload.Rendered) -> dict[str, Json]:
    """Consul's own objects by kind and name."""
    found = [o for o in rendered.objects if o["apiVersion"].startswith("consul.hashicorp.com/")]
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in found}


@pytest.mark.parametrize(
    ("app", "service"),
    [("echo", "echo"), ("counter-api", "counter"), ("details", "details"), ("details-nodelay", "details-nodelay")],
)
def test_entries_are_called_like_the_apps_own_service(app: str, service: str):
    plain = entries(render("consul", app))
    assert set(plain) == {f"ServiceIntentions/{service}", "ServiceDefaults/load"}
    assert plain[f"ServiceIntentions/{service}"]["spec"]["destination"] == {"name": service}
    l7 = entries(render("consul+l7", app))
    assert set(l7) == {*plain, f"ServiceDefaults/{service}", f"ServiceRouter/{service}"}


@pytest.mark.parametrize(("protocol", "said"), [("http1", "http"), ("h2", "http2")])
def test_sidecars_carry_what_the_generators_send(protocol: str, said: str):
    found = entries(render("consul+l7", load=carrying(protocol)))
    assert {found[f"ServiceDefaults/{name}"]["spec"]["protocol"] for name in ("echo", "load")} == {said}
    assert entries(render("consul", load=carrying(protocol)))["ServiceDefaults/load"]["spec"]["protocol"] == "tcp"


@pytest.mark.parametrize("protocol", ["grpc", "mixed"])
@pytest.mark.parametrize("treatment", ["consul", "consul+l7"])
def test_a_port_beside_the_registered_one_is_refused(treatment: str, protocol: str):
    with refused(UsageError, names=[treatment, "consul", "http1", "h2", protocol]):
        render(treatment, load=carrying(protocol))


def test_without_http_it_carries_hops_that_stay_tcp():
    assert render("consul", "bookinfo").app_pods == 4


def test_jwt_takes_the_place_of_the_plain_intention():
    found = entries(render("consul+l7+jwt", "counter-api"))
    assert len([name for name in found if name.startswith("ServiceIntentions/")]) == 1
    intention = found["ServiceIntentions/counter"]["spec"]
    assert intention["destination"] == {"name": "counter"}
    assert intention["jwt"] == {"providers": [{"name": "trial"}]}
    provider = found["JWTProvider/trial"]["spec"]
    assert json.loads(base64.b64decode(provider["jsonWebKeySet"]["local"]["jwks"])) == TOKENS.jwks


def _sums(protocol: str) -> dict[str, int]:
    text = (DATA / f"consul-{protocol}.txt").read_text()
    counters = [*CONSUL.counters, *CONSUL.features["l7"].counters]
    return {c.name: sum(int(n) for n in re.findall(c.pattern, text)) for c in counters}


def test_http_between_the_sidecars_is_counted_on_any_app():
    assert _sums("http") == {
        "bytes from the application to the server's sidecar": 847,
        "bytes from the server's sidecar to the client's": 1085,
        "requests through the server's sidecar": 7,
        "requests through the client's sidecar": 7,
    }
    render("consul+l7", "details")  # echoes no headers: without the counters it would be refused


def test_sidecars_that_carry_tcp_fail_the_proof_of_http():
    found = _sums("tcp")
    assert found["requests through the server's sidecar"] == found["requests through the client's sidecar"] == 0
    assert found["bytes from the application to the server's sidecar"] == 980
    assert found["bytes from the server's sidecar to the client's"] == 980


def test_sidecars_are_like_the_other_meshes_whoever_installed_consul():
    pods = [o["spec"]["template"] for o in render("consul").objects if o["kind"] == "Deployment"]
    assert len(pods) == 2
    prefix = "consul.hashicorp.com/"
    for pod in pods:
        notes = {k.removeprefix(prefix): v for k, v in pod["metadata"]["annotations"].items() if k.startswith(prefix)}
        assert notes["connect-inject"] == notes["transparent-proxy"] == notes["enable-metrics"] == "true"
        assert (notes["sidecar-proxy-cpu-limit"], notes["consul-envoy-proxy-concurrency"]) == ("2", "2")
        assert notes["consul-dns"] == "false"
        # Its root init container is the injector's own; no account is signed on with.
        assert "runAsNonRoot" not in pod["spec"].get("securityContext", {})
        assert pod["spec"]["automountServiceAccountToken"] is False


def test_no_retries_and_no_time_outs():
    found = entries(render("consul+l7"))
    (route,) = found["ServiceRouter/echo"]["spec"]["routes"]
    assert route == {"destination": {"requestTimeout": "24h", "numRetries": 0}}
    assert found["ServiceDefaults/echo"]["spec"]["localRequestTimeoutMs"] == 24 * 3600 * 1000


@pytest.mark.parametrize("treatment", ["consul", "consul+l7", "consul+l7+jwt"])
def test_no_limit_of_envoys_and_no_ejection_of_the_only_instance(treatment: str):
    said = entries(render(treatment))["ServiceDefaults/load"]["spec"]["upstreamConfig"]["defaults"]
    assert min(said["limits"].values()) > 100_000
    assert set(said["limits"]) == {"maxConnections", "maxPendingRequests", "maxConcurrentRequests"}
    assert said["passiveHealthCheck"]["enforcingConsecutive5xx"] == 0


def test_what_the_cluster_must_have_is_asked_for_before_the_study():
    assert CONSUL.storage
    kinds = ("gatewayclasses", "gateways", "httproutes", "referencegrants")
    tcp = "tcproutes.gateway.networking.k8s.io/v1alpha2"
    assert CONSUL.requires == (*(f"{kind}.gateway.networking.k8s.io" for kind in kinds), tcp)
    gateway = VALUES["connectInject"]["apiGateway"]
    assert not gateway["manageExternalCRDs"]
    assert not gateway["manageNonStandardCRDs"]


def test_an_intention_that_asks_for_a_token_is_no_default():
    """Consul drops intentions that equal its default, and all may call all as long as none says more."""
    said = json.loads(VALUES["server"]["extraConfig"])
    assert said["default_intention_policy"] == "deny"
    (entry,) = said["config_entries"]["bootstrap"]
    assert entry == {"kind": "service-intentions", "name": "*", "sources": [{"name": "*", "action": "allow"}]}
    for treatment in ("consul", "consul+l7", "consul+l7+jwt"):
        (source,) = entries(render(treatment))["ServiceIntentions/echo"]["spec"]["sources"]
        assert source == {"name": "load", "action": "allow"}


def test_the_webhook_sees_the_studys_namespaces_and_no_others():
    selector = yaml.safe_load(VALUES["connectInject"]["namespaceSelector"])
    assert selector == {"matchLabels": dict(CONSUL.enrol.namespace_labels)}
    assert render("consul").namespace_labels == selector["matchLabels"]


def test_a_user_is_told_of_the_licence_and_when_a_token_is_asked_for():
    assert any("Business Source License" in line for line in CONSUL.remarks)
    assert any("default intention policy is deny" in line for line in CONSUL.remarks)
    assert (CONSUL.version, CONSUL.tested) == ("1.9.9", True)


def test_the_comparison_takes_consul_as_http_like_the_others():
    assert "consul+l7" in mesh_comparison.TREATMENTS["kubernetes"]
    assert "consul" not in mesh_comparison.TREATMENTS["kubernetes"]
