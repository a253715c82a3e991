"""k6's summary in its three forms, and its samples; milliseconds."""

import json

import pytest
from refused import missing


def values(whole, name):
    return whole["metrics"][name]["values"]


WHOLE = "k6-handle-summary.json"


# One run each, as k6 1.8 wrote it: ms of the expected responses, a separate metric; sent, failed, seconds.
@pytest.mark.parametrize(
    ("name", "p50_ms", "p90_ms", "mean_ms", "largest_ms", "requests", "failed", "lasted_s"),
    [
        (
            "k6-summary-export.json",
            0.3631315,
            0.8912668,
            0.6025004255319149,
            5.332398,
            192,
            4,
            192 / 63.358640127171086,
        ),
        ("k6-handle-summary.json", 0.303283, 0.7044956000000001, 0.45430522751322766, 4.095351, 192, 3, 3.004063647),
        ("k6-versioned.json", 0.303012, 0.608578, 0.40712908376963336, 5.813586, 194, 3, 3.020897912),
    ],
)
def test_each_form(read, name, p50_ms, p90_ms, mean_ms, largest_ms, requests, failed, lasted_s):
    found = read(name)
    assert found.kind == "k6 summary"
    latencies = {name: 1e3 * value for name, value in found.responses.items() if name.startswith("latency_")}
    assert latencies.pop("latency_p95_s") > p90_ms
    expected = {"p50": p50_ms, "p90": p90_ms, "mean": mean_ms, "max": largest_ms}
    assert latencies == pytest.approx({f"latency_{key}_s": value for key, value in expected.items()})
    assert found.responses["requests"] == requests
    assert found.responses["error_ratio"] == pytest.approx(failed / requests)
    assert found.responses["achieved_rps"] == pytest.approx(requests / lasted_s)
    assert not any("include failed requests" in note for note in found.notes)
    assert "--summary-trend-stats" in found.further
    assert (found.settings.users, found.settings.closed_loop) == (2, None)


def test_the_form_with_a_version_says_when_it_ended(read):
    found = read("k6-versioned.json")
    assert found.settings.version == "1.8.1"
    # 2026-11-23T09:55:33.454 less 3.021 s.
    assert found.start_unix_s == pytest.approx(1795427730.4335, abs=1e-3)
    assert read("k6-summary-export.json").start_unix_s is None


def test_a_later_version_may_write_percentiles_and_its_name_otherwise(read, fixture_text):
    text = fixture_text("k6-versioned.json").replace('"p90"', '"p(90)"').replace('"p95"', '"p(95)"')
    text = text.replace('"k6_version"', '"k6Version"')
    assert read(text).responses == read("k6-versioned.json").responses


def test_without_that_metric_failed_requests_are_inside(read, whole):
    del whole["metrics"]["http_req_duration{expected_response:true}"]
    found = read(whole)
    assert found.responses["latency_p50_s"] == pytest.approx(values(whole, "http_req_duration")["med"] / 1e3)
    assert "include failed requests" in found.notes[-1]


def test_p99_where_it_was_asked_for(read, whole):
    values(whole, "http_req_duration{expected_response:true}").update({"p(99)": 12.5, "p(99.9)": 13.5, "max": 14})
    found = read(whole, 0.1)
    assert found.responses["latency_p99_s"] == pytest.approx(12.5e-3)
    assert found.responses["latency_p999_s"] == pytest.approx(13.5e-3)


def test_dropped_iterations_are_a_missed_rate(read, whole):
    assert read(whole).settings.sent_share is None
    whole["metrics"]["dropped_iterations"] = {"type": "counter", "values": {"count": 100, "rate": 33.3}}
    made = values(whole, "iterations")["count"]
    assert read(whole).settings.sent_share == pytest.approx(made / (made + 100))


def test_no_expected_response_at_all(read, whole):
    nothing = dict.fromkeys(("avg", "min", "med", "max", "p(90)", "p(95)"), 0)
    whole["metrics"]["http_req_duration{expected_response:true}"]["values"] = nothing
    values(whole, "http_req_failed")["rate"] = 1.0
    found = read(whole)
    assert found.responses["error_ratio"] == 1
    assert not [name for name in found.responses if name.startswith("latency_")]


def test_grpc_has_a_metric_of_its_own(read, whole):
    metrics = {"grpc_req_duration": whole["metrics"]["http_req_duration"], "iterations": whole["metrics"]["iterations"]}
    found = read(whole | {"metrics": metrics})
    assert found.settings.client == "grpc"
    assert found.responses["latency_p50_s"] == pytest.approx(values(whole, "http_req_duration")["med"] / 1e3)
    assert {"requests", "error_ratio"}.isdisjoint(found.responses)  # neither stands there
    assert "latency_p95_s" in read(whole | {"metrics": metrics}, 100.0).responses  # nor does the sample floor apply


def samples(fixture_text):
    return [json.loads(line) for line in fixture_text("k6-samples.json").splitlines()]


def is_latency(line):
    return line["type"] == "Point" and line["metric"] == "http_req_duration"


def test_every_sample_without_the_failed_ones(read, fixture_text):
    points = [line["data"] for line in samples(fixture_text) if is_latency(line)]
    good = sorted(p["value"] for p in points if p["tags"]["expected_response"] == "true")
    found = read("k6-samples.json")
    middle = len(good) // 2
    median = good[middle] if len(good) % 2 else (good[middle - 1] + good[middle]) / 2
    assert found.responses["latency_p50_s"] == pytest.approx(median / 1e3)
    assert found.responses["latency_max_s"] == pytest.approx(good[-1] / 1e3)
    assert found.responses["requests"] == len(points)
    assert found.responses["error_ratio"] == pytest.approx(1 - len(good) / len(points))
    assert found.settings.h2 is False
    assert found.start_unix_s is not None


@pytest.mark.parametrize(("name", "status", "good"), [("http", "200", True), ("http", "0", False), ("grpc", "0", True),
                                                      ("grpc", "14", False)])  # fmt: skip
def test_without_k6s_own_word_the_status_decides(read, name, status, good):
    time = "2026-11-23T09:55:28.068501975Z"
    points = [{"time": time, "value": value, "tags": {"status": status}} for value in (0.5, 0.6)]
    lines = [{"metric": f"{name}_req_duration", "type": "Point", "data": point} for point in points]
    found = read("".join(json.dumps(line) + "\n" for line in lines))
    assert found.responses["error_ratio"] == (0 if good else 1)


def test_samples_that_stand_three_times(refused, fixture_text):
    points = [line for line in fixture_text("k6-samples.json").splitlines() if '"Point"' in line]
    assert missing(refused("\n".join(points * 3) + "\n"), [3, "runs"]) == []


def test_iterations_that_were_dropped_are_counted_in_samples(read, fixture_text):
    lines = samples(fixture_text)
    dropped = {"metric": "dropped_iterations", "type": "Point", "data": {"time": "2026-11-23T09:50:04Z", "value": 3}}
    made = sum(line["type"] == "Point" and line["metric"] == "iterations" for line in lines)
    found = read("".join(json.dumps(line) + "\n" for line in (*lines, dropped)))
    assert found.settings.sent_share == pytest.approx(made / (made + 3))
