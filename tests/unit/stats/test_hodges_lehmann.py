import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.stats.hodges_lehmann import hodges_lehmann, walsh_averages
from meshtrial.stats.signedrank import signed_rank_p

coarse = st.lists(st.integers(-5, 7), min_size=2, max_size=10)
fine = st.lists(st.floats(-100, 100).map(lambda x: round(x, 6)), min_size=2, max_size=12)
levels = st.sampled_from([0.01, 0.05, 0.1, 0.2])


def test_by_hand() -> None:
    # d = 1 2 4: Walsh averages 1 1.5 2 2.5 3 4, median 2.25
    assert walsh_averages(np.array([1.0, 2, 4])).tolist() == [1, 1.5, 2, 2.5, 3, 4]
    result = hodges_lehmann([1, 2, 4])
    assert result.estimate == 2.25
    assert (result.low, result.high, result.confidence) == (-math.inf, math.inf, 1.0)
    assert not result.bounded


def test_six_values_give_the_range_at_31_32() -> None:
    # k = 0 rejects at .05, so the ends are the smallest and largest average: the extremes themselves
    result = hodges_lehmann([5, 1, 9, 2, 7, 3.5])
    assert (result.low, result.high) == (1, 9)
    assert result.confidence == 1 - 2 / 64


def test_a_published_example() -> None:
    # Hollander, Wolfe & Chicken 2014, example 3.1 (Hamilton depression scale): estimate -.46, 96.1 % interval
    d = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010]
    result = hodges_lehmann(d, alpha=0.04)
    assert result.estimate == pytest.approx(-0.46, abs=0.005)
    assert (result.low, result.high) == pytest.approx((-0.786, -0.010), abs=0.001)
    assert result.confidence == pytest.approx(0.961, abs=5e-4)


def brute_force(d: np.ndarray, alpha: float) -> tuple[float, float]:
    """Hull of the stretches between Walsh averages that the test accepts, every stretch tried."""
    points = np.unique(walsh_averages(d))
    inside = np.concatenate(([points[0] - 1], (points[1:] + points[:-1]) / 2, [points[-1] + 1]))
    accepted = [i for i, theta in enumerate(inside) if signed_rank_p(d - theta) > alpha]
    if not accepted:
        return math.nan, math.nan
    first, last = accepted[0], accepted[-1]
    low = points[first - 1] if first else -math.inf
    return float(low), float(points[last]) if last < len(points) else math.inf


@given(coarse, levels)
def test_inverts_the_test_with_ties_too(values: list[int], alpha: float) -> None:
    d = np.array(values, dtype=float) + 1000.0  # no tie at the null: nothing for the edge convention to settle
    d *= 2  # so that averages are exact
    low, high = brute_force(d, alpha)
    result = hodges_lehmann(d, alpha)
    if not math.isnan(low):
        # the null lies far outside: where it is accepted the interval is unbounded anyway
        assert (result.low, result.high) == (low, high)
    assert result.low <= result.estimate <= result.high


@given(st.one_of(coarse, fine), levels)
def test_interval_and_p_never_disagree(values: list[float], alpha: float) -> None:
    result = hodges_lehmann(values, alpha)
    assert result.excludes(0.0) == (result.p <= alpha)
    assert result.confidence >= 1 - alpha - 1e-12


def test_an_end_on_the_null_is_open_when_the_test_rejects_it() -> None:
    # 3 zeros and 1..7: the zeros are dropped, p = 2/128 <= .02; just above zero p = 2 * 14/1024 > .02
    d = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]
    result = hodges_lehmann(d, 0.02)
    assert result.p == 2 / 128
    assert result.low == 0
    assert result.low_open
    assert result.excludes(0)
    # and closed where it is not rejected
    assert not hodges_lehmann(d, 0.01).excludes(0)


def test_equal_values_leave_only_a_point() -> None:
    result = hodges_lehmann([2.0] * 8)
    assert (result.estimate, result.low, result.high) == (2, 2, 2)
    assert result.excludes(0)


@given(fine, levels)
def test_antisymmetric(values: list[float], alpha: float) -> None:
    a, b = hodges_lehmann(values, alpha), hodges_lehmann([-v for v in values], alpha)
    assert (a.estimate, a.low, a.high) == (-b.estimate, -b.high, -b.low)
    assert (a.p, a.confidence) == (b.p, b.confidence)


@given(coarse, levels)
def test_unit_does_not_matter(values: list[int], alpha: float) -> None:
    a, b = hodges_lehmann(values, alpha), hodges_lehmann([v * 1024.0 for v in values], alpha)
    assert (b.estimate, b.low, b.high) == (a.estimate * 1024, a.low * 1024, a.high * 1024)
    assert a.p == b.p


def test_wider_at_higher_confidence() -> None:
    d = np.random.default_rng(0).normal(0, 1, 12)
    wide, narrow = hodges_lehmann(d, 0.01), hodges_lehmann(d, 0.2)
    assert wide.low < narrow.low < narrow.high < wide.high
