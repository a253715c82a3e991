import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from meshtrial.errors import UsageError
from meshtrial.stats import Margin, compare_unpaired

positive = st.lists(st.floats(0.1, 10).map(lambda x: round(x, 2)), min_size=2, max_size=6)


def test_six_against_six_completely_apart() -> None:
    result = compare_unpaired([20, 21, 22, 23, 24, 25], [10, 10.5, 11, 11.5, 12, 12.5])
    assert result.p == result.smallest_p == 2 / 924
    # 36 ratios; U <= 5 rejects at .05 (sizes 2/924 .. 26/924 = .028), U = 6 has 36/924 = .039, U = 7 has 50/924 = .054
    assert result.confidence == pytest.approx(1 - 38 / 924)
    assert result.ci_low > 1
    assert [w.code for w in result.warnings] == ["order-unknown"]


def test_the_table_of_mann_and_whitney() -> None:
    # number of the 924 splits with U <= 5 is 19, twice that over 924 is .0411 (Mann & Whitney 1947, table I)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=6), rng.normal(size=6)
    result = compare_unpaired(np.exp(x), np.exp(y))
    assert result.confidence == pytest.approx(1 - 2 * 19 / 924)
    assert result.p == pytest.approx(stats.mannwhitneyu(x, y, method="exact").pvalue)


def test_three_against_three_cannot_say() -> None:
    result = compare_unpaired([2, 3, 4], [0.2, 0.3, 0.41])
    assert result.p == result.smallest_p == 0.1
    assert result.provisional
    assert [w.code for w in result.warnings] == ["order-unknown", "below-floor"]
    assert "0.1" in result.warnings[1].message
    reference = stats.ttest_ind(np.log([2, 3, 4]), np.log([0.2, 0.3, 0.41]), equal_var=False).confidence_interval()
    assert (result.ci_low, result.ci_high) == pytest.approx((np.exp(reference.low), np.exp(reference.high)))


@given(positive, positive)
def test_interval_and_p_never_disagree(t: list[float], b: list[float]) -> None:
    result = compare_unpaired(t, b, alpha=0.1)
    if not result.provisional:
        assert result.excludes_no_effect == (result.p <= 0.1)


@given(positive, positive)
def test_antisymmetric(t: list[float], b: list[float]) -> None:
    forth, back = compare_unpaired(t, b, margin=Margin(0.3)), compare_unpaired(b, t, margin=Margin(0.3))
    assert forth.estimate * back.estimate == pytest.approx(1)
    assert forth.p == pytest.approx(back.p)
    assert forth.p_equivalence == pytest.approx(back.p_equivalence)


def test_noise_and_runs_needed() -> None:
    # both arms have the log variance of 0 1 2 3 4 5, 3.5, times .01^2; the difference of two runs has twice that
    x = np.exp(np.arange(6) / 100)
    result = compare_unpaired(x, x[::-1] * 1.001, margin=Margin(0.05))
    assert result.sd == pytest.approx(np.sqrt(2 * 3.5) / 100)
    assert result.needed_difference is not None
    # two-sample t-test at the same power, over .955
    expected = TTestIndPower().solve_power(np.log(1.05) / (np.sqrt(3.5) / 100), alpha=0.05, power=0.8) / 0.955
    assert result.needed_difference == pytest.approx(expected, abs=3)


def test_equivalence_of_tight_arms() -> None:
    t, b = 1 + np.arange(8) / 1000, 1.0005 + np.arange(8) / 1000
    result = compare_unpaired(t, b, margin=Margin(0.05))
    assert result.p_equivalence is not None
    assert result.p_equivalence <= 0.001
    assert result.p > 0.05


@pytest.mark.parametrize(("t", "b"), [([1], [1, 2]), ([0, 1], [1, 2])])
def test_refuses(t: list[float], b: list[float]) -> None:
    with pytest.raises(UsageError):
        compare_unpaired(t, b)
