"""Requests around a moment: what failed, how long nothing answered, latencies from the schedule of that while alone."""

import polars as pl
import pytest

from meshtrial.load import around
from meshtrial.load.quantiles import COLUMNS


def requests(*rows: tuple[float, float, float, bool]) -> pl.DataFrame:
    """Rows of planned start, actual start, latency, success; one connection."""
    return pl.DataFrame(
        {
            "slice": [0] * len(rows),
            "generator": [0] * len(rows),
            "thread": [0] * len(rows),
            "iter": list(range(len(rows))),
            "scheduled_start_s": [row[0] for row in rows],
            "actual_start_s": [row[1] for row in rows],
            "latency_s": [row[2] for row in rows],
            "corrected_latency_s": [row[1] - row[0] + row[2] for row in rows],
            "ok": [row[3] for row in rows],
            "code": ["200" if row[3] else "refused" for row in rows],
            "imputed": [False] * len(rows),
        },
        schema=COLUMNS,
    )


def steady(count: int, every_s: float = 0.01, latency_s: float = 0.001) -> list[tuple[float, float, float, bool]]:
    return [(i * every_s, i * every_s, latency_s, True) for i in range(count)]


def test_a_silence_is_measured_over_all_connections_and_failures_end_none():
    rows = steady(100)
    rows[40:60] = [(t, t, 0.0001, False) for t, *_ in rows[40:60]]
    found = around.responses(requests(*rows), 0.3, 0.5, sample_floor=1)
    assert found["failed_requests"] == 20
    # From the answer at .391 to that at .601.
    assert found["longest_gap_s"] == pytest.approx(0.21)


def test_a_silence_up_to_an_edge_of_the_window_counts_to_the_edge():
    rows = [row if row[0] < 0.5 else (*row[:3], False) for row in steady(100)]
    assert around.longest_gap(requests(*rows), 0.3, 0.5) == pytest.approx(0.8 - 0.491)
    nothing = requests(*[(*row[:3], False) for row in steady(10)])
    assert around.longest_gap(nothing, 0.0, 0.5) == pytest.approx(0.5)


def test_latencies_are_from_the_schedule_and_of_the_window_alone():
    rows = steady(100)
    # Held up by a tenth of a second between .3 and .5, however fast each was once it was sent.
    rows[30:50] = [(t, t + 0.1, 0.001, True) for t, *_ in rows[30:50]]
    found = around.responses(requests(*rows), 0.3, 0.2, sample_floor=1)
    assert found["latency_restart_window_p50_s"] == pytest.approx(0.101)
    calm = around.responses(requests(*rows), 0.6, 0.2, sample_floor=1)
    assert calm["latency_restart_window_p50_s"] == pytest.approx(0.001)
    assert calm["latency_restart_window_p90_s"] == pytest.approx(0.001)


def test_a_quantile_needs_its_requests_inside_the_window():
    found = around.responses(requests(*steady(100)), 0.3, 0.2, sample_floor=10)
    assert "latency_restart_window_p50_s" in found
    assert "latency_restart_window_p90_s" not in found
