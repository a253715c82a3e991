import math

import pytest

from meshtrial.stats import Budget, blocks_for_difference, blocks_for_equivalence, cost_of_margin
from meshtrial.stats.noise import VarianceComponents

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
