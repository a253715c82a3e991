import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats.equivalence import Margin, equivalence_p


def test_the_floor_widens_the_margin_of_a_small_baseline() -> None:
    margin = Margin(0.05, 0.0001)
    assert margin.ratio(0.010) == pytest.approx(1.05)  # .1 ms on 10 ms is 1 % only
    assert margin.ratio(0.0005) == pytest.approx(1.2)  # .1 ms on .5 ms is 20 %
    assert margin.difference(0.010) == pytest.approx(0.0005)
    assert margin.difference(0.0005) == pytest.approx(0.0001)
    assert margin.difference(0.0) == 0.0001


def test_by_hand() -> None:
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
def test_antisymmetric(values: list[float]) -> None:
    d = np.array(values)
    assert equivalence_p(d, -0.1, 0.1) == equivalence_p(-d, -0.1, 0.1)


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=10))
def test_a_wider_margin_is_never_harder(values: list[float]) -> None:
    assert equivalence_p(values, -0.3, 0.3) <= equivalence_p(values, -0.1, 0.1)


@pytest.mark.parametrize(("relative", "floor"), [(-0.1, None), (0.0, None), (0.0, 0.0), (0.1, -1.0), (math.nan, None)])
def test_refuses_a_margin_that_is_none(relative: float, floor: float | None) -> None:
    with pytest.raises(UsageError):
        Margin(relative, floor)


def test_refuses_what_a_zero_baseline_cannot_mean() -> None:
    with pytest.raises(UsageError, match="difference"):
        Margin(0.1).ratio(0.0)
    with pytest.raises(UsageError, match="floor"):
        Margin(0.1).difference(0.0)
    with pytest.raises(UsageError, match="order"):
        equivalence_p([1, 2], 0.1, -0.1)
