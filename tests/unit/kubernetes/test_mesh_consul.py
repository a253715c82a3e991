"""Consul's data: rendered manifests, and counters that its sidecars really report."""

import json

import pytest
import yaml
from refused import refused
from unit.kubernetes.rendering import carrying, find, render

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions

OPTIONS = KubernetesOptions()
CONSUL = find_meshes(OPTIONS)["consul"]
VALUES = yaml.safe_load((CONSUL.folder / "values.yaml").read_text())


def entries(rendered: workload.Rendered) -> dict[str, Json]:
    """Consul's own objects by kind and name."""
    found = [o for o in rendered.objects if o["apiVersion"].startswith("consul.hashicorp.com/")]
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in found}


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


def test_sidecars_are_like_the_other_meshes_whoever_installed_consul():
    pods = [o["spec"]["template"] for o in render("consul").objects if o["kind"] == "Deployment"]
    assert len(pods) == 2
    prefix = "consul.hashicorp.com/"
    for pod in pods:
        notes = {k.removeprefix(prefix): v for k, v in pod["metadata"]["annotations"].items() if k.startswith(prefix)}
        assert notes["connect-inject"] == notes["transparent-proxy"] == notes["enable-metrics"] == "true"
        assert (notes["sidecar-proxy-cpu-limit"], notes["consul-envoy-proxy-concurrency"]) == ("2", "2")
        assert notes["consul-dns"] == "false"
        # Its root init container is the injector's own, and no service account is used to log in.
        assert "runAsNonRoot" not in pod["spec"].get("securityContext", {})
        assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("version", "limit"), [("", "2"), ("@cpu-200m", "200m"), ("@cpu-unlimited", None)])
def test_a_version_limits_the_sidecars_of_both_sides_in_place_of_proxy_cpu(version: str, limit: str | None):
    rendered = render(f"consul{version}+l7")
    for name in ("echo", "load"):
        notes = find(rendered, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]
        assert notes.get("consul.hashicorp.com/sidecar-proxy-cpu-limit") == limit


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


def test_an_intention_that_asks_for_a_token_is_no_default():
    """Consul drops intentions that equal its default, and all may call all without a stricter one."""
    said = json.loads(VALUES["server"]["extraConfig"])
    assert said["default_intention_policy"] == "deny"
    (entry,) = said["config_entries"]["bootstrap"]
    assert entry == {"kind": "service-intentions", "name": "*", "sources": [{"name": "*", "action": "allow"}]}
    for treatment in ("consul", "consul+l7", "consul+l7+jwt"):
        (source,) = entries(render(treatment))["ServiceIntentions/echo"]["spec"]["sources"]
        assert source == {"name": "load", "action": "allow"}
