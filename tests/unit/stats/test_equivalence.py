import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from meshtrial.errors import UsageError
from meshtrial.stats import equivalence_p


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


def test_refuses_margins_that_are_not_in_order() -> None:
    with pytest.raises(UsageError, match="order"):
        equivalence_p([1, 2], 0.1, -0.1)
