"""Istio's two meshes as data: placement and settings of waypoints, counters of proofs, values of charts."""

import re
from dataclasses import replace

import pytest
import yaml
from refused import refused
from unit.kubernetes.rendering import find, meshes_for, render

from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import manifests, proofs, workload
from meshtrial.testbed.kubernetes.helm import Values
from meshtrial.testbed.kubernetes.meshdata import Mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.placement import requested
from meshtrial.testbed.kubernetes.pods import PodRef
from meshtrial.testbed.kubernetes.resources import parts_of

POD = PodRef("trial", "load-1", "fortio", "uid", "n1", "10.0.0.1")
HBONE = "bytes through ztunnel's HBONE, with both identities"
FROM_WAYPOINT = "bytes from the waypoint's identity into the application's ztunnel"
# A real ztunnel's output, without labels that no proof reads.
LINE = (
    'istio_tcp_sent_bytes_total{{reporter="{reporter}",source_workload="x",source_principal="{source}",'
    'destination_workload="y",destination_principal="{destination}",request_protocol="tcp",'
    'connection_security_policy="{security}",source_region="unknown"}} 4711\n'
)
SPIFFE = "spiffe://cluster.local/ns/trial/sa/"


def mesh(name: str = "istio-ambient", options: KubernetesOptions | None = None) -> Mesh:
    return meshes_for(options or KubernetesOptions())[name]


def overlay(rendered: workload.Rendered) -> dict:
    return yaml.safe_load(find(rendered, "ConfigMap", "waypoint")["data"]["deployment"])["spec"]["template"]


def test_a_waypoint_keeps_away_from_the_generators_and_stands_where_the_application_may():
    taint = {"key": "dedicated", "operator": "Equal", "value": "app", "effect": "NoSchedule"}
    options = KubernetesOptions(app_node_selector={"pool": "app"}, app_tolerations=(taint,))
    spec = overlay(render("istio-ambient+waypoint", options=options))["spec"]
    assert spec["nodeSelector"] == {"pool": "app"}
    assert spec["tolerations"] == [taint]
    (away,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert away["labelSelector"]["matchLabels"] == {"meshtrial.dev/part": "load"}
    together = overlay(render("istio-ambient+waypoint", options=KubernetesOptions(load_separation="none")))["spec"]
    assert "affinity" not in together


def test_an_agentgateway_takes_the_place_of_the_waypoint_with_the_limits_of_every_proxy():
    rendered = render("istio-ambient@agentgateway+agentgateway", options=KubernetesOptions(proxy_cpu="1500m"))
    (proxy,) = overlay(rendered)["spec"]["containers"]
    assert (proxy["name"], proxy["resources"]["limits"]) == ("agentgateway", {"cpu": "1500m", "memory": "512Mi"})
    assert find(rendered, "Gateway", "waypoint")["spec"]["gatewayClassName"] == "istio-agentgateway-waypoint"


def test_a_waypoint_has_the_limits_and_workers_of_every_proxy():
    template = overlay(
        render("istio-ambient+waypoint", options=KubernetesOptions(proxy_cpu="1500m", proxy_memory="300Mi"))
    )
    (proxy,) = template["spec"]["containers"]
    assert proxy["name"] == "istio-proxy"
    assert proxy["resources"]["limits"] == {"cpu": "1500m", "memory": "300Mi"}
    assert proxy["resources"]["requests"] == {"cpu": "100m", "memory": "128Mi"}
    sidecars = yaml.safe_load(mesh("istio").enrol.pod_annotations["proxy.istio.io/config"])
    waypoint = yaml.safe_load(template["metadata"]["annotations"]["proxy.istio.io/config"])
    assert waypoint["concurrency"] == sidecars["concurrency"] == 2
    assert waypoint["proxyStatsMatcher"] == sidecars["proxyStatsMatcher"]


def test_a_waypoint_is_counted_in_the_room_that_a_deployment_needs():
    without, found = render("istio-ambient"), mesh()
    plain, waypoint = requested(without.objects, found), requested(render("istio-ambient+waypoint").objects, found)
    more = waypoint - plain
    assert (round(more.cpu, 9), more.memory_bytes, more.pods) == (0.1, 128 * 2**20, 1)


def test_a_policy_server_in_a_waypoint_is_not_counted_as_data_plane():
    def pod(name: str, *containers: str, **labels: str) -> dict:
        metadata = {"namespace": "trial", "name": name, "labels": labels}
        return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": c} for c in containers]}}

    app = pod("echo-1", "echo", **{"meshtrial.dev/part": "app", "meshtrial.dev/component": "server"})
    parts = parts_of(mesh(), [app], [pod("waypoint-1", "istio-proxy", "opa")], {}, {})
    assert {p.component: p.role for p in parts} == {
        "server": "app",
        "waypoint": "data plane",
        "waypoint opa": "policy",
    }


def test_an_overlay_that_is_no_deployment_is_refused_and_other_configuration_is_left_alone():
    patch = manifests.overlay_patched(manifests.placed({"pool": "app"}, ()))
    plain = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"deployment": "spec: {}"}}
    patch(plain)
    assert plain["data"] == {"deployment": "spec: {}"}
    plain["metadata"]["annotations"] = {"meshtrial.dev/overlay": "deployment"}
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {}}}}
    patch(said := {**plain, "data": {"deployment": yaml.safe_dump(own)}})
    told = yaml.safe_load(said["data"]["deployment"])
    assert told["metadata"] == {"labels": {"a": "b"}}  # settings of the overlay itself stay, and nothing is added
    assert set(told) == {"metadata", "spec"}
    with refused(UsageError):
        patch(plain)


def counted(name: str, **said: str) -> bool:
    ambient = mesh()
    counters = [*ambient.counters, *ambient.features["waypoint"].counters]
    (pattern,) = (c.pattern for c in counters if c.name == name)
    found = re.findall(pattern, "# TYPE istio_tcp_sent_bytes_total counter\n" + LINE.format(**said))
    assert found in ([], ["4711"])
    return bool(found)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"destination": f"{SPIFFE}waypoint"}, True),
        ({"source": f"{SPIFFE}probe"}, False),
        ({"source": "unknown"}, False),
        ({"destination": "unknown"}, False),
        ({"security": "unknown"}, False),
        ({"reporter": "destination"}, False),
    ],
)
def test_hbone_counts_what_both_identities_were_verified_of(changed: dict[str, str], counts: bool):
    line = {"reporter": "source", "source": f"{SPIFFE}load", "destination": f"{SPIFFE}echo", "security": "mutual_tls"}
    assert counted(HBONE, **{**line, **changed}) is counts


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"source": f"{SPIFFE}load"}, False),  # past the waypoint
        ({"security": "unknown"}, False),
        ({"reporter": "source"}, False),
    ],
)
def test_what_the_application_gets_must_come_from_the_waypoint(changed: dict[str, str], counts: bool):
    line = {"source": f"{SPIFFE}waypoint", "destination": f"{SPIFFE}echo", "security": "mutual_tls"}
    assert counted(FROM_WAYPOINT, **{"reporter": "destination", **line, **changed}) is counts


def test_the_platform_reaches_every_chart_that_differs_by_it():
    options = KubernetesOptions(meshes={"istio-ambient": {"parameters": {"platform": "gke"}}})
    ambient = mesh(options=options)
    values = Values(options, ambient)
    told = {release.name: values.of(release) for release in ambient.releases}
    assert {name for name, found in told.items() if found.get("global", {}).get("platform") == "gke"} == {
        "istiod",
        "istio-cni",
        "ztunnel",
    }
    assert all("global.platform" in ambient.open_values[name] for name in ("istiod", "istio-cni", "ztunnel"))


@pytest.mark.parametrize("name", ["istio", "istio-ambient"])
def test_no_retries_no_access_log_and_the_same_providers_in_both_modes(name: str):
    text = (mesh(name).folder / "values-istiod.yaml").read_text()
    config = yaml.safe_load(text)["meshConfig"]
    assert config["defaultHttpRetryPolicy"] == {"attempts": 0}
    assert config["accessLogFile"] == ""
    assert [p["name"] for p in config["extensionProviders"]] == ["meshtrial-opa", "meshtrial-otel"]
    other = yaml.safe_load((mesh("istio").folder / "values-istiod.yaml").read_text())["meshConfig"]
    assert config["extensionProviders"] == other["extensionProviders"]
    ztunnel = yaml.safe_load((mesh().folder / "values-ztunnel.yaml").read_text())
    assert ztunnel["logLevel"] == "info,access=warn"


def test_what_needs_both_sidecars_is_refused_with_one():
    with refused(UsageError, names=["istio+mtls+client-only", "client-only", "mtls"]):
        render("istio+mtls+client-only")
    with refused(UsageError, names=["istio+client-only+jwt", "client-only", "jwt"]):
        render("istio+client-only+jwt")


def containers_of(*names: str) -> dict:
    return {"metadata": {"name": "x"}, "spec": {"containers": [{"name": name} for name in names]}}


def test_the_proof_of_one_side_looks_at_every_pod():
    istio = mesh("istio")
    (client_only,) = istio.check(Treatment.parse("istio+client-only"))
    client_only = replace(client_only, proofs=("one-sided",), counters=())
    istio = replace(istio, proofs=("proxied",), counters=(), features={client_only.name: client_only})
    both, alone = containers_of("fortio", "istio-proxy"), containers_of("fortio")

    def failed(app: dict, load: dict) -> list[str]:
        pods = {"app": [app], "load": [load]}
        rendered = render("istio+client-only")
        rendered = replace(rendered, setup=replace(rendered.setup, mesh=istio))
        subject = proofs.ProofContext(None, rendered, pods, POD, POD)  # type: ignore[arg-type]
        return [proof.name for proof in proofs.prove(subject, "before", 0) if not proof.passed]

    assert failed(alone, both) == []
    assert failed(both, both) == ["a proxy in none of the application's pods"]
    assert failed(alone, alone) == ["a proxy in each of the generators' pods"]
