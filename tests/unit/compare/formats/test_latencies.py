"""Requests, counts and percentiles as responses with their resolution; arithmetic that a hand can check."""

import math
from pathlib import Path

import pytest
from refused import refused

from meshtrial.compare.formats.latencies import Reading, of_counts, of_percentiles, of_requests, recorded
from meshtrial.compare.formats.source import Source
from meshtrial.load.files import InputFileError
from meshtrial.load.settings import LoadSettings

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
    found = of_percentiles(SOURCE, read, 100, 1.0, mean=Reading(0.0012), largest=Reading(0.003, 1e-3))
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


@pytest.mark.parametrize(("p99", "mean"), [(0.002, 0.0031), (0.0031, 0.001)])
def test_nothing_is_above_the_maximum_by_more_than_its_digits(p99, mean):
    found = {"p50": Reading(0.001), "p99": Reading(p99)}
    of_percentiles(SOURCE, found, 100, 1.0, mean=Reading(mean), largest=Reading(0.003, 1e-4))
    with refused(InputFileError):
        of_percentiles(SOURCE, found, 100, 1.0, mean=Reading(mean), largest=Reading(0.003))


@pytest.mark.parametrize(("p50", "mean"), [(0.0011, 0.0009), (0.0009, 0.0011)])
def test_nothing_is_below_the_minimum_by_more_than_its_digits(p50, mean):
    found = {"p50": Reading(p50), "p99": Reading(0.002)}
    of_percentiles(SOURCE, found, 100, 1.0, smallest=Reading(0.001, 1e-4), mean=Reading(mean))
    with refused(InputFileError):
        of_percentiles(SOURCE, found, 100, 1.0, smallest=Reading(0.001), mean=Reading(mean))


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
