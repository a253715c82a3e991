import gc
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from statsmodels.stats.multitest import multipletests

from meshtrial.stats.multiplicity import (
    benjamini_hochberg,
    holm,
    smallest_n,
    smallest_n_unpaired,
    step_down_max_t,
    step_down_max_t_rows,
)
from meshtrial.stats.ranktests import signed_rank_p

p_lists = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_by_hand() -> None:
    # Holm, sorted .01 .02 .04: 3 * .01, 2 * .02, 1 * .04; Benjamini-Hochberg: .01 * 3/1, .02 * 3/2, .04 * 3/3
    assert holm([0.04, 0.01, 0.02]).tolist() == pytest.approx([0.04, 0.03, 0.04])
    assert benjamini_hochberg([0.04, 0.01, 0.02]).tolist() == pytest.approx([0.04, 0.03, 0.03])


@pytest.fixture(scope="module")
def little_garbage() -> Iterator[None]:
    """Earlier objects are frozen, because statsmodels collects all garbage at every call."""
    gc.freeze()
    yield
    gc.unfreeze()


@given(p=p_lists)
def test_same_as_statsmodels(little_garbage: None, p: list[float]) -> None:
    assert np.allclose(holm(p), multipletests(p, method="holm")[1])
    assert np.allclose(benjamini_hochberg(p), multipletests(p, method="fdr_bh")[1])


def by_every_pattern(d: list[list[float]]) -> list[float]:
    """Step-down max-T by its definition: all patterns of signs, ranks by scipy, ties by the size of t."""
    n = len(d[0])

    def statistic(row: np.ndarray) -> tuple[float, float]:
        ranks = rankdata(np.abs(row))
        return round(abs(float(np.sign(row) @ ranks)) / math.sqrt(float(ranks @ ranks)), 9), abs(float(row.sum()))

    rows = [np.array(row) / math.sqrt(sum(x * x for x in row)) for row in d]
    drawn = [[statistic(np.array(s) * row) for row in rows] for s in itertools.product((1, -1), repeat=n)]
    observed = drawn[0]
    order = sorted(range(len(d)), key=lambda k: observed[k], reverse=True)
    adjusted, last = [0.0] * len(d), 0.0
    for step, k in enumerate(order):
        limit = (observed[k][0], observed[k][1] - 1e-9)
        last = max(last, sum(max(one[j] for j in order[step:]) >= limit for one in drawn) / 2**n)
        adjusted[k] = last
    return adjusted


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 8))
def test_max_t_is_its_definition(seed: int, m: int, n: int) -> None:
    d = np.random.default_rng(seed).normal(0.5, 1, (m, n))
    assert step_down_max_t(list(d), [0.0] * m).tolist() == pytest.approx(by_every_pattern(d.tolist()))


def test_max_t_has_the_floor_of_one_contrast() -> None:
    d = np.random.default_rng(1).uniform(0.5, 1.5, 6)
    # All six blocks on one side in five equal contrasts: two patterns of 64, however many contrasts there are.
    assert step_down_max_t([d] * 5, [0.0] * 5).tolist() == [2 / 64] * 5


def test_max_t_with_zeros_and_ties() -> None:
    assert step_down_max_t([np.zeros(6)], [0.0]).tolist() == [1.0]
    # One contrast and no ties of rank sums by t: what the signed-rank test says, zeros dropped, midranks for ties.
    d = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert step_down_max_t([d], [0.0]).tolist() == [signed_rank_p(d)]


def test_max_t_of_many_studies_is_that_of_each() -> None:
    d = np.random.default_rng(4).normal(0.3, 1, (150, 3, 9))
    d[::2] = d[::2].round(1)  # ties and zeros
    each = [step_down_max_t(list(study), [0.0] * 3).tolist() for study in d]
    assert step_down_max_t_rows(d).tolist() == each


def test_max_t_of_many_blocks_draws_patterns_and_is_never_zero() -> None:
    rng = np.random.default_rng(3)
    d = [rng.normal(shift, 1, 40) for shift in (0.0, 0.3, 3.0)]
    p = step_down_max_t(d, [0.0] * 3)
    assert p[2] == 1 / (2**16 + 1)
    # About what normal limits give, corrected: the middle one lies between its own p and Holm's.
    own = [signed_rank_p(row) for row in d]
    assert own[1] * 0.9 < p[1] < 2 * own[1] * 1.1
    assert step_down_max_t(d, [0.0] * 3).tolist() == p.tolist()


@given(st.integers(1, 60), st.sampled_from([0.01, 0.04, 0.05, 0.1]))
def test_smallest_n_is_the_first_that_reaches_alpha(m: int, alpha: float) -> None:
    n = smallest_n(m, alpha)
    assert 2.0 ** (1 - n) <= alpha / m < 2.0 ** (2 - n)


def test_unpaired_floor() -> None:
    # 2/C(8,4) = .029 <= .05 < .1 = 2/C(6,3)
    assert smallest_n_unpaired(1) == 4
    assert smallest_n_unpaired(5) == 5  # 2/252 = .0079 <= .01
