from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import missing, refused

from meshtrial.errors import UsageError
from meshtrial.load import histogram
from meshtrial.load.histogram import EDGES, agrees_with
from meshtrial.load.result import Bucket, ExportedHistogram, FortioResult, read_result

LATENCIES = st.lists(st.floats(1e-6, 300.0).map(lambda x: round(x, 6)), min_size=1, max_size=60)
RESOLUTIONS = st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3, 1e-2])


def as_exported(data) -> ExportedHistogram:
    buckets = tuple(Bucket(b["Start"], b["End"], b["Count"]) for b in data["Data"] or ())
    return ExportedHistogram(data["Count"], data["Min"], data["Max"], data["Avg"], data["Sum"], buckets)


def result(name: str, latency: ExportedHistogram, resolution_s: float | None = None) -> FortioResult:
    fixed = {"generator": "fortio", "closed_loop": False, "threads": 1, "errors": None}
    return FortioResult(path=Path(name), latency=latency, resolution_s=resolution_s, **fixed)


def counts(latencies, resolution):
    # The definition: a value on an edge belongs below it, above the last edge is one bucket.
    edges = np.array(EDGES) * resolution
    return tuple(np.bincount(np.searchsorted(edges * (1 + 1e-12), latencies), minlength=len(EDGES) + 1))


def test_three_requests_by_hand(virtual):
    # -r 0.001: 0.5 ms in (0, 1 ms], 1.0 ms too (on the edge), 13 ms in (12, 14 ms].
    exported = as_exported(virtual.export([0.0005, 0.001, 0.013], 1e-3))
    assert exported.buckets == (Bucket(0.0005, 0.001, 2), Bucket(0.012, 0.013, 1))
    rebuilt = histogram.rebuild(exported)
    assert rebuilt.resolution_s == 1e-3
    assert {EDGES[i]: n for i, n in enumerate(rebuilt.counts) if n} == {1: 2, 14: 1}


@given(LATENCIES, RESOLUTIONS)
def test_rebuilding_gives_the_canonical_counts(virtual, latencies, resolution):
    rebuilt = histogram.rebuild(as_exported(virtual.export(latencies, resolution)), resolution)
    assert rebuilt.counts == counts(latencies, resolution)
    assert (rebuilt.min_s, rebuilt.max_s) == (min(latencies), max(latencies))


@given(LATENCIES, RESOLUTIONS)
def test_export_is_the_inverse_of_rebuild(virtual, latencies, resolution):
    exported = as_exported(virtual.export(latencies, resolution))
    again = histogram.rebuild(exported, resolution).export()
    assert [b.count for b in again.buckets] == [b.count for b in exported.buckets]
    for ours, theirs in zip(again.buckets, exported.buckets, strict=True):
        assert (ours.start_s, ours.end_s) == pytest.approx((theirs.start_s, theirs.end_s), rel=1e-9)


@given(LATENCIES, LATENCIES, RESOLUTIONS)
@settings(max_examples=60)
def test_merging_is_counting_the_concatenation(virtual, a, b, resolution):
    merged = histogram.merge(
        [result(name, as_exported(virtual.export(x, resolution)), resolution) for name, x in (("a", a), ("b", b))]
    )
    assert merged.counts == counts(a + b, resolution)
    assert merged.sum_s == pytest.approx(sum(a) + sum(b))
    assert (merged.min_s, merged.max_s) == (min(a + b), max(a + b))


@given(LATENCIES, RESOLUTIONS)
def test_the_true_resolution_is_among_the_inferred(virtual, latencies, resolution):
    assert resolution in histogram.resolutions_of(as_exported(virtual.export(latencies, resolution)))


@given(LATENCIES, RESOLUTIONS, st.floats(0.01, 0.999))
def test_the_bucket_bounds_the_true_quantile(virtual, latencies, resolution, q):
    found = histogram.quantile(as_exported(virtual.export(latencies, resolution)), q)
    true = float(np.quantile(latencies, q, method="inverted_cdf"))
    slack = 1e-9 * max(1.0, found.high_s)
    assert found.low_s - slack <= true <= found.high_s + slack
    assert found.low_s - slack <= found.value_s <= found.high_s + slack


def test_different_resolutions_are_not_merged(virtual):
    # 1 ms buckets against 0.1 ms buckets: (0.003, 0.004] cannot be split. (The edges repeat by decades, so the
    # finer file's five buckets would fit -r 0.00001 as well.)
    spread = [0.0004, 0.0015, 0.0035, 0.0065, 0.0115]
    parts = [result(name, as_exported(virtual.export(spread, r))) for name, r in (("x", 1e-3), ("y", 1e-4))]
    with refused(UsageError):
        histogram.merge(parts)


def test_a_resolution_that_is_no_power_of_ten_is_found(virtual):
    assert histogram.resolutions_of(as_exported(virtual.export([0.0004, 0.0015, 0.0035, 0.0102], 5e-4))) == (5e-4,)


def test_an_offset_is_refused():
    moved = ExportedHistogram(3, 0.1001, 0.1032, 0.1, 0.3, (Bucket(0.1001, 0.1013, 2), Bucket(0.1023, 0.1032, 1)))
    with refused(UsageError):
        histogram.rebuild(moved, name="x")
    with refused(UsageError, names=["histogram", "-r", "-offset"]):
        histogram.merge([result("histogram 1", moved)])


def test_nighthawks_quantile_is_bounded_and_its_merge_refused(fixtures):
    data = read_result(fixtures / "nighthawk.json").latency
    # 20 requests: 1 + 9 lie up to 0.060, so the 11th to 15th (q .5 to .75) lie in (0.060, 0.066].
    found = histogram.quantile(data, 0.7)
    assert (found.low_s, found.high_s) == (0.060, 0.066)
    assert found.value_s == pytest.approx(0.060 + (0.7 - 0.5) / 0.25 * 0.006)
    with refused(UsageError, names=["histogram", "-r", "-offset"]):
        histogram.rebuild(data)


def test_fortios_own_interpolation(fixtures):
    # 500 requests, 20 % up to 1 ms, 80 % up to 2 ms: p50 = 1 + (50 - 20) / 60 ms = 1.5 ms; p99 ends its bucket.
    data = read_result(fixtures / "fortio-1.3.json").latency
    assert histogram.quantile(data, 0.5).value_s == pytest.approx(0.0015)
    assert histogram.quantile(data, 0.99).value_s == pytest.approx(0.004)
    assert histogram.quantile(data, 0.001).value_s == 0.0004
    assert histogram.quantile(data, 1.0).value_s == 0.0135


def test_a_rank_at_the_end_of_a_bucket_is_in_it_though_percent_is_no_binary_fraction():
    # 2997 of 3000 are 99.9 %, but 99.9 / 100 exceeds 2997 / 3000 by one bit; the next bucket is far away.
    assert 99.9 / 100 > 2997 / 3000
    found = histogram.quantile(
        ExportedHistogram(3000, 0.001, 0.02, 0.002, 6.0, (Bucket(0.001, 0.002, 2997), Bucket(0.01, 0.02, 3))),
        99.9 / 100,
    )
    assert found.value_s == pytest.approx(0.002, rel=1e-12)
    assert (found.low_s, found.high_s) == (0.001, 0.002)


def test_nothing_has_no_quantile():
    with refused(UsageError):
        histogram.quantile(ExportedHistogram(0, 0, 0, 0, 0, ()), 0.5)


def test_errors_are_inside_and_can_be_taken_out(virtual):
    whole = histogram.rebuild(as_exported(virtual.export([0.001, 0.001, 0.005, 3.0], 1e-3)), 1e-3)
    failed = histogram.rebuild(as_exported(virtual.export([3.0], 1e-3)), 1e-3)
    good = histogram.subtract(whole, failed)
    assert good.count == 3
    assert good.sum_s == pytest.approx(0.007)
    # The largest latency was a failure, so the last good bucket ends at its own edge.
    assert good.export().buckets[-1] == Bucket(0.004, 0.005, 1)
    with refused(UsageError):
        histogram.subtract(failed, whole)


def test_the_check_accepts_rounding_and_finds_a_lost_request(virtual):
    # 10.4 us is logged as 10 us: with -r 1e-6 it is counted in (10, 11] and logged on the edge 10.
    counted = histogram.rebuild(as_exported(virtual.export([10.4e-6, 0.002], 1e-6)), 1e-6)
    assert agrees_with(counted, np.array([10e-6, 0.002])) == ()
    assert missing(agrees_with(counted, np.array([13e-6, 0.002]))[0], ["1.1e-05", 1, 0]) == []
    assert missing(agrees_with(counted, np.array([10e-6]))[0], [2, 1]) == []


def test_merging_runs_without_requests():
    assert histogram.merge([result("a", ExportedHistogram(0, 0, 0, 0, 0, ()))]).count == 0
