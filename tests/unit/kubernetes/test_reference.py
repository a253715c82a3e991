"""What our own Envoys allow others: the reference sidecars, and the collectors of the meshes."""

import pytest
import yaml
from unit.kubernetes.rendering import find, render


@pytest.mark.parametrize(
    ("treatment", "config", "build"),
    [
        # The build of a measured data plane is queried too.
        *(("sidecar", "envoy-client", ["/server_info"]), ("sidecar+mtls", "envoy-server", ["/server_info"])),
        *((f"{mesh}+observability", "collector", []) for mesh in ("istio", "istio-ambient+waypoint", "kuma")),
        *(
            (f"{mesh}+metrics", "scraper", [])
            for mesh in ("istio", "istio-ambient+waypoint", "linkerd", "kuma", "consul")
        ),
    ],
)
def test_admin_listens_on_loopback_and_others_read_what_they_must_alone(treatment: str, config: str, build: list[str]):
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
    assert to_admin == [(9901, {"path": path}) for path in ("/ready", *build, "/stats/prometheus")]
