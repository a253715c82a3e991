import dataclasses

import numpy as np
import polars as pl
import pytest
from refused import missing, refused

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.responses import QUANTILES, REGISTRY
from meshtrial.errors import RecordError
from meshtrial.load.files import parse_time_ns
from meshtrial.load.ingest import ingest, ingest_slices
from meshtrial.load.quantiles import COLUMNS, merge_requests, successful

LOAD = FixedRate(rps=100, connections=2, duration_s=10)


def stalls(thread, i):
    """2 % of the requests take 500 ms: one in 50 per thread; the others take 0.3 ms."""
    return 0.5 if i % 50 == 20 else 0.0003


def noisy(seed):
    values = np.random.default_rng(seed).exponential(0.001, (8, 5000)).round(6) + 1e-5
    return lambda thread, i: float(values[thread, i])


def test_a_run_in_full_with_what_is_withheld(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.002)
    m = ingest([fortio.output(sent, 100, 2, 10)], LOAD, 100)
    assert dict(m.requests.schema) == COLUMNS
    assert m.requests.height == 1000
    assert m.responses["latency_p50_s"] == pytest.approx(0.002)
    assert m.responses["latency_corrected_p90_s"] == pytest.approx(0.002)
    assert m.responses["achieved_ratio"] == pytest.approx(1, abs=1e-6)
    assert m.responses["achieved_rps"] == pytest.approx(100, abs=1e-4)
    assert (m.responses["error_ratio"], m.responses["late_ratio"], m.responses["requests"]) == (0, 0, 1000)
    assert m.bounds["latency_p50_s"] == 1e-6
    assert set(m.responses) <= set(REGISTRY)
    (record,) = m.generators
    assert (record.planned_requests, record.requests, record.sockets, record.connections) == (1000, 1000, 2, 2)
    assert record.start_unix_s == pytest.approx(fortio.START_NS / 1e9)
    assert "latency_p99_s" not in m.responses
    assert "not reported for too few requests: p95, p99, p999 (p95 needs 2000, the run has 1000)" in m.notes


def test_protocols_of_a_mixed_load_have_quantiles_of_their_own(fortio):
    load = dataclasses.replace(LOAD, protocol="mixed", connections=4, generators=2)
    http, grpc = (fortio.run(50, 2, 10, lambda thread, i, s=seconds: s) for seconds in (0.001, 0.003))
    parts = [fortio.output(sent, 50, 2, 10, name=name) for name, sent in (("g1", http), ("g2", grpc))]
    parts[1] = dataclasses.replace(parts[1], argv=(*parts[1].argv, "-grpc"))
    m = ingest(parts, load, 100)
    assert m.responses["latency_http_p50_s"] == pytest.approx(0.001)
    assert m.responses["latency_grpc_p50_s"] == pytest.approx(0.003)
    assert set(m.responses) <= set(REGISTRY)


@pytest.mark.parametrize("catchup", [True, False])
def test_the_coordinated_omission_that_the_raw_numbers_hide(fortio, catchup):
    sent = fortio.run(100, 2, 10, stalls, catchup=catchup)
    load = dataclasses.replace(LOAD, catchup=catchup)
    m = ingest([fortio.output(sent, 100, 2, 10, NoCatchUp=not catchup)], load, 10)
    assert m.responses["latency_p90_s"] < 0.001
    # Behind each stall about 25 sends (0.5 s at 50 a second) wait 0 to 480 ms: half of all sends, so the
    # ninth tenth of all waits is about 400 ms.
    assert 0.3 < m.responses["latency_corrected_p90_s"] < 0.5
    assert m.responses["late_ratio"] > 0.4
    assert bool(m.requests["imputed"].sum()) is not catchup


def test_catch_up_and_no_catch_up_agree_on_the_corrected_tail(fortio):
    found = {}
    for catchup in (True, False):
        sent = fortio.run(100, 2, 10, stalls, catchup=catchup)
        output = fortio.output(sent, 100, 2, 10, name=f"m-{catchup}", NoCatchUp=not catchup)
        found[catchup] = ingest([output], LOAD, 10).responses["latency_corrected_p90_s"]
    # Requests queue after the stall (0.3 ms each); the imputation is their lower bound.
    assert found[False] <= found[True] <= found[False] + 0.3e-3 * 26


@pytest.mark.parametrize(
    ("load", "service_s", "ratio", "within"),
    [
        # Of a perfect run of 100 rps over 4 connections in 1 s, stagger and last answer make 1.03 s of wall clock.
        (FixedRate(100, 4, 1), 0.0003, 1.0, 1e-6),
        # Every second send is skipped.
        (FixedRate(10, 1, 10, catchup=False), 0.15, 0.5, 0.01),
        # 20 rps asked of a connection that does 10: after 10 s about 100 of 200 are sent.
        (FixedRate(20, 1, 10), 0.1, 0.5, 0.015),
    ],
)
def test_the_rate_that_was_achieved_is_that_of_the_sends(fortio, load, service_s, ratio, within):
    sent = fortio.run(load.rps, load.connections, load.duration_s, lambda thread, i: service_s, catchup=load.catchup)
    output = fortio.output(sent, load.rps, load.connections, load.duration_s, NoCatchUp=not load.catchup)
    m = ingest([output], load, 10)
    assert m.responses["achieved_ratio"] == pytest.approx(ratio, abs=within)
    assert m.responses["achieved_rps"] == pytest.approx(ratio * load.rps, abs=within * load.rps)
    assert ("50 sends never left and are imputed in the corrected latencies" in m.notes) is not load.catchup


def test_a_drawn_out_run_has_not_achieved_its_rate(fortio):
    # -n 20 at 20 rps, but each takes 0.1 s: all 20 are sent, over 2 s instead of 1 s.
    sent = [fortio.Sent(0, i, fortio.START_NS + i * 100_000_000, 0.1) for i in range(20)]
    output = fortio.output(sent, 20, 1, 1, Exactly=20, RequestedDuration="exactly 20 calls")
    # The last send was due at 1.0 s and left at 1.9 s.
    assert ingest([output], FixedRate(20, 1, 1), 10).responses["achieved_ratio"] == pytest.approx(1 / 1.9)


def test_quantiles_are_of_the_successful_and_equal_to_numpys(fortio):
    sent = fortio.run(500, 5, 20, noisy(1))
    sent = [dataclasses.replace(s, ok=False, code="503", latency_s=2e-5) if s.iteration % 100 == 7 else s for s in sent]
    m = ingest([fortio.output(sent, 500, 5, 20, Resolution=1e-6)], FixedRate(500, 5, 20), 5)
    good = [s.latency_s for s in sent if s.ok]
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(good, q)
    assert m.responses["latency_mean_s"] == pytest.approx(np.mean(good))
    assert m.responses["latency_max_s"] == max(good)
    assert m.responses["error_ratio"] == pytest.approx(0.01)
    assert m.generators[0].return_codes == {"200": 9900, "503": 100}
    assert m.notes == ()


def test_two_generators_equal_their_concatenation(fortio):
    load = FixedRate(500, 5, 10, generators=2)
    first, second = fortio.run(300, 3, 10, noisy(2)), fortio.run(200, 2, 10, noisy(3))
    outputs = [fortio.output(first, 300, 3, 10, name="g1"), fortio.output(second, 200, 2, 10, name="g2")]
    m = ingest(outputs, load, 5)
    together = [s.latency_s for s in (*first, *second)]
    for name, q in QUANTILES.items():
        assert m.responses[f"latency_{name}_s"] == np.quantile(together, q)
    assert m.requests.group_by("generator").len().sort("generator").rows() == [(0, 3000), (1, 2000)]
    assert m.responses["achieved_rps"] == pytest.approx(500, abs=1e-3)
    assert m.responses["achieved_ratio"] == pytest.approx(1, abs=1e-6)


def test_a_generator_that_started_later_is_later_in_the_table(fortio):
    first = fortio.run(10, 1, 2, lambda thread, i: 0.01)
    later = "2026-11-21T02:46:03.5Z"
    second = fortio.run(10, 1, 2, lambda thread, i: 0.01, start_ns=parse_time_ns(later))
    outputs = [fortio.output(first, 10, 1, 2, name="g1"), fortio.output(second, 10, 1, 2, name="g2", StartTime=later)]
    m = ingest(outputs, FixedRate(20, 2, 2, generators=2), 1)
    assert m.requests.group_by("generator").agg(pl.col("scheduled_start_s").min()).sort("generator").rows() == [
        (0, 0.0),
        (1, 0.5),
    ]
    assert m.responses["achieved_ratio"] == pytest.approx(1, abs=1e-6)


def test_a_closed_loop_has_no_schedule(fortio):
    sent = [fortio.Sent(0, i, fortio.START_NS + i * 10**7, 0.01) for i in range(200)]
    m = ingest([fortio.output(sent, 0, 1, 2)], ClosedLoop(1, 2), 10)
    assert m.responses["achieved_rps"] == pytest.approx(100)
    assert not {"achieved_ratio", "late_ratio", "latency_corrected_p50_s"} & set(m.responses)
    assert m.requests["corrected_latency_s"].null_count() == 200
    assert m.generators[0].planned_requests is None


def test_a_quantile_of_a_run_is_that_of_the_requests_of_all_its_slices(fortio):
    # The median of 500 requests of 1 ms and 1000 of 3 ms is 3 ms; a mean of the slices' medians would be 2 ms.
    load = FixedRate(100, 2, 10, slices=2)
    a = fortio.run(100, 2, 10, lambda thread, i: 0.001)
    b = fortio.run(100, 2, 10, lambda thread, i: 0.003)
    a = [dataclasses.replace(s, ok=s.iteration >= 250) for s in a]
    m = ingest_slices([[fortio.output(a, 100, 2, 10, name="s1")], [fortio.output(b, 100, 2, 10, name="s2")]], load, 100)
    assert m.responses["latency_p50_s"] == pytest.approx(0.003)
    assert m.responses["latency_mean_s"] == pytest.approx((500 * 0.001 + 1000 * 0.003) / 1500)
    assert m.responses["achieved_rps"] == pytest.approx(100, abs=1e-3)
    assert m.responses["latency_max_s"] == pytest.approx(0.003)
    assert m.responses["requests"] == 2000
    assert m.responses["error_ratio"] == pytest.approx(500 / 2000)
    # p90 needs 1000 good requests: the run has 1500, though the first slice has 500. p95 needs 2000.
    assert m.responses["latency_p90_s"] == pytest.approx(0.003)
    assert "latency_p95_s" not in m.responses
    assert m.requests["slice"].unique().sort().to_list() == [0, 1]
    assert len(m.generators) == 2
    assert "not reported for too few requests: p95, p99, p999 (p95 needs 2000, the run has 1500)" in m.notes


def test_files_of_different_runs_are_refused(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.001)
    output = fortio.output(sent, 100, 2, 10)
    output.access_log_path.write_text(fortio.log_text(sent[:-1]))
    with refused(RecordError):
        ingest([output], LOAD, 10)


def test_a_missing_result_says_what_the_generator_said(fortio):
    output = fortio.output([], 100, 2, 10, exit_code=1, text="Fortio 1.68.1\nAborting because of refused\n")
    output.json_path.unlink()
    with refused(RecordError) as caught:
        ingest([output], LOAD, 10)
    assert caught.value.exit_code == 1


def test_no_requests_at_all(fortio):
    output = fortio.output([], 100, 2, 10)
    with refused(RecordError):
        ingest([output], LOAD, 10)
    with refused(RecordError):
        ingest([], LOAD, 10)


def test_a_histogram_of_other_requests_is_noted(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.001)
    other = fortio.export([0.009] * 1000, 1e-3)
    output = fortio.output(sent, 100, 2, 10, DurationHistogram=other)
    assert missing(ingest([output], LOAD, 10).notes[0], [output.name, 0.002, 0, 1000]) == []


def test_falling_behind_is_carried_over(fortio):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.001)
    output = fortio.output(sent, 100, 2, 10, text="x\nWARNING 32.57% of sleep were falling behind\ny\n")
    assert "WARNING 32.57% of sleep were falling behind" in ingest([output], LOAD, 10).notes[0]


def test_failed_requests_are_not_latencies_in_corrected_quantiles_either():
    frame = pl.DataFrame(
        {
            "thread": [0, 0, 0],
            "iter": [0, 1, 2],
            "scheduled_start_s": [0.0, 1.0, 2.0],
            "actual_start_s": [0.0, 1.0, None],
            "latency_s": [0.1, 0.2, None],
            "corrected_latency_s": [0.1, 0.2, 0.3],
            "ok": [True, False, None],
            "code": ["200", "503", None],
            "imputed": [False, False, True],
        }
    )
    merged = merge_requests([frame])
    assert successful(merged).to_list() == [0.1]
    assert successful(merged, "corrected_latency_s").to_list() == [0.1, 0.3]


def test_what_warms_a_slice_up_counts_for_gates_and_not_for_latencies(fortio):
    # Two slices of 4 s, each after 1 s in which every request takes 9 ms and half of them fail.
    load = FixedRate(100, 2, 4, slices=2, slice_warmup_s=1)
    sent = fortio.run(100, 2, 5, lambda thread, i: 0.009 if i < 50 else 0.002)
    sent = [dataclasses.replace(s, ok=s.iteration >= 25) for s in sent]
    m = ingest_slices([[fortio.output(sent, 100, 2, 5, name=f"s{n}")] for n in (1, 2)], load, 100)
    assert m.responses["latency_max_s"] == m.responses["latency_p50_s"] == pytest.approx(0.002)
    # The last call of the first second is due a little later, because the schedule is stretched.
    assert m.requests.height == pytest.approx(800, abs=4)
    assert m.requests["scheduled_start_s"].min() >= 1
    assert m.responses["requests"] == 1000
    assert m.responses["error_ratio"] == pytest.approx(100 / 1000)
    assert sum(m.failures.values()) == 100
    assert m.responses["achieved_rps"] == pytest.approx(100, abs=1e-3)


@pytest.mark.parametrize("step_s", [-3600, 3600, 0.5])
def test_a_clock_that_was_set_in_a_run_is_told_and_judges_nothing(fortio, step_s):
    sent = fortio.run(100, 2, 10, lambda thread, i: 0.002)
    lasted_ns = max(s.start_ns for s in sent) + 2_000_000 - fortio.START_NS
    middle = fortio.START_NS + 5 * 10**9
    moved = [dataclasses.replace(s, start_ns=s.start_ns + int(step_s * 1e9) * (s.start_ns > middle)) for s in sent]
    with pytest.raises(RecordError, match="clock was set"):
        ingest([fortio.output(moved, 100, 2, 10, ActualDuration=lasted_ns)], LOAD, 100)
