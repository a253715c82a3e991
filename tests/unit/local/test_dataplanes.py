"""Treatments and loads that the local backend cannot build are refused before anything starts."""

import pytest
from refused import refused

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local.dataplanes import check, tools_of

LOAD = FixedRate(100, 4, 0.5)
COPIES = FixedRate(100, 4, 0.5, replicas=2, generators=2)
BYTES = FixedRate(100, 4, 0.5, payload_bytes=1000, protocol="tcp")
MIXED = FixedRate(100, 4, 0.5, protocol="mixed", generators=2)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("none+mtls", LOAD),
        ("sidecar+mtsl", LOAD),
        ("relay+delay-2ms", LOAD),
        ("sidecar+mtls+client-only", LOAD),
        ("sidecar+client-only+opa", LOAD),
        ("sidecar+server-only+mtls", LOAD),
        ("sidecar+client-only+server-only", LOAD),
        ("sidecar+client-only", COPIES),
        ("sidecar+least-request", LOAD),
        ("sidecar+pqc", LOAD),
        ("sidecar+mtls+x25519+pqc", LOAD),
        ("sidecar+unpooled+server-only", LOAD),
        ("sidecar+observability+metrics", LOAD),
        ("sidecar+access-log+tracing-1pct+tracing", LOAD),
        ("sidecar+tracing-1pct", LOAD),
        ("sidecar", BYTES),
        ("relay", BYTES),
        ("relay", COPIES),
        ("relay", MIXED),
        ("tcp-pair", COPIES),
        ("none+restart-proxies", LOAD),
        ("relay+restart-proxies", LOAD),
        ("sidecar+restart-control-plane", LOAD),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(name: str, load: Load):
    with refused(UsageError):
        check(Treatment.parse(name), load)


def test_doses_of_telemetry_that_do_not_overlap_are_taken_together():
    check(Treatment.parse("sidecar+mtls+access-log+metrics+tracing"), LOAD)
    check(Treatment.parse("sidecar+tracing-1pct"), FixedRate(500, 4, 3))


def test_services_that_nobody_calls_need_somebody_who_tells_of_them():
    with refused(UsageError, names=["unused_services", 200, "tiers", "cluster"]):
        check(Treatment.parse("sidecar"), FixedRate(100, 4, 0.5, unused_services=200))


def test_idle_connections_are_counted_by_one_proxy():
    with refused(UsageError, names=["idle_connections", 100, "xds", "sidecar"]):
        check(Treatment.parse("xds"), FixedRate(100, 4, 0.5, idle_connections=100))


def test_real_meshes_are_another_backends():
    with refused(UsageError):
        check(Treatment.parse("istio"), LOAD)


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("none", ()),
        ("relay+delay-50us", ("delay-proxy",)),
        ("node-proxy", ("envoy",)),
        ("sidecar+mtls+opa-log", ("envoy", "opa-extauthz")),
    ],
)
def test_the_programs_that_it_needs(name: str, tools: tuple[str, ...]):
    assert tools_of(Treatment.parse(name)) == tools
