"""HTTP/2 and gRPC through every data plane, with proofs that hold, and that fail where a toggle is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtrial.design.parameters import read_parameters
from meshtrial.design.studies import study_module
from meshtrial.design.study import Load, Treatment
from meshtrial.errors import UsageError
from meshtrial.load import fortio, ingest
from meshtrial.testbed.local import features
from meshtrial.testbed.local.testbed import LocalTestbed

pytestmark = pytest.mark.beside
TREATMENTS = ["none", "node-proxy", "sidecar", "sidecar+mtls+jwt", "sidecar+mtls+opa"]


def exercise(name: str, protocol: str, folder: Path):
    """Deploy, prove, load, prove again; the proofs that failed and the measurement."""
    load = Load(100, 4, 0.5, protocol=protocol, generators=1 + (protocol == "mixed"))
    deployment = LocalTestbed().deploy(Treatment.parse(name), load, "echo")
    try:
        proofs = list(deployment.prove("before", 0))
        outputs = deployment.generate(fortio.calls(load, "measure"), folder, 30)
        measured = ingest.ingest(outputs, load, 1)
        proofs += deployment.prove("after", int(measured.responses["requests"]))
        return {proof.name for proof in proofs if not proof.passed}, measured
    finally:
        deployment.close()


@pytest.mark.parametrize("protocol", ["h2", "grpc", "mixed"])
@pytest.mark.parametrize("name", TREATMENTS)
def test_a_treatment_carries_the_protocol_and_proves_itself(name, protocol, tmp_path):
    failed, measured = exercise(name, protocol, tmp_path)
    assert failed == set()
    assert measured.responses["error_ratio"] == 0
    # Twelve on each of four connections, but for what a machine that stalls at the end costs.
    assert 40 <= measured.responses["requests"] <= 48
    assert ("latency_grpc_p50_s" in measured.responses) == (protocol == "mixed")


def test_a_mixed_load_reaches_both_protocols_of_the_app(tmp_path):
    _, measured = exercise("sidecar+mtls", "mixed", tmp_path)
    codes = [record.return_codes for record in measured.generators]
    assert [set(found) for found in codes] == [{"200"}, {"SERVING"}]
    assert all(20 <= sum(found.values()) <= 24 for found in codes)


def test_the_relay_has_one_target():
    load = Load(100, 4, 0.5, protocol="mixed", generators=2)
    with pytest.raises(UsageError, match="the relay has one target, and a mixed load has two"):
        LocalTestbed().deploy(Treatment.parse("relay"), load, "echo")


def test_a_removed_jwt_filter_is_found_on_grpc_too(monkeypatch, tmp_path):
    monkeypatch.setattr(features, "jwt_filters", lambda tokens, *, cache: [])
    failed, _ = exercise("sidecar+mtls+jwt", "grpc", tmp_path)
    assert {"JWT without a token", "JWT with a forged token", "JWT with an expired token"} <= failed
    assert "JWT with a good token" not in failed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"protocol": "grpc", "app": "details"}, "the app details speaks http1"),
        ({"protocol": "h2", "treatments": "none,node-proxy@details-nodelay"}, "the app details-nodelay speaks http1"),
    ],
)
def test_an_app_that_does_not_speak_the_protocol_is_refused_before_anything_starts(given, message):
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, given))
    with pytest.raises(UsageError, match=message):
        LocalTestbed().preflight(study)


def test_closing_connections_is_refused_where_fortio_cannot():
    module = study_module("ambient_vs_no_mesh")
    with pytest.raises(UsageError, match=r"fortio closes only HTTP/1\.1 connections"):
        module.build(read_parameters(module.PARAMETERS, {"protocol": "h2", "keepalive": False}))
