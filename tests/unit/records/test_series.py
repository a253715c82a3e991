"""A run second by second: from its requests, and from samples of its components."""

import polars as pl
import pytest

from meshtrial.records import series
from meshtrial.records.series import UsageSample


def requests(rows):
    kinds = {"slice": pl.Int32, "actual_start_s": pl.Float64, "latency_s": pl.Float64}
    return pl.DataFrame(rows, schema=kinds | {"ok": pl.Boolean, "code": pl.String, "imputed": pl.Boolean}, orient="row")


def value(frame, second, measure, component=""):
    found = frame.filter(second=second, measure=measure, component=component)["value"].to_list()
    assert len(found) <= 1
    return found[0] if found else None


def test_each_second_counts_its_own_requests_and_failures():
    rows = [(0, 0.05 + 0.1 * i, 0.001 * (i + 1), True, "200", False) for i in range(20)]  # ten a second
    rows += [(0, 1.95, 0.5, False, "503", False), (0, 1.96, 0.6, False, "reset", False)]
    rows += [(0, None, None, None, "", True), (0, 1.97, None, None, "", True)]  # never left
    found = series.of_requests(requests(rows))
    assert found.schema == pl.Schema(series.COLUMNS)
    assert (value(found, 0, "sent"), value(found, 1, "sent")) == (10, 12)
    assert (value(found, 0, "failed"), value(found, 1, "failed")) == (0, 2)
    assert (value(found, 1, "failed 503"), value(found, 1, "failed reset")) == (1, 1)
    assert value(found, 0, "failed 503") is None


def test_a_quantile_is_that_of_the_good_requests_where_enough_lie_beyond():
    rows = [(0, i / 100, 0.001 * (i + 1), True, "200", False) for i in range(100)]
    rows += [(0, 0.5, 9.0, False, "503", False)]
    found = series.of_requests(requests(rows))
    assert value(found, 0, "p50_s") == pytest.approx(0.0505)
    assert value(found, 0, "p90_s") == pytest.approx(0.0901)
    assert value(found, 0, "p99_s") is None  # one beyond


def test_slices_are_kept_apart():
    rows = [(n, 0.5, 0.001, True, "200", False) for n in (0, 1, 1)]
    found = series.of_requests(requests(rows)).filter(measure="sent")
    assert dict(found.select("slice", "value").iter_rows()) == {0: 1.0, 1: 2.0}


def test_components_between_two_looks():
    looks = [UsageSample(0.0, 1.0, 100), UsageSample(1.0, 1.5, 200), UsageSample(2.1, 1.5, None)]
    found = series.of_samples({"app": looks}, slice_index=2)
    assert value(found, 0, "cpu_cores", "app") == 0.5
    assert value(found, 0, "memory_bytes", "app") == 200
    assert value(found, 1, "cpu_cores", "app") == 0
    assert value(found, 1, "memory_bytes", "app") is None
    assert found["slice"].unique().to_list() == [2]


@pytest.mark.parametrize(
    "samples", [{}, {"app": [UsageSample(0, 1, 1)]}, {"app": [UsageSample(0, 1, 1), UsageSample(0, 2, 1)]}]
)
def test_what_cannot_be_told_is_an_empty_table_of_the_same_shape(samples):
    assert series.of_samples(samples).equals(series.empty())
    assert series.of_requests(requests([])).schema == pl.Schema(series.COLUMNS)
