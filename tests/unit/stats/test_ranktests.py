import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats import ranktests
from meshtrial.stats.ranktests import (
    Alternative,
    as_sample,
    critical_count,
    equivalence_p,
    leave_one_out_p,
    rank_sum_p,
    signed_rank_p,
    smallest_p,
    smallest_p_unpaired,
)

ALTERNATIVES: list[Alternative] = ["two-sided", "greater", "less"]
EXACT = stats.PermutationMethod(n_resamples=math.inf)  # type: ignore[arg-type]
small_whole = st.lists(st.integers(-6, 6), min_size=2, max_size=8)
sample = st.lists(st.integers(0, 6), min_size=2, max_size=5)


@pytest.mark.parametrize(
    ("differences", "alternative", "p"),
    [
        # six positive differences: only ++++++ and ------ are as extreme, 2 of 64
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "two-sided", 2 / 64),
        # T- = 1; patterns with a rank sum of at most 1: {} and {1}, so p = 2 * 2/32
        ([-1, 2, 3, 4, 5], "two-sided", 4 / 32),
        ([-1, 2, 3, 4, 5], "greater", 2 / 32),
        ([-1, 2, 3, 4, 5], "less", 31 / 32),  # P(T+ <= 14) = 1 - P(T+ = 15)
        # sizes 1 1 2: midranks 1.5 1.5 3; T+ = 1.5 + 3; patterns with T+ >= 4.5: 6, 4.5, 4.5 -> 3/8
        ([1, -1, 2], "greater", 3 / 8),
        # zeros are dropped
        ([0, 0, 1, 2, 3, 4, 5, 6], "two-sided", 2 / 64),
        ([0, 0, 0], "two-sided", 1.0),
    ],
)
def test_signed_rank_by_hand(differences: list[float], alternative: Alternative, p: float) -> None:
    assert signed_rank_p(as_sample(differences), alternative) == p


def test_rounding_does_not_break_a_tie() -> None:
    d = np.array([0.3, -(0.1 + 0.2), 0.5])  # 0.1 + 0.2 is 0.30000000000000004
    assert signed_rank_p(d, "less") == 6 / 8  # T+ = 1 + 3: of the eight sums 5 and 6 are larger
    assert signed_rank_p(d, "less", 1e-12) == 7 / 8  # T+ = 1.5 + 3: 6 alone is


@pytest.mark.parametrize("n", [5, 8, 12, 20, 40])
@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_same_as_scipy_without_ties(n: int, alternative: Alternative) -> None:
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.5, -1.0):
        d = rng.normal(shift, 1, n)
        expected = stats.wilcoxon(d, alternative=alternative, method="exact").pvalue
        assert signed_rank_p(d, alternative) == pytest.approx(expected, rel=1e-9)


@given(small_whole, st.sampled_from(ALTERNATIVES))
def test_same_as_scipy_with_ties_and_zeros(values: list[int], alternative: Alternative) -> None:
    d = np.array(values, dtype=float)
    expected = stats.wilcoxon(d, alternative=alternative, method=EXACT).pvalue if d.any() else 1.0
    assert signed_rank_p(d, alternative) == pytest.approx(expected, abs=1e-12)


@given(small_whole)
def test_swapping_the_treatments_changes_nothing(values: list[int]) -> None:
    d = np.array(values, dtype=float)
    assert signed_rank_p(d) == signed_rank_p(-d)
    assert signed_rank_p(d, "greater") == signed_rank_p(-d, "less")


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9), st.sampled_from(ALTERNATIVES))
def test_leave_one_out_is_the_test_of_the_others(values: list[int], alternative: Alternative) -> None:
    d = np.array(values, dtype=float)
    expected = [signed_rank_p(np.delete(d, i), alternative) for i in range(len(d))]
    assert leave_one_out_p(d, alternative) == pytest.approx(expected)


def test_the_floor() -> None:
    assert [smallest_p(n) for n in (0, 3, 5, 6, 10)] == [1, 0.25, 0.0625, 0.03125, 2 / 1024]
    assert smallest_p(5, "greater") == 1 / 32


def test_critical_count_is_the_last_that_rejects() -> None:
    assert critical_count(5, 0.05) == -1  # 2/32 > .05
    assert critical_count(6, 0.05) == 0  # 2/64 <= .05 < 4/64
    assert critical_count(10, 0.05) == 8  # Hollander & Wolfe, table A.4: P(T <= 8) = .0244, P(T <= 9) = .0322


def test_large_n_is_still_a_distribution() -> None:
    d = np.random.default_rng(1).normal(0.05, 1, 300)
    expected = stats.wilcoxon(d, method="asymptotic").pvalue
    assert signed_rank_p(d) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("bad", [[], [[1.0, 2.0]], [1.0, math.nan], [math.inf]])
def test_refuses_what_is_not_a_sample(bad: list[float]) -> None:
    with pytest.raises(UsageError):
        as_sample(bad)


def test_a_sample_that_is_refused_is_named() -> None:
    with refused(UsageError, names=["y", 1, 2]):
        as_sample([math.nan, 1], "y")


@pytest.mark.parametrize(
    ("x", "y", "alternative", "p"),
    [
        ([4, 5, 6], [1, 2, 3], "two-sided", 0.1),  # 2 / C(6, 3)
        ([*range(6, 12)], [*range(6)], "two-sided", 2 / 924),
        # ranks of x 2 and 4, W = 6; of the six pairs of ranks {2,4} {3,4} reach 6 (6 and 7)
        ([2, 4], [1, 3], "greater", 2 / 6),
        ([1] * 100, [1] * 100, "two-sided", 1.0),
    ],
)
def test_rank_sum_by_hand(x: list[float], y: list[float], alternative: Alternative, p: float) -> None:
    assert rank_sum_p(as_sample(x), as_sample(y), alternative) == p


def test_the_floor_of_unpaired_runs() -> None:
    assert [smallest_p_unpaired(n, n) for n in (3, 6, 5000)] == [0.1, 2 / 924, 0.0]


@given(sample, sample, st.sampled_from(ALTERNATIVES))
def test_rank_sum_is_that_of_scipy_with_ties(x: list[int], y: list[int], alternative: Alternative) -> None:
    expected = 1.0  # scipy has no result without variation
    if len(set(x + y)) > 1:
        expected = stats.mannwhitneyu(x, y, alternative=alternative, method=EXACT, use_continuity=False).pvalue
    assert rank_sum_p(as_sample(x), as_sample(y), alternative) == pytest.approx(expected, abs=1e-12)


def test_rank_sum_is_that_of_scipy_without_ties() -> None:
    rng = np.random.default_rng(3)
    for n, m in [(5, 5), (8, 6), (12, 15)]:
        x, y = rng.normal(0.5, 1, n), rng.normal(0, 1, m)
        assert rank_sum_p(x, y) == pytest.approx(stats.mannwhitneyu(x, y, method="exact").pvalue, rel=1e-9)


def test_many_runs_go_by_the_normal_limit_and_it_is_close_where_both_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.3, 0.6):
        x, y = rng.normal(shift, 1, 55).round(2), rng.normal(0, 1, 60).round(2)  # with ties
        for alternative in ALTERNATIVES:
            exact = rank_sum_p(x, y, alternative)
            monkeypatch.setattr(ranktests, "EXACT_RUNS", 10)
            limit = rank_sum_p(x, y, alternative)
            monkeypatch.undo()
            assert limit == pytest.approx(exact, abs=2e-3)
            reference = stats.mannwhitneyu(x, y, alternative=alternative, method="asymptotic").pvalue
            assert limit == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_many_blocks_with_ties_go_by_the_normal_limit_and_it_is_close_where_both_can_be_had(
    alternative: Alternative, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    for shift in (0.0, 0.1, 0.3):
        d = rng.normal(shift, 1, 110).round(1)
        exact = signed_rank_p(d, alternative)
        monkeypatch.setattr(ranktests, "EXACT_RUNS", 50)
        assert signed_rank_p(d, alternative) == pytest.approx(exact, abs=2e-3)
        reference = stats.wilcoxon(d, alternative=alternative, method="asymptotic", correction=True).pvalue
        assert signed_rank_p(d, alternative) == pytest.approx(reference, abs=1e-9)
        expected = [signed_rank_p(np.delete(d, i), alternative) for i in range(len(d))]
        assert leave_one_out_p(d, alternative) == pytest.approx(expected)
        monkeypatch.undo()


def test_more_blocks_than_anybody_runs_cost_no_more_than_a_moment() -> None:
    d = np.random.default_rng(1).normal(0.03, 1, 1200)
    assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="asymptotic").pvalue, rel=0.01)
    assert critical_count(1200, 0.05) == pytest.approx(critical_count(1000, 0.05) * 1.2**2, rel=0.02)


def test_no_p_is_above_1_by_rounding() -> None:
    ones = [signed_rank_p(-np.arange(1.0, n) // k, "greater") for n in range(30, 110) for k in (1, 2, 3, 5)]
    assert max(ones) == 1.0


def test_by_hand_of_equivalence() -> None:
    # every difference well inside: both one-sided tests reach 2^-5
    assert equivalence_p(np.array([0.01, -0.02, 0.03, 0.0, -0.01]), -0.1, 0.1) == 1 / 32
    # one beyond the upper margin, by less than the others are inside: T+ against +.1 is rank 1, P = 2/32
    assert equivalence_p(np.array([0.01, -0.02, 0.03, 0.0, 0.11]), -0.1, 0.1) == 2 / 32


def test_is_the_larger_of_two_one_sided_scipy_tests() -> None:
    d = np.random.default_rng(5).normal(0.02, 0.05, 12)
    above = stats.wilcoxon(d + 0.1, alternative="greater", method="exact").pvalue
    below = stats.wilcoxon(d - 0.1, alternative="less", method="exact").pvalue
    assert equivalence_p(d, -0.1, 0.1) == pytest.approx(max(above, below))


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=10))
def test_antisymmetric_of_equivalence(values: list[float]) -> None:
    d = np.array(values)
    assert equivalence_p(d, -0.1, 0.1) == equivalence_p(-d, -0.1, 0.1)


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=10))
def test_a_wider_margin_is_never_harder(values: list[float]) -> None:
    d = np.array(values)
    assert equivalence_p(d, -0.3, 0.3) <= equivalence_p(d, -0.1, 0.1)
