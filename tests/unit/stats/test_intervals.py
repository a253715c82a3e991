import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS

from meshtrial.stats.intervals import (
    MedianRanks,
    RankInterval,
    hodges_lehmann,
    hodges_lehmann_rows,
    hodges_lehmann_two,
    median_ranks,
    next_session,
    settle,
    signed_rank_p_rows,
    walsh_averages,
)
from meshtrial.stats.ranktests import Alternative, rank_sum_p, signed_rank_p

coarse = st.lists(st.integers(-5, 7), min_size=2, max_size=10)
fine = st.lists(st.floats(-100, 100).map(lambda x: round(x, 6)), min_size=2, max_size=12)
levels = st.sampled_from([0.01, 0.05, 0.1, 0.2])


def test_by_hand() -> None:
    # d = 1 2 4: Walsh averages 1 1.5 2 2.5 3 4, median 2.25
    assert walsh_averages(np.array([1.0, 2, 4])).tolist() == [1, 1.5, 2, 2.5, 3, 4]
    result = hodges_lehmann([1, 2, 4])
    assert result.estimate == 2.25
    assert (result.low, result.high, result.confidence) == (-math.inf, math.inf, 1.0)


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


def test_extended_to_a_null_that_is_not_rejected() -> None:
    # dropping the zero makes p jump up at 0 alone: a little to the right of it every shift is rejected
    d = np.array([1.0, 0, 2, 6, -4, 5, 3, 3, 2])
    assert signed_rank_p(d) > 0.1 >= signed_rank_p(d - 0.25)
    result = hodges_lehmann(d, 0.1)
    assert (result.low, result.low_open, result.high) == (0, False, 4)
    assert not result.excludes(0)


def test_cut_at_a_null_that_is_rejected() -> None:
    # here it makes p jump down: shifts on both sides of 0 are accepted
    d = np.array([4.0, -1, -3, 0, 5, 7, -3, 7])
    assert signed_rank_p(d) <= 0.2 < min(signed_rank_p(d - 0.25), signed_rank_p(d + 0.25))
    result = hodges_lehmann(d, 0.2)
    assert (result.low, result.low_open, result.high) == (0, True, 4.5)
    assert result.excludes(0)
    assert not result.excludes(0.25)
    # and mirrored
    mirrored = hodges_lehmann(-d, 0.2)
    assert (mirrored.low, mirrored.high, mirrored.high_open) == (-4.5, 0, True)


def test_an_end_within_rounding_of_the_null_lies_on_it() -> None:
    result = settle(RankInterval(0.5, 1e-17, 1.0, 0.95, p=0.2, n=8, alpha=0.05, null=0.0), atol=1e-12)
    assert result.low == 0
    assert not result.excludes(0)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_rows_are_the_scalar_test(alternative: Alternative) -> None:
    rng = np.random.default_rng(0)
    d = np.concatenate((rng.normal(0.5, 1, (20, 9)), rng.integers(-3, 4, (20, 9))))  # half of them with ties and zeros
    assert signed_rank_p_rows(d, alternative).tolist() == [signed_rank_p(row, alternative) for row in d]


@pytest.mark.parametrize("n", [4, 6, 9, 10])
def test_rows_are_the_scalar_interval(n: int) -> None:
    rng = np.random.default_rng(n)
    d = np.concatenate((rng.normal(0.5, 1, (20, n)), rng.integers(-3, 4, (20, n)), rng.integers(1, 3, (5, n))))
    rows = hodges_lehmann_rows(d, 0.1)
    for i, row in enumerate(d):
        one = hodges_lehmann(row, 0.1)
        assert (rows.estimate[i], rows.low[i], rows.high[i], rows.p[i]) == (one.estimate, one.low, one.high, one.p)


def test_the_interval_excludes_zero_exactly_where_the_test_rejects() -> None:
    d = np.random.default_rng(1).normal(0.03, 0.1, (20_000, 10))
    rows = hodges_lehmann_rows(d, 0.05)
    assert (rows.holds(0.0) == (rows.p > 0.05)).all()
    assert 0 < rows.holds(0.0).mean() < 1


runs = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def test_two_samples_by_hand() -> None:
    # 4 against 4: sizes 2/70, 4/70 -> at .05 only U = 0 rejects; the ends are the extreme differences
    result = hodges_lehmann_two([10.0, 12.5, 15, 19], [1.0, 2.2, 3.1, 4.7])
    assert (result.low, result.high) == pytest.approx((10 - 4.7, 19 - 1))
    assert result.confidence == pytest.approx(1 - 2 / 70)


@given(runs, runs, st.sampled_from([0.05, 0.1, 0.3]))
def test_interval_and_p_of_two_samples_never_disagree(x: list[int], y: list[int], alpha: float) -> None:
    result = hodges_lehmann_two(x, y, alpha)
    assert result.excludes(0.0) == (result.p <= alpha)
    assert result.confidence >= 1 - alpha - 1e-12


@given(runs, runs)
def test_two_samples_are_antisymmetric(x: list[int], y: list[int]) -> None:
    a, b = hodges_lehmann_two(x, y, 0.2), hodges_lehmann_two(y, x, 0.2)
    assert (a.estimate, a.low, a.high) == (-b.estimate, -b.high, -b.low)
    assert a.p == pytest.approx(b.p)


def test_no_interval_from_three_against_three() -> None:
    result = hodges_lehmann_two([4, 5, 6.5], [1, 2, 3.1])
    assert (result.low, result.high) == (-math.inf, math.inf)
    assert result.estimate == pytest.approx(3, abs=0.5)


def test_five_hundred_runs_a_side() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(0.1, 1, 520), rng.normal(0, 1, 520)
    found = hodges_lehmann_two(x, y)
    assert found.p == rank_sum_p(x, y) == pytest.approx(stats.mannwhitneyu(x, y, method="asymptotic").pvalue, abs=1e-9)
    assert found.low < found.estimate < found.high
    assert found.confidence == pytest.approx(0.95, abs=1e-3)
    assert found.excludes(0.0) == (found.p <= 0.05)


def test_the_next_session_by_hand() -> None:
    # mean 2, s = 1, t(2) at .975 is 4.303: 4.303 * sqrt(4/3)
    assert next_session([1, 2, 3]) == pytest.approx((2 - 4.9684, 2 + 4.9684), abs=1e-3)
    assert next_session([1, 2]) is None
    low, high = next_session([0.1, 0.2, 0.4, 0.2], alpha=0.2)
    # statsmodels' interval of a new observation
    new = OLS([0.1, 0.2, 0.4, 0.2], np.ones(4)).fit().get_prediction([1]).summary_frame(alpha=0.2)
    assert (low, high) == pytest.approx((new["obs_ci_lower"][0], new["obs_ci_upper"][0]))


@pytest.mark.parametrize(
    ("n", "rank", "confidence"),
    [
        (1, 1, 0.0),  # one value says nothing of a median
        (5, 1, 1 - 2 / 32),  # the whole range, and not 95 % yet
        (6, 1, 1 - 2 / 64),
        (8, 1, 1 - 2 / 256),  # the second values would reach 1 - 18/256, 93 %
        (9, 2, 1 - 2 * 10 / 512),
        (10, 2, 1 - 2 * 11 / 1024),
    ],
)
def test_ranks_around_a_median_by_hand(n: int, rank: int, confidence: float) -> None:
    assert median_ranks(n, 0.05) == MedianRanks(rank, pytest.approx(confidence))
