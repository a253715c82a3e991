"""What the local backend cannot build, or not for a load: refused before anything is started."""

import pytest
from refused import refused

from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local.dataplanes import check, tools_of

LOAD = Load(100, 4, 0.5)
COPIES = Load(100, 4, 0.5, replicas=2, generators=2)
BYTES = Load(100, 4, 0.5, payload_bytes=1000, protocol="tcp")
MIXED = Load(100, 4, 0.5, protocol="mixed", generators=2)
KNOWN = "none, relay, sidecar, node-proxy, xds, tcp-pair"
FEATURES = (
    "mtls, observability, access-log, metrics, tracing, tracing-1pct, "
    "jwt, jwt-cache, opa, opa-log, least-request, client-only, server-only"
)


@pytest.mark.parametrize(
    ("name", "load", "why"),
    [
        ("none+mtls", LOAD, "none has no feature 'mtls'; allowed: none"),
        ("sidecar+mtsl", LOAD, f"sidecar has no feature 'mtsl'; allowed: {FEATURES}"),
        ("relay+delay-2ms", LOAD, r"relay has no feature 'delay-2ms'; allowed: delay-\d+us"),
        ("sidecar+mtls+client-only", LOAD, "mtls needs the sidecar that client-only leaves out"),
        ("sidecar+client-only+opa", LOAD, "opa needs the sidecar that client-only leaves out"),
        ("sidecar+server-only+mtls", LOAD, "mtls needs the sidecar that server-only leaves out"),
        ("sidecar+client-only+server-only", LOAD, "with neither sidecar it is none"),
        ("sidecar+client-only", COPIES, "copies are told apart by their own sidecars; leave replicas out"),
        (
            "sidecar+least-request",
            LOAD,
            "one copy of the app leaves nothing to balance; set replicas to 2 or more",
        ),
        ("sidecar+observability+metrics", LOAD, "observability and metrics exclude each other; take one"),
        ("sidecar+access-log+tracing-1pct+tracing", LOAD, "tracing and tracing-1pct exclude each other; take one"),
        (
            "sidecar+tracing-1pct",
            LOAD,
            "of 50 requests in a run, 1 % may well be none, which would prove nothing; raise the rate or duration_s, "
            "to 1375 requests or more",
        ),
        ("sidecar", BYTES, "a sidecar here reads HTTP; bytes pass a tcp-pair or a node-proxy"),
        ("relay", BYTES, "the relay shows by a request that it is there; take http1"),
        ("relay", COPIES, "the relay has one target; leave replicas out"),
        ("relay", MIXED, "the relay has one target, and a mixed load has two"),
        ("tcp-pair", COPIES, "it has one target for each protocol; leave replicas out"),
        ("none+restart-proxies", LOAD, "nothing here is its proxies; allowed: restart-app"),
        ("relay+restart-proxies", LOAD, "nothing here is its proxies; allowed: restart-app"),
        (
            "sidecar+restart-control-plane",
            LOAD,
            "nothing here is its control-plane; allowed: restart-app, restart-proxies",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(name: str, load: Load, why: str):
    named = repr(name) if "has no feature" in why else name
    with refused(UsageError, f"treatment {named}: {why}"):
        check(Treatment.parse(name), load)


def test_doses_of_telemetry_that_do_not_overlap_are_taken_together():
    check(Treatment.parse("sidecar+mtls+access-log+metrics+tracing"), LOAD)
    check(Treatment.parse("sidecar+tracing-1pct"), Load(500, 4, 3))


def test_services_that_nobody_calls_need_somebody_who_tells_of_them():
    with refused(UsageError, names=["unused_services", 200, "tiers", "cluster"]):
        check(Treatment.parse("sidecar"), Load(100, 4, 0.5, unused_services=200))


def test_real_meshes_are_another_backends():
    words = f"the local backend has no data plane 'istio'; must be one of {KNOWN}; real meshes need backend=kubernetes"
    with refused(UsageError, f"treatment 'istio': {words}"):
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
