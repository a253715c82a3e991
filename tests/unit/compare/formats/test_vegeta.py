"""vegeta's four forms, from one attack of 100 requests per second."""

import json

import pytest
from refused import missing


def test_every_request_exactly_as_json_and_as_csv(read):
    stream, table = read("vegeta.json"), read("vegeta.csv")
    # The tenth and the eleventh of 20 are 407.498 and 456.992 us.
    assert stream.responses["latency_p50_s"] == pytest.approx(432.245e-6, abs=1e-15)
    assert stream.responses["latency_max_s"] == pytest.approx(3651.639e-6)
    assert (stream.responses["requests"], stream.responses["error_ratio"]) == (20, 0)
    assert table.responses == stream.responses
    assert table.settings == stream.settings
    assert stream.settings.labels == "block-3"
    assert stream.start_unix_s == pytest.approx(1795426717.2893)
    assert stream.settings.actual_rps == pytest.approx(20 / 0.19, rel=0.01)


def test_failed_requests_are_told_by_their_status(read, fixture_text):
    lines = [json.loads(line) for line in fixture_text("vegeta.json").splitlines()]
    lines[0] |= {"code": 503, "error": "503 Service Unavailable"}
    lines[1] |= {"code": 0, "error": "connection refused"}
    lines[2] |= {"code": 304}
    found = read("\n".join(map(json.dumps, lines)) + "\n")
    assert found.responses["error_ratio"] == pytest.approx(2 / 20)
    assert found.responses["latency_max_s"] == pytest.approx(1939.044e-6)  # the slowest was one of them
    assert not any("include failed requests" in note for note in found.notes)


def test_a_report_is_one_number_a_run(read):
    found = read("vegeta-report.json", 1.0)
    assert found.responses["latency_p50_s"] == pytest.approx(429.952e-6)
    assert found.responses["latency_p99_s"] == pytest.approx(2947.138e-6)
    assert found.responses["latency_mean_s"] == pytest.approx(569.049e-6)
    assert "latency_p75_s" not in found.responses
    assert "estimates" in found.notes[0]
    assert "vegeta encode" in found.further
    assert found.settings.actual_duration_s == pytest.approx(2.990856774)
    assert found.start_unix_s == pytest.approx(1795426717.2893)
    assert "latency_p99_s" not in read("vegeta-report.json", 100.0).responses  # three requests lie beyond it


def test_failed_requests_are_inside_a_reports_percentiles(read, fixture_text):
    report = json.loads(fixture_text("vegeta-report.json")) | {"status_codes": {"200": 270, "503": 20, "0": 10}}
    found = read(report)
    assert found.responses["error_ratio"] == pytest.approx(0.1)
    assert "include failed requests" in found.notes[-1]


def test_a_histogram_is_as_coarse_as_its_buckets(read):
    found = read("vegeta-hist.txt")
    # 98 of 300 lie up to 400 us and 156 in the next bucket, of 200 us: the 150th is a third into it.
    assert found.responses["latency_p50_s"] == pytest.approx(466.667e-6, abs=1e-9)
    assert found.bounds["latency_p50_s"] == pytest.approx(200e-6)
    assert "error_ratio" not in found.responses


def test_no_quantile_is_taken_from_the_bucket_without_an_end(read, refused, fixture_text):
    text = fixture_text("vegeta-hist.txt")
    beyond = text.replace("[5ms,    +Inf]   0    0.00%", "[5ms,    +Inf]   30   9.09%")
    found = read(beyond)
    assert "latency_p90_s" in found.responses  # 297 of 330 lie before it
    assert {"latency_p95_s", "latency_p99_s", "latency_max_s"}.isdisjoint(found.responses)
    refused(text.partition("[5ms,")[0])


@pytest.mark.parametrize("name", ["vegeta.json", "vegeta.csv"])
def test_two_attacks_are_two_runs(refused, fixture_text, name):
    text = fixture_text(name)
    said = refused(text + text.replace("block-3", "block-4"))
    assert missing(said, [2, "runs", "'block-3'", "'block-4'"]) == []
    first = text.splitlines(keepends=True)
    assert missing(refused("".join(first + first[5:7])), [2, "runs", 5]) == []


def test_the_binary_is_named(refused):
    refused(b"\xff\x96\x7f\x03\x01\x01\x06Result\x01\xff\x80\x00\x01\x0c\x01\x06Attack\x01\x0c\x00")
