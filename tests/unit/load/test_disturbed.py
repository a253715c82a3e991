"""Runs with a restart or a rising rate: failures, the longest gap, latencies of the window, the last rate kept."""

import polars as pl
import pytest
from refused import refused

from meshtrial.design.load import FixedRate, Ramp
from meshtrial.design.shares import require_possible
from meshtrial.design.study import Gates
from meshtrial.errors import UsageError
from meshtrial.load import disturbed, fortio, ingest
from meshtrial.load.disturbed import RampStep
from meshtrial.load.quantiles import COLUMNS

RAMP = Ramp(400, 4, 4.0, steps=4, generators=2)


def requests(*rows: tuple[float, float, float, bool]) -> pl.DataFrame:
    """Rows of planned start, actual start, latency, success; one connection."""
    scheduled, actual, latency, ok = zip(*rows, strict=True)
    columns = {
        "iter": list(range(len(rows))),
        "scheduled_start_s": scheduled,
        "actual_start_s": actual,
        "latency_s": latency,
        "corrected_latency_s": [row[1] - row[0] + row[2] for row in rows],
        "ok": ok,
        "code": ["200" if good else "refused" for good in ok],
        "imputed": [False] * len(rows),
    }
    return pl.DataFrame({**dict.fromkeys(("slice", "generator", "thread"), [0] * len(rows)), **columns}, schema=COLUMNS)


def steady(count: int = 100, every_s: float = 0.01) -> list[tuple[float, float, float, bool]]:
    return [(i * every_s, i * every_s, 0.001, True) for i in range(count)]


def test_a_gap_spans_all_connections_and_failures_do_not_end_it():
    rows = steady()
    rows[40:60] = [(at, at, 0.0001, False) for at, *_ in rows[40:60]]
    responses = disturbed.restart_responses(requests(*rows), 0.3, 0.5, 1)
    assert responses["failed_requests"] == 20
    # From the response at .391 to the one at .601.
    assert responses["longest_gap_s"] == pytest.approx(0.21)


def test_a_gap_at_an_edge_of_the_window_ends_there():
    rows = [row if row[0] < 0.5 else (*row[:3], False) for row in steady()]
    assert disturbed.longest_gap(requests(*rows), 0.3, 0.5) == pytest.approx(0.8 - 0.491)
    failed = requests(*[(*row[:3], False) for row in steady(10)])
    assert disturbed.longest_gap(failed, 0.0, 0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("begin_s", "p50_s", "p90_s"), [(0.3, 0.101, 0.101), (0.6, 0.001, 0.001)])
def test_latencies_are_from_the_schedule_and_of_the_window(begin_s, p50_s, p90_s):
    rows = steady()
    # Sent a tenth of a second late between .3 and .5, and answered quickly afterwards.
    rows[30:50] = [(at, at + 0.1, 0.001, True) for at, *_ in rows[30:50]]
    responses = disturbed.restart_responses(requests(*rows), begin_s, 0.2, 1)
    assert responses["latency_restart_window_p50_s"] == pytest.approx(p50_s)
    assert responses["latency_restart_window_p90_s"] == pytest.approx(p90_s)


def test_a_quantile_needs_its_requests_inside_the_window():
    responses = disturbed.restart_responses(requests(*steady()), 0.3, 0.2, 10)
    assert "latency_restart_window_p50_s" in responses
    assert "latency_restart_window_p90_s" not in responses


def test_the_steps_rise_to_the_rate_and_fill_the_duration():
    parts = [RAMP.part(index) for index in range(RAMP.parts)]
    assert [part.rps for part in parts] == [100, 200, 300, 400]
    assert {part.duration_s for part in parts} == {1.0}
    assert RAMP.mean_rps == 250
    assert RAMP.label == "400rps-in-4-steps-4c"
    assert FixedRate(400, 4, 4.0).part(0) == FixedRate(400, 4, 4.0)


def test_each_step_is_a_call_of_every_generator_under_a_name_of_its_own():
    calls = [call for index in range(4) for call in fortio.calls(RAMP, "measure", slice_index=index)]
    assert len({call.name for call in calls}) == 8
    rates = [float(call.arguments[call.arguments.index("-qps") + 1]) for call in calls]
    assert rates == [50, 50, 100, 100, 150, 150, 200, 200]


@pytest.mark.parametrize(("rps", "steps"), [(100, 1), (0, 3)])
def test_what_cannot_rise_is_refused(rps, steps):
    with refused(UsageError):
        Ramp(rps, 4, 4.0, steps=steps)


def test_the_lowest_step_must_use_every_connection():
    with refused(UsageError, names=["rps", "duration_s", "connections"]):
        require_possible(Ramp(40, 10, 4.0, steps=4))


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        # (requested rate, achieved rate, failed of 1000 requests)
        ([(100, 100, 0), (200, 199, 0), (300, 250, 0), (400, 400, 0)], {"ramp_kept_rps": 200}),
        ([(100, 100, 0), (200, 199, 0)], {"ramp_kept_rps": 200}),
        ([(100, 100, 0), (200, 200, 100)], {"ramp_kept_rps": 100}),
        ([(100, 50, 0)], {"ramp_kept_rps": 50}),
        ([], {}),
    ],
)
def test_the_last_step_before_the_first_that_was_not_kept_counts(steps, kept):
    ramp = [RampStep(asked, achieved, 1000, failed, None, None) for asked, achieved, failed in steps]
    assert disturbed.ramp_responses(ramp, Gates()) == kept


def test_a_run_is_read_step_by_step(fortio):
    load = Ramp(40, 2, 2.0, steps=2)
    slices = []
    for index in range(2):
        part = load.part(index)
        sent = fortio.run(part.rps, 2, part.duration_s, lambda thread, i, n=index: 0.001 * (n + 1))
        slices.append([fortio.output(sent, part.rps, 2, part.duration_s, name=f"measure-{index + 1}-g1")])
    measured = ingest.ingest_slices(slices, load, 1)
    first, second = disturbed.ramp_steps(measured, load)
    assert (first.asked_rps, second.asked_rps) == (20, 40)
    assert first.achieved_rps == pytest.approx(20, rel=0.02)
    assert second.achieved_rps == pytest.approx(40, rel=0.02)
    assert second.p50_s == pytest.approx(0.002, rel=0.1)
    assert measured.responses["achieved_ratio"] == pytest.approx(1, abs=0.02)
