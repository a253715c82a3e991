"""Requests, counts and percentiles as responses with their resolution; arithmetic that a hand can check."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from meshtrial.compare.formats.latencies import (
    Counts,
    Reading,
    Requests,
    Summary,
    of_counts,
    of_percentiles,
    of_requests,
    pooled,
    recorded,
)
from meshtrial.compare.formats.source import Source
from meshtrial.design.responses import QUANTILES
from meshtrial.load.files import InputFileError
from meshtrial.load.result import Bucket, LoadSettings

SOURCE = Source(Path("f"), b"x")


def test_quantiles_of_the_good_requests_that_the_floor_allows():
    latencies = [k / 1000 for k in range(1, 12)]
    found = of_requests(SOURCE, [*latencies, 9.0], [True] * 11 + [False], 2.0, 1e-6)
    assert found.values["latency_p50_s"] == pytest.approx(0.006)
    assert found.values["latency_mean_s"] == pytest.approx(0.006)
    assert found.values["latency_max_s"] == 0.011
    assert "latency_p90_s" not in found.values  # 1.1 of eleven lie beyond it
    assert found.bounds["latency_p50_s"] == 1e-6
    assert not found.failed_inside


def test_a_quantile_of_counts_has_the_width_of_its_bucket():
    # 10 up to 1 ms, 30 up to 2 ms, 60 up to 4 ms: the 50th is a sixth into the last.
    found = of_counts(SOURCE, [0.001, 0.002, 0.004], [10, 30, 60], 1.0, first_s=0.0)
    assert found.values["latency_p50_s"] == pytest.approx(0.002 + 0.002 / 6)
    assert found.bounds["latency_p50_s"] == pytest.approx(0.002)
    endless = of_counts(SOURCE, [0.001, 0.002, math.inf], [10, 50, 40], 1.0, first_s=0.0)
    assert endless.values["latency_p50_s"] == pytest.approx(0.001 + 0.001 * 40 / 50)
    assert "latency_p75_s" not in endless.values


@pytest.mark.parametrize(
    ("ends", "counts"), [([0.002, 0.001], [1, 1]), ([0.001], [-1]), ([math.nan], [1]), ([-0.001, 1], [1, 1])]
)
def test_counts_that_cannot_be(ends, counts):
    with pytest.raises(InputFileError):
        of_counts(SOURCE, ends, counts, 1.0, first_s=0.0)


def test_percentiles_stand_as_they_are():
    read = {"p50": Reading(0.001, 1e-4), "p99": Reading(0.002), "p42": Reading(5.0)}
    found = of_percentiles(SOURCE, read, 100, 1.0, Summary(None, Reading(0.0012), Reading(0.003, 1e-3)))
    assert found.values == {
        "latency_p50_s": 0.001,
        "latency_p99_s": 0.002,
        "latency_mean_s": 0.0012,
        "latency_max_s": 0.003,
    }
    assert found.bounds == {"latency_p50_s": 1e-4, "latency_max_s": 1e-3}
    assert "latency_p99_s" not in of_percentiles(SOURCE, read, 99, 1.0).values
    assert "latency_p99_s" in of_percentiles(SOURCE, read, None, 1.0).values
    assert of_percentiles(SOURCE, read, 0, 0.0).values == {}


def test_a_higher_percentile_may_be_smaller_by_its_digits_alone():
    of_percentiles(SOURCE, {"p50": Reading(0.0011, 1e-4), "p90": Reading(0.0010, 1e-4)}, 100, 1.0)
    with refused(InputFileError):
        of_percentiles(SOURCE, {"p50": Reading(0.0013, 1e-4), "p90": Reading(0.0010, 1e-4)}, 100, 1.0)


@pytest.mark.parametrize(
    ("p50", "p99", "mean"),
    [(0.001, 0.002, 0.0031), (0.001, 0.0031, 0.001), (0.0011, 0.002, 0.0009), (0.0009, 0.002, 0.0011)],
)
def test_nothing_is_beyond_the_ends_by_more_than_their_digits(p50, p99, mean):
    percentiles = {"p50": Reading(p50), "p99": Reading(p99)}
    rounded = Summary(Reading(0.001, 1e-4), Reading(mean), Reading(0.003, 1e-4))
    of_percentiles(SOURCE, percentiles, 100, 1.0, rounded)
    with refused(InputFileError):
        of_percentiles(SOURCE, percentiles, 100, 1.0, Summary(Reading(0.001), Reading(mean), Reading(0.003)))


def test_counts_lie_between_the_smallest_and_the_largest_latency():
    # All 10 between 1 and 1.2 ms, as its smallest and largest say: the 5th of ten is in the middle.
    found = of_counts(SOURCE, [0.002], [10], 1.0, first_s=0.0, smallest_s=0.001, largest_s=0.0012)
    assert found.values["latency_p50_s"] == pytest.approx(0.001 + 0.0002 * 4 / 9)
    assert found.bounds["latency_p50_s"] == pytest.approx(0.0002)
    for smallest, largest in ((0.0021, None), (None, 0.0009)):
        with refused(InputFileError):
            of_counts(SOURCE, [0.001, 0.002], [0, 10], 1.0, first_s=0.0, smallest_s=smallest, largest_s=largest)


@pytest.mark.parametrize(
    ("requests", "failed", "settings"),
    [
        (0, 0, {}),
        (10, 11, {}),
        (10, -1, {}),
        (10, 0, {"actual_rps": -1.0}),
        (10, 0, {"actual_rps": 1.9e8}),
        (10, 0, {"requested_rps": math.inf}),
    ],
)
def test_a_run_that_cannot_be(requests, failed, settings):
    latencies = of_percentiles(SOURCE, {"p50": Reading(0.001)}, 10, 1.0)
    with refused(InputFileError):
        recorded(SOURCE, "x", latencies, LoadSettings(generator="x", **settings), requests=requests, failed=failed)


def test_what_is_not_known_is_not_there():
    latencies = of_percentiles(SOURCE, {"p50": Reading(0.001)}, None, 1.0)
    found = recorded(SOURCE, "x", latencies, LoadSettings(generator="x"), requests=None, failed=None)
    assert found.responses == {"latency_p50_s": 0.001}
    assert found.start_unix_s is None


def counts(*buckets):
    return Counts.of([Bucket(*bucket) for bucket in buckets])


def test_requests_are_laid_together():
    values, widths = pooled([Requests(np.array([1.0, 2.0]), 1e-6), Requests(np.array([3.0]), 1e-4)], 1.0)
    assert values == {"latency_p50_s": 2.0}
    assert widths == {"latency_p50_s": 1e-4}
    assert pooled([Requests(np.array([]), 1e-6)] * 2, 1.0) == ({}, {})


def test_counts_with_the_same_edges_are_summed():
    # 40 up to 1 s, 160 in (1, 2], so the 100th is three eighths into the second bucket, of 1 s.
    values, widths = pooled([counts((0, 1, 30), (1, 2, 70)), counts((0, 1, 10), (1, 2, 90))], 60.0)
    assert values == {"latency_p50_s": pytest.approx(1.375)}
    assert widths == {"latency_p50_s": pytest.approx(1.0)}


def test_counts_between_other_edges_leave_more_open():
    # The median of 20 is the tenth. Up to 1 s there are at most 4 of the second and none of the first; up to 2 s there
    # are 10 of the first and at least 4. It lies in (1, 2], and a line through each pair of edges crosses 10 at 1.6 s:
    # 10 * 0.6 of the first and 4 of the second.
    values, widths = pooled([counts((1, 2, 10)), counts((0, 1, 4), (2, 4, 6))], 10.0)
    assert values == {"latency_p50_s": pytest.approx(1.6)}
    assert widths == {"latency_p50_s": pytest.approx(1.0)}


def test_what_else_is_known_narrows_the_quantile():
    part = counts((0, 1, 10), (1, 2, 10))
    assert pooled([part], 10.0)[1] == {"latency_p50_s": pytest.approx(1.0)}
    # At most 9 of 20 took up to 0.9 s, so the tenth took longer.
    values, widths = pooled([part.narrowed({0.9: 9})], 10.0)
    assert 0.9 < values["latency_p50_s"] <= 1.0
    assert widths == {"latency_p50_s": pytest.approx(0.1)}


def test_no_quantile_beyond_an_edge_that_is_not_there():
    parts = [counts((0, 1, 80), (1, math.inf, 20)), counts((0, 1, 100))]
    values, _ = pooled(parts, 1.0)
    assert "latency_p90_s" in values  # 180 of 200 took at most 1 s
    assert {"latency_p95_s", "latency_p99_s"}.isdisjoint(values)


def test_a_bucket_of_one_value_is_that_value():
    values, widths = pooled([counts((1, 1, 5), (1, 2, 1))] * 2, 1.0)
    assert values["latency_p50_s"] == pytest.approx(1.0)
    assert widths["latency_p50_s"] == pytest.approx(0.0)


def test_a_generator_without_requests_counts_nothing():
    assert pooled([counts(), counts((0, 1, 10))], 1.0) == pooled([counts((0, 1, 10))], 1.0)


LATENCIES = st.lists(st.integers(1, 1000), min_size=1, max_size=60)
EDGES = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


@given(st.lists(st.tuples(LATENCIES, EDGES), min_size=1, max_size=4))
def test_the_true_quantile_lies_within_the_resolution(generators):
    every = np.sort(np.concatenate([latencies for latencies, _ in generators]))
    parts = []
    for latencies, edges in generators:
        ends = sorted({*edges, max(latencies)})
        numbers = np.diff([0, *(sum(latency <= end for latency in latencies) for end in ends)])
        parts.append(counts(*zip([0, *ends[:-1]], ends, map(int, numbers), strict=True)))
    values, widths = pooled(parts, 0.0)
    for key, q in QUANTILES.items():
        true = every[math.ceil(q * len(every) - 1e-9) - 1]
        value, width = values[f"latency_{key}_s"], widths[f"latency_{key}_s"]
        assert abs(value - true) <= width + 1e-9
