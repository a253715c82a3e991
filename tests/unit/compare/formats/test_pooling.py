"""Quantiles of several generators together: between which edges they must lie, and that they do."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.compare.formats.pooling import Counts, Requests, pooled
from meshtrial.design.responses import QUANTILES
from meshtrial.load.result import Bucket


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
