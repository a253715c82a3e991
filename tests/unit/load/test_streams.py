"""Events of streams: planned starts, gaps, rates, loss and order, with numbers that a hand can check."""

import dataclasses

import pytest

from meshtrial.design.load import CapacitySearch, ClosedLoop, FixedRate
from meshtrial.design.responses import REGISTRY
from meshtrial.design.shares import require_possible
from meshtrial.design.study import Gates
from meshtrial.errors import RecordError, UsageError
from meshtrial.load import fortio as arguments
from meshtrial.load.gates import Machine, evaluate
from meshtrial.load.ingest import ingest

# Two streams with 100 events each, one every 20 ms; every tenth event is 5 ms late, as checked below.
LOAD = FixedRate(rps=100, connections=2, duration_s=2, protocol="sse")
OPENING_S = [0.002, 0.004]


def events(fortio, latency=lambda i: 0.006 if i % 10 == 9 else 0.001, late_ms=lambda i: 0):
    """The events of two streams that were opened 10 ms apart; the last event is due 2 s after the first."""
    return [
        fortio.Sent(thread, i, start + int((i + i / 99) * 20e6) + int(late_ms(i) * 1e6), latency(i))
        for thread in range(2)
        for start in [fortio.START_NS + thread * 10_000_000 + int(OPENING_S[thread] * 1e9)]
        for i in range(100)
    ]


@pytest.fixture
def read(fortio):
    def read(sent, **changes):
        changes = {"RunType": "SSE stream", "FirstEvents": OPENING_S} | changes
        output = fortio.output(sent, 100, 2, 2, **changes)
        m = ingest([dataclasses.replace(output, argv=("event-streams", *output.argv[1:]))], LOAD, 1)
        gates = evaluate(m, LOAD, Gates(sample_floor=1), Machine(0.1, 2, 2, foreign_load=0))
        return m, {gate.name for gate in gates if not gate.passed}

    return read


def test_a_delay_of_every_tenth_event_is_in_latencies_and_gaps(read, fortio):
    m, failed = read(events(fortio))
    found = m.responses
    assert failed == set()
    assert set(found) <= set(REGISTRY)
    assert found["latency_p50_s"] == found["latency_corrected_p50_s"] == pytest.approx(0.001)
    assert found["latency_p95_s"] == pytest.approx(0.006)
    # Of 99 gaps of a stream 19 deviate: 10 before a delayed event, and 9 after one.
    assert found["event_gap_p75_s"] == pytest.approx(0, abs=1e-9)
    assert found["event_gap_p90_s"] == pytest.approx(0.005)
    assert (found["first_event_mean_s"], found["first_event_max_s"]) == pytest.approx((0.003, 0.004))
    assert (found["streams_lost"], found["error_ratio"], found["reconnects"]) == (0, 0, 0)
    # The second stream's last event is planned 2.01 s after the start, and it arrives 6 ms later.
    assert found["achieved_ratio"] == pytest.approx(2.01 / 2.016, rel=1e-3)
    assert m.requests["scheduled_start_s"].to_list() == pytest.approx(m.requests["actual_start_s"].to_list(), abs=1e-7)


def test_events_may_be_under_way_together_in_a_stream_and_in_no_other_load(read, fortio):
    slow = events(fortio, lambda i: 0.05)
    m, failed = read(slow)
    assert (m.responses["latency_p50_s"], m.responses["late_ratio"], failed) == (pytest.approx(0.05), 0, {"rate"})
    with pytest.raises(RecordError):
        ingest([fortio.output(slow, 100, 2, 2, name="other")], dataclasses.replace(LOAD, protocol="http1"), 1)


def test_events_that_the_server_sends_late_fail_the_senders_check(read, fortio):
    m, failed = read(events(fortio, late_ms=lambda i: 21 if i % 10 == 5 else 0))
    assert m.responses["generator_late_ratio"] == 0.1
    assert failed == {"generator late"}


@pytest.mark.parametrize(
    ("code", "kind", "failing"),
    [
        ("the stream ended early: unexpected EOF", "reset", {"streams", "errors"}),
        ("time-out: the stream was silent", "time-out", {"streams", "errors"}),
        ("out of order: event 7 came instead of 6", "out of order", {"streams", "errors", "order"}),
        ("503", "503", {"streams", "errors"}),
    ],
)
def test_a_stream_that_breaks_fails_with_all_that_was_to_come(read, fortio, code, kind, failing):
    whole = events(fortio)
    broken = [
        dataclasses.replace(one, ok=False, code=code) if one.thread == 1 and one.iteration >= 6 else one
        for one in whole
    ]
    m, failed = read(broken)
    assert (m.responses["streams_lost"], dict(m.failures)) == (1, {kind: 94})
    assert failed >= failing
    assert m.responses["error_ratio"] == 0.47


def test_the_generator_of_streams_takes_fortios_arguments():
    load = dataclasses.replace(LOAD, protocol="grpc-stream", response_bytes=64, headers=1)
    (call,) = arguments.calls(load, "measure")
    assert call.program == "event-streams"
    assert call.arguments[:6] == ("-qps", "100", "-c", "2", "-t", "2s")
    assert ("-grpc" in call.arguments, call.arguments[call.arguments.index("-size") + 1]) == (True, "64")
    assert arguments.calls(dataclasses.replace(load, protocol="h2"), "measure")[0].program == "fortio"


@pytest.mark.parametrize(
    "load",
    [
        ClosedLoop(2, 1, protocol="sse"),
        CapacitySearch(2, 1, protocol="grpc-stream"),
        FixedRate(100, 2, 1, protocol="sse", keepalive=False),
        FixedRate(100, 2, 1, protocol="sse", payload_bytes=8),
        FixedRate(100, 2, 1, protocol="sse", catchup=False),
        FixedRate(100, 2, 1, protocol="sse", arrivals="jitter"),
    ],
)
def test_loads_that_streams_cannot_have_are_refused(load):
    with pytest.raises(UsageError, match=load.protocol):
        require_possible(load)
