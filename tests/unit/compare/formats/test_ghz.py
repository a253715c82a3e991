"""ghz's JSON: every call if the file has them all, otherwise its percentiles; nanoseconds."""

import pytest


def test_every_call(read):
    found = read("ghz.json")
    assert found.kind == "ghz"
    # The tenth and the eleventh of 20 are 536.320 and 538.293 us.
    assert found.responses["latency_p50_s"] == pytest.approx(537.3065e-6, abs=1e-15)
    assert found.responses["latency_max_s"] == pytest.approx(3622.816e-6)
    assert (found.responses["requests"], found.responses["error_ratio"]) == (20, 0)
    settings = found.settings
    assert (settings.generator, settings.client, settings.labels) == ("ghz", "grpc", "block-3")
    assert (settings.requested_rps, settings.closed_loop, settings.users, settings.threads) == (100.0, False, 2, 2)
    assert settings.timeout_s == 20.0
    assert found.start_unix_s == pytest.approx(1795426720.38, abs=0.1)


WHOLE = "ghz.json"


def test_calls_with_an_error_are_taken_out(read, whole):
    call = max(whole["details"], key=lambda call: call["latency"])
    call |= {"error": "rpc error: code = Unavailable", "status": "Unavailable"}
    whole |= {"errorDistribution": {"rpc error: code = Unavailable": 1}}
    found = read(whole)
    assert found.responses["error_ratio"] == pytest.approx(1 / 20)
    assert found.responses["latency_max_s"] == pytest.approx(1025.686e-6)


def test_calls_that_the_end_of_a_run_by_time_broke_off_are_no_failures(read, whole):
    closing = "rpc error: code = Canceled desc = grpc: the client connection is closing"
    for call in whole["details"][:3]:
        call |= {"error": closing, "status": "Canceled"}
    whole |= {"errorDistribution": {closing: 3}}
    assert read(whole).responses["error_ratio"] == pytest.approx(3 / 20)
    whole |= {"endReason": "timeout"}
    found = read(whole)
    # Two workers had one call each; the third failed for another reason.
    assert (found.responses["requests"], found.responses["error_ratio"]) == (18, pytest.approx(1 / 18))
    assert found.settings.requests == 20  # as many as its rate implies


def test_percentiles_may_be_of_errors_too(read, whole):
    whole |= {"count": 2_000_000, "errorDistribution": {"x": 1}}
    assert not any("include failed requests" in note for note in read(whole).notes)
    whole["options"]["count-errors"] = True
    assert "include failed requests" in read(whole).notes[-1]


def test_beyond_a_million_calls_its_own_percentiles(read, whole):
    whole |= {"count": 2_000_000}
    found = read(whole, 100.0)
    assert found.kind == "ghz summary"
    assert found.responses["latency_p50_s"] == pytest.approx(459.005e-6)
    assert found.responses["latency_p99_s"] == pytest.approx(10470.870e-6)
    assert "latency_mean_s" not in found.responses  # ghz's average includes failed calls
    assert "ghz's own percentiles" in found.notes[0]


def test_an_older_version_calls_the_rate_qps_and_none_is_a_closed_loop(read, whole):
    whole["options"]["qps"] = whole["options"].pop("rps")
    assert read(whole).settings.requested_rps == 100.0
    del whole["options"]["qps"]
    assert read(whole).settings.closed_loop
