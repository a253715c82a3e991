"""What a size needs against what is there, in numbers that can be added up."""

import functools
from dataclasses import replace

import pytest
from building import built
from refused import missing, refused

from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local import resources
from meshtrial.testbed.local.resources import MIB, Resources, needs, shortfalls
from meshtrial.testbed.local.tiers import check, has_sidecars

LOAD = Load(200, 200, 5, replicas=200)


def test_what_600_proxies_need():
    wanted = needs(LOAD, sidecars=True)
    assert wanted.threads == 600 * 7 + 120
    assert wanted.memory_bytes == (600 * 17 + 400) * MIB
    # the fan-out: 200 connections in and out, and 200 endpoints: as many as the control plane's 600 streams; + 200
    assert wanted.files_per_process == 800
    assert wanted.files == 600 * 50 + 4 * (400 + 1200) + 500
    assert needs(LOAD, sidecars=False).memory_bytes == 400 * MIB
    crowded = replace(LOAD, unused_services=1024)
    assert needs(crowded, sidecars=True).memory_bytes == (600 * (17 + 90) + 400) * MIB
    assert needs(crowded, sidecars=True, scoped=True) == wanted
    (line,) = shortfalls(crowded, needs(crowded, sidecars=True), replace(wanted, threads=None))
    assert missing(line, [600, 1024, 64600, 10600, "`sizes`", "`unused_services`"]) == []


def test_too_little_is_said_with_both_numbers():
    there = Resources(files_per_process=256, files=10**6, threads=4096, memory_bytes=8192 * MIB)
    files, threads, memory = shortfalls(LOAD, needs(LOAD, sidecars=True), there)
    assert missing(files, [600, 800, 256, "files"]) == []
    assert missing(threads, [600, 4320, 4096, "threads"]) == []
    assert missing(memory, [600, 10600, 8192, "memory"]) == []


def test_enough_and_unknown_limits_are_no_shortfall():
    wanted = needs(LOAD, sidecars=True)
    assert shortfalls(LOAD, wanted, Resources(None, None, None, None)) == ()
    enough = Resources(wanted.files_per_process, wanted.files, wanted.threads, wanted.memory_bytes)
    assert shortfalls(LOAD, wanted, enough) == ()


def test_this_machine_is_read():
    found = resources.machine()
    assert found.files_per_process is None or found.files_per_process > 0
    assert found.memory_bytes is None or found.memory_bytes > 0


study = functools.partial(built, "scale_out")


def test_a_small_machine_refuses_the_large_size_alone(monkeypatch):
    monkeypatch.setattr(resources, "machine", lambda: Resources(4096, 10**6, 10**6, 1500 * MIB))
    found = resources.problems(study(sizes="30,600"))
    assert len(found) == 1
    assert found[0].startswith("600 endpoints: 10600 MiB")


def test_connections_that_do_not_divide_are_refused():
    with refused(UsageError):
        check(Treatment.parse("none"), Load(10, 15, 5, replicas=10))


@pytest.mark.parametrize(
    ("name", "sidecars"), [("none", False), ("none-aa", False), ("sidecar+mtls", True), ("sidecar+mtls+scoped", True)]
)
def test_treatments(name, sidecars):
    assert has_sidecars(Treatment.parse(name)) is sidecars


@pytest.mark.parametrize("name", ["sidecar", "node-proxy", "sidecar+scoped", "none+mtls", "sidecar+mtls+opa"])
def test_other_treatments_are_refused(name):
    with refused(UsageError):
        has_sidecars(Treatment.parse(name))


def test_the_quick_profile():
    made = study()
    assert [3 * load.replicas for load in made.loads] == [30, 150, 300]
    assert {(load.rps, load.connections) for load in made.loads} == {(200, 100)}
    assert made.blocks == 6  # the least in which one contrast can be called
    assert "reduced rate" in made.title
    assert made.order == "randomised"
    assert study(order="ascending").order == "ascending"
    with refused(UsageError):
        resources.problems(study(order="growing"))


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
    assert len(study(sizes="30", unused_services="0,200").loads) == 2  # one size is enough where they grow
    with refused(UsageError, names=["unused_services", "-1", "10000"]):
        study(unused_services="-1,0")
    with refused(UsageError, names=["growing", "unused_services"]):
        study(order="growing", unused_services="0,200")


def test_rates_and_rate_per_replica_exclude_each_other():
    with refused(UsageError):
        study(rates="100", rate_per_replica=1)
