"""Calls from recorded responses of a Prometheus 2.42 with an hour and a half of each mesh's series.

One of Istio's counters was reset half an hour before the answers. Both ends report most calls.
"""

import pytest
from answering import NOTHING, answering, recorded

from meshtrial.design.system import Call, read_system
from meshtrial.errors import UsageError
from meshtrial.prediction.observed import Name, Observed, observe, replicas_of
from meshtrial.prediction.prometheus import Prometheus


def observed(name: str, *namespaces: str, window: str = "1h", **changes: object) -> Observed:
    with answering(recorded(name, changes)) as address:
        return observe(Prometheus(address), window, namespaces)


def vector(value: float, **labels: str) -> object:
    return {"status": "success", "data": {"result": [{"metric": labels, "value": [1, str(value)]}]}}


def test_istio_counts_each_call_once():
    found = observed("istio")
    assert found.calls == (
        Call("unknown", "frontend", 3),  # by the callee's proxy alone
        # 120/s with bodies of 300 and 9,000 bytes, whose counters were reset, and 80/s that failed with 300 and 0
        Call("istio-ingressgateway", "frontend", 200, "http1", 1, 300, 5400),
        Call("web", "cart.other", 7),
        Call("cart.shop", "prices", 40, "http1", 1, 0, 700),  # by a waypoint
        Call("frontend", "api.example.com", 0.25),  # by the caller's proxy alone
        Call("frontend", "cart.shop", 105, "grpc", 1, 200, 1200),  # 100 of gRPC, 5 of HTTP
    )
    outside = {name for name, one in found.system({}).services.items() if one.outside}
    assert outside == {"unknown", "api.example.com"}


def test_connections_without_requests_are_a_note():
    (line,) = (line for line in observed("istio").notes if "rps: ?" in line)
    assert "caller: cart.shop, callee: redis" in line
    assert "connections: 4}" in line  # 7 opened, 3 closed
    assert "2000 bytes/s there, 50000 back" in line


def test_linkerd_counts_calls_of_callers_with_and_without_a_proxy():
    found = observed("linkerd")
    assert found.calls == (
        Call("unknown", "frontend", 200),  # neither probes nor readings of metrics
        # Of 11 connections to its own proxy, 5 are those to redis; two are open to the proxy of prices.
        Call("cart", "prices", 40, "http1", 6, 100, 900),
        # 90 that succeeded and 10 that failed share 22,500 and 117,000 bytes per second
        Call("frontend", "cart", 100, "grpc", 32, 225, 1170),
    )
    assert found.system({}).services["prices"].outside  # its proxy counts nothing
    assert not found.system({}).services["cart"].outside
    assert any("callee: redis" in line and "connections: 5}" in line for line in found.notes)


def test_linkerd_does_not_count_an_applications_connections_by_callee():
    rates = [
        {"metric": {"namespace": "shop", "deployment": "frontend", "dst_namespace": "shop", "dst_deployment": callee}}
        | {"value": [1, rps]}
        for callee, rps in (("cart", "30"), ("prices", "10"))
    ]
    answer = {"status": "success", "data": {"result": rates}}
    found = observed("linkerd", **{'rate(response_total{direction="outbound"': answer})
    connections = {call.callee: call.connections for call in found.calls if call.caller == "frontend"}
    assert connections == {"cart": 24, "prices": 8}  # 32 by the rates


def test_a_namespace_chooses_calls_from_and_to_it():
    found = observed("istio", "pricing", "other")
    assert [(call.caller, call.callee) for call in found.calls] == [("web", "cart.other"), ("cart.shop", "prices")]
    with pytest.raises(UsageError, match=r"none.*istio-system, other, pricing, shop"):
        observed("istio", "none")


@pytest.mark.parametrize("mesh", ["istio", "linkerd"])
def test_what_is_written_is_a_system_file(tmp_path, mesh):
    system = observed(mesh).system({Name("shop", "cart"): 3})
    path = tmp_path / "system.yaml"
    path.write_text(system.to_yaml())
    assert read_system(path) == system
    assert max(one.replicas for one in system.services.values()) == 3


@pytest.mark.parametrize(
    ("name", "changes", "part"),
    [
        ("istio", {"last_over_time": NOTHING}, "neither istio_requests_total nor response_total"),
        ("istio", {"offset": NOTHING}, "less than the last 1h.*shorter --range"),
        ("istio", {"rate(": NOTHING}, "counts no request"),
        ("linkerd", {"rate(": NOTHING}, "counts no request"),
        ("istio", {"last_over_time(istio_requests_total": NOTHING}, "neither"),
        (
            "istio",
            {"rate(istio_requests_total": vector(1), "topk": vector(1, app="x", code="200", __name__="y")},
            "takes source_workload and destination_service_name; its labels are app, code",
        ),
        ("linkerd", {"rate(response_total": vector(1), "topk": vector(1, dst="x")}, "its labels are dst"),
        ("istio", {"last_over_time(istio_r": NOTHING, "istio_tcp": vector(1)}, "connections and no requests"),
        ("istio", {"time()": NOTHING}, "no time"),
    ],
)
def test_what_does_not_describe_a_system_is_one_line(name, changes, part):
    with pytest.raises(UsageError, match=part) as refused:
        observed(name, **changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("window", ["1", "h", "0h", "-1h", "1h]) or vector(1", "1h30m"])
def test_a_window_is_a_number_with_a_unit(window):
    with pytest.raises(UsageError, match="range"):
        observed("istio", window=window)


def test_replicas_are_running_pods_by_service_and_by_workload():
    def pod(name: str, phase: str = "Running", owner: str = "", **labels: str) -> dict[str, object]:
        owners = [{"name": owner}] if owner else []
        metadata = {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": owners}
        return {"metadata": metadata, "status": {"phase": phase}}

    pods = [
        pod("cart-v1-5d-x", owner="cart-v1-5d", app="cart", **{"pod-template-hash": "5d"}),
        pod("cart-v2-6e-x", owner="cart-v2-6e", app="cart", **{"pod-template-hash": "6e"}),
        pod("cart-v2-6e-y", "Pending", "cart-v2-6e", app="cart", **{"pod-template-hash": "6e"}),
        pod("redis-0", owner="redis"),
        pod("alone"),
    ]
    counted = {name.name: number for name, number in replicas_of(pods).items()}
    assert counted == {"cart": 2, "cart-v1": 1, "cart-v2": 1, "redis": 1, "alone": 1}
