import math

import pytest

from meshtrial.stats import Margin, blocks_for_difference, blocks_for_equivalence, cost_of_margin
from meshtrial.stats.noise import VarianceComponents

PARTS = VarianceComponents(between=0.0004, within=0.0036, mean=0.0, deployments=20, slices=4)


def test_by_hand() -> None:
    # slices sqrt(16/4 * .0036/.0004) = 6; a run has .0004 + .0036/6 = .001, a difference sqrt(.002)
    cost = cost_of_margin(PARTS, Margin(0.05), 0.01, arms=4, m_family=2, cost_outer=16, cost_inner=4)
    assert cost.slices == 6
    assert cost.sd == pytest.approx(math.sqrt(0.002))
    assert cost.blocks_difference == blocks_for_difference(cost.sd, math.log(1.05), m=2)
    assert cost.blocks_equivalence == blocks_for_equivalence(cost.sd, math.log(1.05), m=2)
    assert cost.blocks == max(cost.blocks_difference, cost.blocks_equivalence)
    assert cost.seconds == cost.blocks * 4 * (16 + 6 * 4)


def test_the_floor_of_a_margin_saves_blocks() -> None:
    wide, narrow = (
        cost_of_margin(PARTS, Margin(0.05, 0.0001), typical, arms=4, m_family=2, cost_outer=16, cost_inner=4)
        for typical in (0.0005, 0.01)
    )
    assert wide.margin_ratio == pytest.approx(1.2)
    assert wide.blocks < narrow.blocks


def test_the_cheapest_split_is_not_dearer_than_one_slice() -> None:
    split, single = (
        cost_of_margin(PARTS, Margin(0.02), 0.01, arms=4, m_family=2, cost_outer=16, cost_inner=4, slices=slices)
        for slices in (None, 1)
    )
    assert split.seconds < single.seconds
