"""The three tiers: addresses, the control plane's file and the needs of a size, in numbers checked by hand."""

import functools
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from building import built
from refused import missing, refused

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.envoy.keys import Identity
from meshtrial.errors import UsageError
from meshtrial.testbed.local import host, tiers
from meshtrial.testbed.local.fleet import fan_out
from meshtrial.testbed.local.tiers import TIERS, Layout, client_command, free_layout, topology


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


def test_a_network_in_use_is_passed_over(monkeypatch):
    picks = iter([63, 64])  # 20 is added
    monkeypatch.setattr("meshtrial.testbed.local.tiers.secrets.randbelow", lambda _: next(picks))
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


LOAD = FixedRate(200, 200, 5, replicas=200)


def test_what_600_proxies_need():
    wanted = tiers.needs(LOAD, sidecars=True)
    assert wanted.threads == 600 * 7 + 120
    assert wanted.memory_bytes == (600 * 17 + 400) * 2**20
    # the fan-out: 200 connections in and out, and 200 endpoints: as many as the control plane's 600 streams; + 200
    assert wanted.files_per_process == 800
    assert wanted.files == 600 * 50 + 4 * (400 + 1200) + 500
    assert tiers.needs(LOAD, sidecars=False).memory_bytes == 400 * 2**20
    crowded = replace(LOAD, unused_services=1024)
    assert tiers.needs(crowded, sidecars=True).memory_bytes == (600 * (17 + 90) + 400) * 2**20
    assert tiers.needs(crowded, sidecars=True, scoped=True) == wanted
    (line,) = tiers.shortfalls(crowded, tiers.needs(crowded, sidecars=True), replace(wanted, threads=None))
    assert missing(line, [600, 1024, 64600, 10600, "`sizes`", "`unused_services`"]) == []


def test_too_little_is_said_with_both_numbers():
    there = host.Resources(files_per_process=256, files=10**6, threads=4096, memory_bytes=8192 * 2**20)
    files, threads, memory = tiers.shortfalls(LOAD, tiers.needs(LOAD, sidecars=True), there)
    assert missing(files, [600, 800, 256, "files"]) == []
    assert missing(threads, [600, 4320, 4096, "threads"]) == []
    assert missing(memory, [600, 10600, 8192, "memory"]) == []


def test_enough_and_unknown_limits_are_no_shortfall():
    wanted = tiers.needs(LOAD, sidecars=True)
    assert tiers.shortfalls(LOAD, wanted, host.Resources(None, None, None, None)) == ()
    assert tiers.shortfalls(LOAD, wanted, wanted) == ()


study = functools.partial(built, "scale_out")


def test_a_small_machine_refuses_the_large_size_alone(monkeypatch):
    monkeypatch.setattr(host, "available", lambda: host.Resources(4096, 10**6, 10**6, 1500 * 2**20))
    (line,) = tiers.problems(study(sizes="30,600"))
    assert missing(line, [600, 10600, 1500]) == []


def test_connections_that_do_not_divide_are_refused():
    with refused(UsageError):
        tiers.check(Treatment.parse("none"), FixedRate(10, 15, 5, replicas=10))


@pytest.mark.parametrize(
    ("name", "sidecars"), [("none", False), ("none-aa", False), ("sidecar+mtls", True), ("sidecar+mtls+scoped", True)]
)
def test_treatments(name, sidecars):
    assert tiers.has_sidecars(Treatment.parse(name)) is sidecars


@pytest.mark.parametrize(
    "name", ["sidecar", "node-proxy", "sidecar+scoped", "none+mtls", "sidecar+mtls+opa", "sidecar@old+mtls"]
)
def test_other_treatments_are_refused(name):
    with refused(UsageError):
        tiers.has_sidecars(Treatment.parse(name))


def test_the_quick_profile():
    made = study()
    assert [3 * load.replicas for load in made.loads] == [30, 150, 300]
    assert {(load.rps, load.connections) for load in made.loads} == {(200, 100)}
    assert made.blocks == 6  # the smallest number at which one contrast can be called
    assert "reduced rate" in made.title
    assert made.order == "randomised"
    assert study(order="ascending").order == "ascending"
    with refused(UsageError):
        tiers.problems(study(order="growing"))


def test_a_rate_for_each_replica():
    made = study(sizes="30,60", rate_per_replica=100)
    assert [load.rps for load in made.loads] == [1000, 2000]
    assert "reduced" not in made.title
    # 0.3 s for the holds and the path: 1.5 times the connections that 2000 rps keep busy, each replica the same
    assert made.loads[1].connections == 900


@pytest.mark.parametrize(("sizes", "bad"), [("30", 30), ("30,31", 31), ("30,603", 603), ("0,30", 0), ("a,30", "a")])
def test_bad_sizes_are_refused(sizes, bad):
    with refused(UsageError, names=["sizes", bad]):
        study(sizes=sizes)


def test_services_that_nobody_calls_are_crossed_with_the_sizes():
    made = study(sizes="30,60", unused_services="0,1000,200")
    assert [(load.replicas, load.unused_services) for load in made.loads] == [
        (replicas, unused) for replicas in (10, 20) for unused in (0, 200, 1000)
    ]
    assert len({load.label for load in made.loads}) == 6
    assert len(study(sizes="30", unused_services="0,200").loads) == 2  # one size is enough, because sizes grow there
    with refused(UsageError, names=["unused_services", "-1", "10000"]):
        study(unused_services="-1,0")
    with refused(UsageError, names=["growing", "unused_services"]):
        study(order="growing", unused_services="0,200")


def test_rates_and_rate_per_replica_exclude_each_other():
    with refused(UsageError):
        study(rates="100", rate_per_replica=1)
