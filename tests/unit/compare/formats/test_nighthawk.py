"""Nighthawk's own JSON: durations as text, counts as text, buckets up to each percentile."""

import pytest

WHOLE = "nighthawk.json"


def test_all_workers_together(read):
    found = read("nighthawk.json")
    assert found.kind == "nighthawk"
    # 1494 of 2988 requests lie up to 0.227199 ms: the median ends that bucket.
    assert found.responses["latency_p50_s"] == pytest.approx(0.000227199)
    # 0.99 * 2988 = 2958.12, between 2956 and 2960: in the bucket from 0.385007 to 0.401407 ms.
    assert found.bounds["latency_p99_s"] == pytest.approx(0.0000164)
    assert 0.000385007 < found.responses["latency_p99_s"] < 0.000401407
    assert found.responses["latency_mean_s"] == 0.000240448
    assert found.responses["latency_max_s"] == 0.012001791
    assert found.responses["requests"] == 3000
    assert found.responses["error_ratio"] == pytest.approx(3 / 3000)
    assert "include failed requests" in found.notes[-1]


def test_a_request_without_a_connection_failed_and_one_without_a_place_was_not_sent(read, whole):
    counters = whole["results"][-1]["counters"]
    counters.append({"name": "benchmark.pool_overflow", "value": "50"})
    assert read(whole).responses == read("nighthawk.json").responses
    counters.append({"name": "benchmark.pool_connection_failure", "value": "7"})
    found = read(whole)
    assert found.responses["requests"] == 3007
    assert found.responses["error_ratio"] == pytest.approx(10 / 3007)


def test_the_load_is_that_of_all_workers(read):
    settings = read("nighthawk.json").settings
    assert (settings.requested_rps, settings.threads) == (600.0, 4)  # two workers of 300 rps on 2 connections
    assert settings.actual_rps == pytest.approx(3000 / 5.000052)
    assert (settings.requested_duration_s, settings.timeout_s, settings.body_bytes) == (5.0, 30.0, 10.0)
    assert (settings.h2, settings.payload_bytes, settings.labels) == (False, 0, "block-3")
    assert read("nighthawk.json").start_unix_s == pytest.approx(1792351413.897, abs=0.01)


def test_over_http2_a_worker_has_one_connection(read, whole):
    whole["options"]["h2"] = True
    assert read(whole).settings.threads == 2


def test_a_single_worker_is_global_alone(read, whole):
    whole["results"] = whole["results"][-1:]
    assert (read(whole).settings.requested_rps, read(whole).settings.threads) == (300.0, 2)


def test_an_open_loop_is_said(read, whole):
    assert "coordinated omission" in read(whole).notes[0]
    whole["options"]["open_loop"] = True
    assert "on an open schedule" in read(whole).notes[0]
