import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats.signedrank import critical_count, leave_one_out_p, signed_rank, signed_rank_p, smallest_p

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
def test_swapping_the_arms_changes_nothing(values: list[int]) -> None:
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
