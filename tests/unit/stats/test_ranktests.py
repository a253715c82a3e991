import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats import equivalence_p, ranktests
from meshtrial.stats.intervals import hodges_lehmann_two
from meshtrial.stats.ranktests import (
    critical_count,
    leave_one_out_p,
    mann_whitney,
    signed_rank,
    signed_rank_p,
    smallest_p,
    smallest_p_unpaired,
)

small_whole = st.lists(st.integers(-6, 6), min_size=2, max_size=8)


def test_all_positive_reaches_the_floor() -> None:
    # six positive differences: only ++++++ and ------ are as extreme, 2 of 64
    result = signed_rank([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert result.statistic == 21  # 1 + 2 + 3 + 4 + 5 + 6
    assert result.p == result.smallest_p == 2 / 64


def test_one_small_negative_by_hand() -> None:
    # T- = 1; patterns with a rank sum of at most 1: {} and {1}, so p = 2 * 2/32
    result = signed_rank([-1, 2, 3, 4, 5])
    assert result.p == 4 / 32
    assert signed_rank([-1, 2, 3, 4, 5], "greater").p == 2 / 32
    # "less": P(T+ <= 14) = 1 - P(T+ = 15) = 31/32
    assert signed_rank([-1, 2, 3, 4, 5], "less").p == 31 / 32


def test_ties_share_a_midrank_by_hand() -> None:
    # sizes 1 1 2: midranks 1.5 1.5 3; T+ = 1.5 + 3; patterns with T+ >= 4.5: 6, 4.5, 4.5 -> 3/8
    result = signed_rank([1, -1, 2], "greater")
    assert result.statistic == 4.5
    assert result.ties
    assert result.p == 3 / 8


def test_zeros_are_dropped() -> None:
    assert signed_rank([0, 0, 1, 2, 3, 4, 5, 6]).p == 2 / 64
    assert signed_rank([0, 0, 1, 2, 3, 4, 5, 6]).n_used == 6
    assert signed_rank([0, 0, 0]).p == 1.0


def test_rounding_does_not_break_a_tie() -> None:
    d = np.array([0.3, -(0.1 + 0.2), 0.5])  # 0.1 + 0.2 is 0.30000000000000004
    assert signed_rank(d).ties is False
    assert signed_rank(d, atol=1e-12).ties is True


@pytest.mark.parametrize("n", [5, 8, 12, 20, 40])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_same_as_scipy_without_ties(n: int, alternative: str) -> None:
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.5, -1.0):
        d = rng.normal(shift, 1, n)
        expected = stats.wilcoxon(d, alternative=alternative, method="exact").pvalue
        assert signed_rank(d, alternative).p == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]


@given(small_whole, st.sampled_from(["two-sided", "greater", "less"]))
def test_same_as_scipy_with_ties_and_zeros(values: list[int], alternative: str) -> None:
    d = np.array(values, dtype=float)
    if not d.any():
        assert signed_rank(d, alternative).p == 1.0  # type: ignore[arg-type]
        return
    method = stats.PermutationMethod(n_resamples=math.inf)  # type: ignore[arg-type]
    expected = stats.wilcoxon(d, alternative=alternative, method=method).pvalue
    assert signed_rank(d, alternative).p == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]


@given(small_whole)
def test_swapping_the_treatments_changes_nothing(values: list[int]) -> None:
    d = np.array(values, dtype=float)
    assert signed_rank(d).p == signed_rank(-d).p
    assert signed_rank(d, "greater").p == signed_rank(-d, "less").p


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9), st.sampled_from(["two-sided", "greater", "less"]))
def test_leave_one_out_is_the_test_of_the_others(values: list[int], alternative: str) -> None:
    d = np.array(values, dtype=float)
    expected = [signed_rank(np.delete(d, i), alternative).p for i in range(len(d))]  # type: ignore[arg-type]
    assert leave_one_out_p(d, alternative) == pytest.approx(expected)  # type: ignore[arg-type]


def test_the_floor() -> None:
    assert [smallest_p(n) for n in (3, 5, 6, 10)] == [0.25, 0.0625, 0.03125, 2 / 1024]
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
        signed_rank(bad)


def test_the_smallest_p_of_a_plan() -> None:
    assert [smallest_p(n) for n in (10, 5, 0)] == [2 / 1024, 0.0625, 1]


sample = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def test_complete_separation() -> None:
    assert mann_whitney([4, 5, 6], [1, 2, 3]).p == 0.1  # 2 / C(6, 3)
    assert mann_whitney(range(6, 12), range(6)).p == 2 / 924
    assert smallest_p_unpaired(3, 3) == 0.1
    assert smallest_p_unpaired(6, 6) == 2 / 924


def test_by_hand() -> None:
    # x = 2 4, y = 1 3: ranks of x 2 and 4, W = 6; of the six pairs of ranks {2,4} {3,4} reach 6 (6 and 7)
    result = mann_whitney([2, 4], [1, 3], "greater")
    assert result.statistic == 3  # 2 > 1, 4 > 1, 4 > 3
    assert result.p == 2 / 6


@given(sample, sample, st.sampled_from(["two-sided", "greater", "less"]))
def test_same_as_scipy_with_ties(x: list[int], y: list[int], alternative: str) -> None:
    method = stats.PermutationMethod(n_resamples=math.inf)  # type: ignore[arg-type]
    expected = stats.mannwhitneyu(x, y, alternative=alternative, method=method, use_continuity=False).pvalue
    if len(set(x + y)) == 1:
        expected = 1.0  # scipy has no answer where nothing varies
    assert mann_whitney(x, y, alternative).p == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]


def test_same_as_scipy_without_ties_of_mannwhitney() -> None:
    rng = np.random.default_rng(3)
    for n, m in [(5, 5), (8, 6), (12, 15)]:
        x, y = rng.normal(0.5, 1, n), rng.normal(0, 1, m)
        assert mann_whitney(x, y).p == pytest.approx(stats.mannwhitneyu(x, y, method="exact").pvalue, rel=1e-9)


def test_interval_by_hand() -> None:
    # 4 against 4: sizes 2/70, 4/70 -> at .05 only U = 0 rejects; the ends are the extreme differences
    result = hodges_lehmann_two([10.0, 12.5, 15, 19], [1.0, 2.2, 3.1, 4.7])
    assert (result.low, result.high) == pytest.approx((10 - 4.7, 19 - 1))
    assert result.confidence == pytest.approx(1 - 2 / 70)


@given(sample, sample, st.sampled_from([0.05, 0.1, 0.3]))
def test_interval_and_p_never_disagree(x: list[int], y: list[int], alpha: float) -> None:
    result = hodges_lehmann_two(x, y, alpha)
    assert result.excludes(0.0) == (result.p <= alpha)
    assert result.confidence >= 1 - alpha - 1e-12


@given(sample, sample)
def test_antisymmetric(x: list[int], y: list[int]) -> None:
    a, b = hodges_lehmann_two(x, y, 0.2), hodges_lehmann_two(y, x, 0.2)
    assert (a.estimate, a.low, a.high) == (-b.estimate, -b.high, -b.low)
    assert a.p == pytest.approx(b.p)


def test_no_interval_from_three_against_three() -> None:
    result = hodges_lehmann_two([4, 5, 6.5], [1, 2, 3.1])
    assert (result.low, result.high) == (-math.inf, math.inf)
    assert result.estimate == pytest.approx(3, abs=0.5)


def test_refuses_nan() -> None:
    with refused(UsageError, names=["y", 1, 2]):
        mann_whitney([1, 2], [math.nan, 1])


def test_by_hand_of_equivalence() -> None:
    # every difference well inside: both one-sided tests reach 2^-5
    assert equivalence_p([0.01, -0.02, 0.03, 0.0, -0.01], -0.1, 0.1) == 1 / 32
    # one beyond the upper margin, by less than the others are inside: T+ against +.1 is rank 1, P = 2/32
    assert equivalence_p([0.01, -0.02, 0.03, 0.0, 0.11], -0.1, 0.1) == 2 / 32


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
    assert equivalence_p(values, -0.3, 0.3) <= equivalence_p(values, -0.1, 0.1)


def test_refuses_margins_that_are_not_in_order() -> None:
    with refused(UsageError, "equivalence margins must be in order, got 0.1 and -0.1"):
        equivalence_p([1, 2], 0.1, -0.1)


def test_many_runs_go_by_the_normal_limit_and_it_is_close_where_both_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.3, 0.6):
        x, y = rng.normal(shift, 1, 55).round(2), rng.normal(0, 1, 60).round(2)  # with ties
        for alternative in ("two-sided", "greater", "less"):
            exact = mann_whitney(x, y, alternative).p
            monkeypatch.setattr(ranktests, "EXACT_RUNS", 10)
            limit = mann_whitney(x, y, alternative).p
            monkeypatch.undo()
            assert limit == pytest.approx(exact, abs=2e-3)
            reference = stats.mannwhitneyu(x, y, alternative=alternative, method="asymptotic").pvalue
            assert limit == pytest.approx(reference, abs=1e-9)


def test_five_hundred_runs_a_side() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(0.1, 1, 520), rng.normal(0, 1, 520)
    reference = stats.mannwhitneyu(x, y, method="asymptotic")
    assert mann_whitney(x, y).p == pytest.approx(reference.pvalue, abs=1e-9)
    found = hodges_lehmann_two(x, y)
    assert found.low < found.estimate < found.high
    assert found.confidence == pytest.approx(0.95, abs=1e-3)
    assert found.excludes(0.0) == (found.p <= 0.05)
    assert smallest_p_unpaired(5000, 5000) == 0.0
    assert mann_whitney([1.0] * 100, [1.0] * 100).p == 1.0
