"""Addresses and the control plane's file: numbers that can be counted by hand."""

import socket
from pathlib import Path

import pytest
from refused import refused

from meshtrial.envoy.pki import Identity
from meshtrial.errors import UsageError
from meshtrial.testbed.local.scaleout.app import client_command, fan_out
from meshtrial.testbed.local.scaleout.topology import TIERS, Layout, free_layout, topology


@pytest.fixture
def identities():
    paths = (Path("c.crt"), Path("c.key"), Path("ca.crt"))
    return {tier: Identity(f"spiffe://t/{tier}", *paths) for tier in TIERS}


def test_every_endpoint_has_its_own_address():
    layout = Layout(200, "127.83")
    nodes = layout.nodes()
    assert len(nodes) == 600
    assert len({node["admin"] for node in nodes}) == 600
    assert layout.address("client", 7) == "127.83.1.7"
    # admin everywhere (600), inbound at two tiers (400), outbound at two tiers (400)
    assert len(set(layout.proxy_listeners())) == 1400


def test_tiers_take_and_give_what_their_place_in_the_chain_says():
    first, client, server = Layout(1, "127.83").nodes()
    assert first == {
        "id": "load-generator-1",
        "role": "load-generator",
        "admin": "127.83.0.1:15000",
        "outbound": "127.83.0.1:15001",
    }
    assert (client["inbound"], client["application"]) == ("127.83.1.1:15006", "127.83.1.1:8080")
    assert server["application"] == "127.83.2.250:8080"
    assert "outbound" not in server


def test_added_endpoints_are_known_and_not_called():
    layout = Layout(200, "127.83")
    added = [layout.added(number) for number in (1, 2, 3)]
    assert all(node["no_traffic"] for node in added)
    assert not {node["inbound"] for node in added} & {f"{a}:{p}" for a, p in layout.proxy_listeners()}


@pytest.mark.parametrize(("scoped", "word"), [(False, "full"), (True, "scoped")])
def test_the_control_planes_file(identities, scoped, word):
    made = topology(Layout(2, "127.83"), identities, scoped=scoped, spread=2, unused=200)
    assert (made["scope"], made["spread"], len(made["nodes"])) == (word, 2, 6)
    assert (made["extra_services"], made["extra_endpoints"]) == (200, 2)
    assert {name: role["calls"] for name, role in made["roles"].items()} == {
        "load-generator": "client",
        "client": "server",
        "server": "",
    }


@pytest.mark.parametrize("replicas", [0, 201])
def test_sizes_without_addresses_are_refused(replicas):
    with refused(UsageError):
        Layout(replicas, "127.83")


def test_a_network_in_use_is_passed_over(monkeypatch):
    picks = iter([63, 64])  # 20 is added
    monkeypatch.setattr("meshtrial.testbed.local.scaleout.topology.secrets.randbelow", lambda _: next(picks))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.83.1.2", 8080))
        taken.listen()
        assert free_layout(2, sidecars=False).network == "127.84"


def test_clients_call_on_before_they_hold(monkeypatch):
    monkeypatch.setattr("meshtrial.native.find", lambda name: Path(f"/bin/{name}"))
    argv = client_command(("127.1.1.250", 8080), [("127.1.1.1", 8080)], [("127.1.1.1", 15001)], 100.0)
    # fortio answers with the status of the first address: a failure further on must be seen
    hold = "http://127.1.1.250:8080/echo?delay=100ms"
    assert argv[-1] == f"127.1.1.1:8080 http://127.1.1.1:15001/echo?delay=100ms {hold}"
    assert "-multi-serial-mode" in argv


def test_fan_out_deals_to_all_endpoints():
    bootstrap = fan_out(("127.1.3.1", 1), ("127.1.3.2", 2), [("127.1.0.1", 15001), ("127.1.0.2", 15001)]).bootstrap()
    (cluster,) = bootstrap["static_resources"]["clusters"]
    (group,) = cluster["load_assignment"]["endpoints"]
    addresses = [e["endpoint"]["address"]["socket_address"]["address"] for e in group["lb_endpoints"]]
    assert (cluster["lb_policy"], addresses) == ("ROUND_ROBIN", ["127.1.0.1", "127.1.0.2"])
