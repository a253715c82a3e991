"""HTTP/2 and gRPC through every data plane: proofs hold, and fail if a toggle is broken."""

import pytest
from local.studies import exercise, study_of, told

from meshtrial.design.load import FixedRate, Load
from meshtrial.errors import UsageError
from meshtrial.testbed.local import sidecar
from meshtrial.testbed.local.testbed import LocalTestbed

TREATMENTS = ["none", "node-proxy", "sidecar", "sidecar+mtls+jwt", "sidecar+mtls+opa"]


def load(protocol: str) -> Load:
    return FixedRate(100, 4, 0.5, protocol=protocol, generators=1 + (protocol == "mixed"))


@pytest.mark.parametrize("protocol", ["h2", "mixed"])  # half of which is gRPC
@pytest.mark.parametrize("name", TREATMENTS)
def test_a_treatment_carries_the_protocol_and_proves_itself(name, protocol, tmp_path):
    done = exercise(name, tmp_path, load(protocol))
    assert done.failed == {}
    responses = done.measured.responses
    assert responses["error_ratio"] == 0
    # Requests twelve streams on each of four connections.
    assert 0 < responses["requests"] == sum(told(done.outputs)) <= 48
    assert ("latency_grpc_p50_s" in responses) == (protocol == "mixed")
    codes = [record.return_codes for record in done.measured.generators]
    assert [set(found) for found in codes] == [{"200"}, {"SERVING"}][: len(codes)]
    assert [sum(found.values()) for found in codes] == told(done.outputs)


def test_a_removed_jwt_filter_is_found_on_grpc_too(monkeypatch, tmp_path):
    monkeypatch.setattr(sidecar, "jwt_filters", lambda tokens, *, cache: [])
    failed = set(exercise("sidecar+mtls+jwt", tmp_path, load("grpc")).failed)
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
    with pytest.raises(UsageError, match=message):
        LocalTestbed().preflight(study_of("ambient_vs_no_mesh", given))
