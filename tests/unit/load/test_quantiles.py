import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.design.responses import QUANTILES
from meshtrial.load import quantiles


def test_eleven_requests_by_hand():
    # 0..10 ms: p50 is the 6th, 5 ms; p90 the 10th, 9 ms; p75 halfway between 7 and 8 ms.
    found = quantiles.exact(np.arange(11) / 1000, 0)
    assert found["p50"] == pytest.approx(0.005)
    assert found["p75"] == pytest.approx(0.0075)
    assert found["p90"] == pytest.approx(0.009)
    assert quantiles.exact(np.array([]), 0) == {}


@given(st.lists(st.floats(1e-6, 100), min_size=1))
def test_equal_to_numpy(values):
    assert quantiles.exact(np.array(values), 0) == {n: float(np.quantile(values, q)) for n, q in QUANTILES.items()}


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (199, []),
        (200, ["p50"]),
        (999, ["p50", "p75"]),
        (1000, ["p50", "p75", "p90"]),
        (2000, ["p50", "p75", "p90", "p95"]),
        (10_000, ["p50", "p75", "p90", "p95", "p99"]),
    ],
)
def test_the_floor_of_100_in_the_tail(n, expected):
    # 1000 (1 - 0.9) is 99.99999999999997 in floating point, and still 100.
    assert list(quantiles.exact(np.ones(n), 100)) == expected


def test_imputed_values_do_not_help_over_the_floor():
    assert list(quantiles.exact(np.ones(1000), 100, count=200)) == ["p50"]


def test_the_upper_limit_of_a_quantile_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(2)
    for n, q in ((200, 0.9), (2000, 0.99)):
        limits = [quantiles.upper_limit(rng.exponential(size=n), q, 0.95) for _ in range(2000)]
        covered = np.mean(np.array(limits) >= -np.log(1 - q))
        assert 0.95 - 3 * np.sqrt(0.05 * 0.95 / 2000) <= covered < 0.98


def test_too_few_requests_show_no_upper_limit():
    # .9^28 is more than .05: all 28 may lie below the true p90.
    assert quantiles.upper_limit(np.arange(28.0), 0.9, 0.95) == float("inf")
    assert quantiles.upper_limit(np.arange(29.0), 0.9, 0.95) == 28.0
