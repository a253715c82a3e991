"""What the Envoys of our own let others do: the reference sidecars, and the collectors of the meshes."""

import pytest
import yaml
from unit.kubernetes.rendering import find, render


@pytest.mark.parametrize(
    ("treatment", "config"),
    [
        *(("sidecar", "envoy-client"), ("sidecar+mtls", "envoy-server")),
        *((f"{mesh}+observability", "collector") for mesh in ("istio", "istio-ambient+waypoint", "kuma")),
    ],
)
def test_admin_listens_on_loopback_and_others_read_readiness_and_counters_alone(treatment: str, config: str):
    bootstrap = yaml.safe_load(find(render(treatment), "ConfigMap", config)["data"]["envoy.yaml"])
    assert bootstrap["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 9902}
    listeners = {
        one["address"]["socket_address"]["port_value"]: one for one in bootstrap["static_resources"]["listeners"]
    }
    managers = {
        port: one["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
        for port, one in listeners.items()
    }
    to_admin = [
        (port, route["match"])
        for port, hosts in managers.items()
        for host in hosts
        for route in host["routes"]
        if route.get("route", {}).get("cluster") == "admin"
    ]
    assert to_admin == [(9901, {"path": "/ready"}), (9901, {"path": "/stats/prometheus"})]
