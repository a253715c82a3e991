import math

import numpy as np
import pytest
from scipy import stats

from meshtrial.stats.signflip import paired_t_interval, paired_t_p, sign_flip_p


def test_by_hand() -> None:
    # 1 2 4 with all signs: sums +-7 +-5 +-3 +-1; only +-7 reach 7
    assert sign_flip_p(np.array([1.0, 2, 4])) == 2 / 8
    assert sign_flip_p(np.array([1.0, -2, 4])) == 6 / 8  # |sum| = 3 is reached by 7, 5, 3
    assert sign_flip_p(np.zeros(4)) == 1.0


@pytest.mark.parametrize("n", [2, 5, 9, 12])
def test_same_as_scipy(n: int) -> None:
    d = np.random.default_rng(n).normal(0.3, 1, n)
    expected = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=math.inf).pvalue  # type: ignore[arg-type]
    assert sign_flip_p(d) == pytest.approx(expected)


def test_large_samples_use_the_normal_limit() -> None:
    d = np.random.default_rng(0).normal(0.2, 1, 100)
    assert sign_flip_p(d) == pytest.approx(stats.ttest_1samp(d, 0).pvalue, rel=0.15)


def test_paired_t_is_scipy() -> None:
    d = np.random.default_rng(7).normal(0.3, 1, 8)
    reference = stats.ttest_1samp(d, 0)
    mean, sd = float(d.mean()), float(d.std(ddof=1))
    assert paired_t_p(mean, sd, 8) == pytest.approx(reference.pvalue)
    interval = reference.confidence_interval(0.95)
    assert paired_t_interval(mean, sd, 8, 0.05) == pytest.approx((interval.low, interval.high))
    assert paired_t_p(0.0, 0.0, 5) == 1.0
    assert paired_t_p(1.0, 0.0, 5) == 0.0
