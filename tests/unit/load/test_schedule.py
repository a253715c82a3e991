from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtrial.load.quantiles import successful
from meshtrial.load.result import read_result
from meshtrial.load.schedule import Lateness, Schedule, argument, lateness, schedule_of, with_schedule

TEN = Schedule(10, 1, 10, uniform=True)  # requests per second, over one connection
services = st.lists(st.sampled_from([0.0002, 0.001, 0.03, 0.5, 1.2]), min_size=40, max_size=40)


def log(sent) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "thread": [s.thread for s in sent],
            "iter": [s.iteration for s in sent],
            "start_unix_ns": [s.start_ns for s in sent],
            "latency_s": [s.latency_s for s in sent],
            "ok": [s.ok for s in sent],
            "code": [s.code for s in sent],
        },
        schema_overrides={"thread": pl.Int32},
    ).sort("thread", "iter")


def planned(virtual, sent, schedule: Schedule | None = TEN) -> pl.DataFrame:
    return with_schedule(log(sent), schedule, virtual.START_NS, virtual.START_NS)


def offsets(schedule: Schedule, thread: int, n: int) -> list[float]:
    frame = pl.DataFrame({"thread": [thread] * n, "iter": range(n)}, schema_overrides={"thread": pl.Int32})
    return [x / 1e9 for x in frame.select(schedule.offset_ns(pl.col("thread"), pl.col("iter"))).to_series()]


def served(virtual, service, threads: int, rps: float) -> tuple[Schedule, pl.DataFrame]:
    """Forty calls by a perfect generator, with the given response times."""
    duration = 40 / rps
    sent = virtual.run(rps, threads, duration, lambda thread, i: service[i])
    schedule = Schedule(rps, threads, int(rps * duration) // threads, uniform=True)
    return schedule, planned(virtual, sent, schedule)


def test_planned_offsets_by_hand():
    # 10 rps over 2 connections for 1 s: 5 calls each, every 0.2 s, stretched by i/4:
    # i=1: (1 + .25) / 5 = .25; i=4: (4 + 1) / 5 = 1. Thread 1 starts 1/10 s later.
    schedule = Schedule(rps=10, threads=2, calls_per_thread=5, uniform=True)
    assert offsets(schedule, 0, 5) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0], abs=2e-9)
    assert offsets(schedule, 1, 5) == pytest.approx([0.1, 0.35, 0.6, 0.85, 1.1], abs=2e-9)
    assert (schedule.planned, schedule.interval_s) == (10, 0.2)
    assert schedule.last_send_s == pytest.approx(1.1)
    assert offsets(Schedule(10, 2, 5, uniform=False), 1, 2) == pytest.approx([0, 0.25], abs=2e-9)


def test_a_jittered_send_may_be_late_by_a_tenth_of_its_wait():
    # Two calls, one second apart, stretched to two: the last may leave 2/9 s after its planned 2 s.
    schedule = Schedule(rps=1, threads=1, calls_per_thread=2, uniform=True, jitter=True)
    assert offsets(schedule, 0, 2) == pytest.approx([0, 2])
    assert schedule.last_send_s == pytest.approx(2 + 2 / 9)
    assert replace(schedule, jitter=False).last_send_s == pytest.approx(2)


def test_the_left_over_calls_go_to_the_first_thread():
    # -n 11 over 2 threads: 5 each and one more for thread 0, whose 6 calls stretch over 6 intervals.
    schedule = Schedule(rps=10, threads=2, calls_per_thread=5, leftover=1)
    assert offsets(schedule, 0, 6)[-1] == pytest.approx(1.2)
    assert offsets(schedule, 1, 5)[-1] == pytest.approx(1.0)
    assert schedule.last_send_s == pytest.approx(1.2)
    assert schedule.planned == 11


def test_the_plan_of_a_result(fortio):
    sent = fortio.run(55.5, 4, 2, lambda thread, i: 0.001)
    result = read_result(fortio.output(sent, 55.5, 4, 2).json_path)
    # int(55.5 * 2) = 111 calls, 111 // 4 = 27 each.
    assert schedule_of(result) == Schedule(55.5, 4, 27, uniform=True)
    assert schedule_of(result, ["-qps", "55.500000001"]).rps == 55.500000001
    exactly = read_result(fortio.output(sent, 55.5, 4, 2, Exactly=30, RequestedDuration="exactly 30 calls").json_path)
    assert schedule_of(exactly) == Schedule(55.5, 4, 7, leftover=2, uniform=True)


def test_no_plan_without_a_rate_or_an_end(fortio):
    sent = [fortio.Sent(0, 0, fortio.START_NS, 0.1)]
    for changes in ({"RequestedQPS": "max"}, {"RequestedDuration": "until stop"}, {"RequestedQPS": None}):
        result = read_result(fortio.output(sent, 10, 1, 2, **changes).json_path)
        assert schedule_of(result) is None


def test_a_stall_in_catch_up_by_hand(virtual):
    # 10 rps, 1 connection, 1 s: 10 calls due at i * 10/9 * 0.1 s = 0, .111, .222, .333, .444, ... 1.0.
    # Call 1 takes 0.3 s (until .411), all others 10 ms: call 2 waits .411 - .222 = .189 and ends at .421,
    # call 3 waits .421 - .333 = .088, call 4 is on time.
    sent = virtual.run(10, 1, 1, lambda thread, i: 0.3 if i == 1 else 0.01)
    frame = planned(virtual, sent)
    assert frame["corrected_latency_s"].to_list()[:6] == pytest.approx(
        [0.01, 0.3, 0.01 + 0.41111 - 0.22222, 0.01 + 0.42111 - 0.33333, 0.01, 0.01], abs=1e-4
    )
    assert frame["latency_s"].to_list()[2] == 0.01
    assert not frame["imputed"].any()
    # Late is more than one interval (0.1 s) behind: call 2 alone.
    assert lateness(frame, TEN) == Lateness(target=1, generator=0)


def test_the_same_stall_without_catch_up_by_hand(virtual):
    # Calls 2 and 3 are due at .222 and .333 while call 1 blocks until .411: both are skipped and imputed
    # with .411 - due + the median service time, 10 ms.
    sent = virtual.run(10, 1, 1, lambda thread, i: 0.3 if i == 1 else 0.01, catchup=False)
    assert [s.iteration for s in sent] == [0, 1, 4, 5, 6, 7, 8, 9]
    frame = planned(virtual, sent, replace(TEN, catchup=False))
    assert frame["iter"].to_list() == list(range(10))
    imputed = frame.filter("imputed")
    assert imputed["iter"].to_list() == [2, 3]
    assert imputed["corrected_latency_s"].to_list() == pytest.approx([0.18889 + 0.01, 0.07778 + 0.01], abs=1e-4)
    for column in ("actual_start_s", "latency_s", "ok", "code"):
        assert imputed[column].null_count() == 2
    assert lateness(frame, TEN) == Lateness(target=1, generator=0)


def test_sends_that_never_left_at_the_end_are_imputed(virtual):
    # 10 rps, 1 connection, 1 s; call 5 (due .556) takes 2 s, fortio then makes only the last call (9) or stops.
    sent = virtual.run(10, 1, 1, lambda thread, i: 2.0 if i == 5 else 0.01)
    assert [s.iteration for s in sent] == [0, 1, 2, 3, 4, 5]
    frame = planned(virtual, sent)
    imputed = frame.filter("imputed")
    assert imputed["iter"].to_list() == [6, 7, 8, 9]
    # Call 9 was due at 1.0 and blocked until 2.556.
    assert imputed["corrected_latency_s"].to_list()[-1] == pytest.approx(1.5556 + 0.01, abs=1e-3)


def test_a_run_that_was_stopped_has_no_imputed_future(virtual):
    sent = [s for s in virtual.run(10, 1, 10, lambda thread, i: 0.01) if s.iteration < 20]
    frame = planned(virtual, sent, Schedule(10, 1, 100, uniform=True))
    assert frame.height == 20


def test_a_closed_loop_has_no_schedule(virtual):
    sent = [virtual.Sent(0, i, virtual.START_NS + i * 10**9, 0.5) for i in range(3)]
    frame = planned(virtual, sent, None)
    assert frame["actual_start_s"].to_list() == [0, 1, 2]
    assert frame["scheduled_start_s"].null_count() == 3
    assert frame["corrected_latency_s"].null_count() == 3


def test_the_generators_own_wake_up_is_lateness_and_not_latency(virtual):
    # One connection, free since long, sends 0.9 ms late for a request of 0.2 ms.
    sent = [virtual.Sent(0, 0, virtual.START_NS, 2e-4), virtual.Sent(0, 1, virtual.START_NS + 112_011_111, 2e-4)]
    frame = planned(virtual, sent)
    row = frame.row(1, named=True)
    assert row["actual_start_s"] - row["scheduled_start_s"] == pytest.approx(9e-4, abs=1e-6)
    assert row["corrected_latency_s"] == 2e-4


def test_what_a_generator_that_woke_up_late_sends_back_to_back_is_its_own_lateness(virtual):
    # 1000 rps on one connection: due every 1.1 ms. The generator sleeps until 10 ms and then sends eight overdue
    # requests of 0.2 ms back to back. Each finds the connection busy, with requests that should have ended.
    schedule = Schedule(1000, 1, 10, uniform=True)
    due = offsets(schedule, 0, 10)
    sent, free = [], 0.0
    for i in range(10):
        start = max(due[i], free, 0.010 if i else 0.0)
        sent.append(virtual.Sent(0, i, virtual.START_NS + int(start * 1e9), 2e-4))
        free = start + 2e-4
    frame = planned(virtual, sent, schedule)
    overdue = sum(send.start_ns - virtual.START_NS > (at + 1e-3) * 1e9 for send, at in zip(sent, due, strict=True))
    assert overdue > 5
    assert lateness(frame, schedule) == Lateness(target=0, generator=overdue)


@given(services, st.integers(1, 4), st.sampled_from([5.0, 20.0, 37.5]))
@settings(max_examples=40)
def test_with_a_perfect_generator_all_lateness_is_the_targets(virtual, service, threads, rps):
    schedule, frame = served(virtual, service, threads, rps)
    assert lateness(frame, schedule).generator == 0


def test_two_generators_share_one_origin(virtual):
    later = virtual.START_NS + 250_000_000
    sent = virtual.run(10, 1, 1, lambda thread, i: 0.01, start_ns=later)
    frame = with_schedule(log(sent), Schedule(10, 1, 10, uniform=True), later, virtual.START_NS)
    assert frame["scheduled_start_s"][0] == 0.25
    assert frame["corrected_latency_s"].to_list() == pytest.approx([0.01] * 10)


@given(services, st.integers(1, 4), st.sampled_from([5.0, 20.0, 37.5]))
@settings(max_examples=60)
def test_catch_up_is_the_queue_it_says_it_is(virtual, service, threads, rps):
    """Lindley's recursion: wait = max(0, previous wait + previous service - time between the planned sends)."""
    schedule, frame = served(virtual, service, threads, rps)
    frame = frame.filter(~pl.col("imputed"))
    for thread in range(threads):
        part = frame.filter(thread=thread)
        due = offsets(schedule, thread, part.height)
        wait, expected = 0.0, []
        for i in range(part.height):
            if i:
                wait = max(0.0, wait + service[i - 1] - (due[i] - due[i - 1]))
            expected.append(wait + service[i])
        assert part["corrected_latency_s"].to_list() == pytest.approx(expected, abs=1e-6)


@given(services, st.integers(1, 4), st.booleans())
@settings(max_examples=60)
def test_every_send_that_was_due_has_a_corrected_latency(virtual, service, threads, catchup):
    rps, duration = 20.0, 2.0
    sent = virtual.run(rps, threads, duration, lambda thread, i: service[i], catchup=catchup)
    schedule = Schedule(rps, threads, 40 // threads, uniform=True, catchup=catchup)
    frame = planned(virtual, sent, schedule)
    assert frame.filter(~pl.col("imputed")).height == len(sent)
    assert frame.select("thread", "iter").is_duplicated().sum() == 0
    assert frame["corrected_latency_s"].null_count() == 0
    assert (successful(frame, "corrected_latency_s") > 0).all()
    raw = frame.drop_nulls("latency_s")
    assert (raw["corrected_latency_s"] >= raw["latency_s"] - 1e-9).all()
    if not catchup:
        # No send is lost: those missing from the log are imputed, except after the end of a cut-off run.
        assert frame.height <= schedule.planned
        inner = frame.group_by("thread").agg(pl.col("iter").max() + 1 == pl.len())
        assert inner["iter"].all()


def test_flags_are_found_in_both_spellings():
    assert argument(["-qps", "5", "-r=0.1"], "-r") == "0.1"
    assert argument(["-qps", "5"], "-qps") == "5"
    assert argument(["-qps"], "-qps") is None
