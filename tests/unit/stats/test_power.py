import math

import pytest
from scipy.stats import norm
from statsmodels.stats.power import TTestPower

from meshtrial.errors import UsageError
from meshtrial.stats.noise import VarianceComponents
from meshtrial.stats.power import (
    Budget,
    blocks_for_difference,
    blocks_for_equivalence,
    cost_of_margin,
    detectable_effect,
    study_seconds,
)


@pytest.mark.parametrize("effect", [0.3, 0.5, 0.8, 1.2])
@pytest.mark.parametrize("m", [1, 5])
def test_the_formula_of_the_method(effect: float, m: int) -> None:
    expected = math.ceil(TTestPower().solve_power(effect, alpha=0.05 / m, power=0.8) / 0.955)
    assert blocks_for_difference(1.0, effect, m=m) == expected


def test_never_below_the_floor() -> None:
    assert blocks_for_difference(0.01, 1.0) == 6
    assert blocks_for_difference(0.01, 1.0, m=5) == 8
    assert blocks_for_difference(0.0, 1.0, m=5) == 8
    assert blocks_for_equivalence(0.01, 1.0, m=5) == 7


def test_equivalence_by_hand() -> None:
    # ((1.645 + 1.282) * .1 / .0953)^2 / .955 = 9.88 -> 10
    assert ((norm.ppf(0.95) + norm.ppf(0.9)) * 0.1 / math.log(1.1)) ** 2 / 0.955 == pytest.approx(9.88, abs=0.01)
    assert blocks_for_equivalence(0.1, math.log(1.1)) == 10
    # an effect of half the margin leaves half of it: four times as many
    assert blocks_for_equivalence(0.1, math.log(1.1), effect=math.log(1.1) / 2) == math.ceil(4 * 9.8765)


def test_small_effects_go_beyond_the_table() -> None:
    expected = TTestPower().solve_power(0.02, alpha=0.05, power=0.8) / 0.955
    assert blocks_for_difference(1.0, 0.02) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(("n", "m"), [(6, 1), (10, 5), (30, 3), (400, 1)])
def test_detectable_effect_is_statsmodels(n: int, m: int) -> None:
    expected = TTestPower().solve_power(nobs=n * 0.955, alpha=0.05 / m, power=0.8)
    assert detectable_effect(n, m=m) == pytest.approx(expected, rel=1e-4)


def test_detectable_effect_and_blocks_are_inverse() -> None:
    for n in (8, 10, 16, 40, 100):
        effect = detectable_effect(n)
        assert effect is not None
        assert blocks_for_difference(1.0, effect * 1.0001) == n
        assert blocks_for_difference(1.0, effect * 0.9999) == n + 1


def test_nothing_is_detectable_below_the_floor() -> None:
    assert detectable_effect(5) is None
    assert detectable_effect(7, m=5) is None


def test_beyond_the_table_continues_it() -> None:
    inside, outside = detectable_effect(512), detectable_effect(513)
    assert inside is not None
    assert outside is not None
    assert outside == pytest.approx(inside, rel=0.005)


def test_time() -> None:
    assert study_seconds(10, 6, 15.0) == 900


@pytest.mark.parametrize(("sd", "margin"), [(-1, 0.1), (math.nan, 0.1), (1, 0.0), (1, -0.1)])
def test_refuses(sd: float, margin: float) -> None:
    with pytest.raises(UsageError):
        blocks_for_difference(sd, margin)
    with pytest.raises(UsageError):
        blocks_for_equivalence(sd, margin)


PARTS = VarianceComponents(between=0.0004, within=0.0036, mean=0.0, deployments=20, slices=4)
BUDGET = Budget(treatments=4, m_family=2, outer_s=16, inner_s=4)


def test_by_hand() -> None:
    # slices sqrt(16/4 * .0036/.0004) = 6; a run has .0004 + .0036/6 = .001, a difference sqrt(.002)
    cost = cost_of_margin(PARTS, 1.05, BUDGET)
    assert cost.slices == 6
    assert cost.sd == pytest.approx(math.sqrt(0.002))
    assert cost.blocks_difference == blocks_for_difference(cost.sd, math.log(1.05), m=2)
    assert cost.blocks_equivalence == blocks_for_equivalence(cost.sd, math.log(1.05), m=2)
    assert cost.seconds_difference == cost.blocks_difference * 4 * (16 + 6 * 4)
    assert cost.seconds_equivalence == cost.blocks_equivalence * 4 * (16 + 6 * 4)


def test_a_wider_margin_saves_blocks() -> None:
    wide, narrow = (cost_of_margin(PARTS, ratio, BUDGET) for ratio in (1.2, 1.05))
    assert wide.blocks_difference < narrow.blocks_difference
    assert wide.blocks_equivalence < narrow.blocks_equivalence


def test_the_cheapest_split_is_not_dearer_than_one_slice() -> None:
    split, single = (cost_of_margin(PARTS, 1.02, BUDGET, slices=slices) for slices in (None, 1))
    assert split.seconds_difference < single.seconds_difference
    assert split.seconds_equivalence < single.seconds_equivalence
