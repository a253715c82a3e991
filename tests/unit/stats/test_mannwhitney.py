import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats.mannwhitney import hodges_lehmann_two, mann_whitney, smallest_p_unpaired

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


def test_same_as_scipy_without_ties() -> None:
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
    assert not result.bounded
    assert result.estimate == pytest.approx(3, abs=0.5)


def test_refuses_nan() -> None:
    with pytest.raises(UsageError, match="y"):
        mann_whitney([1, 2], [math.nan, 1])
