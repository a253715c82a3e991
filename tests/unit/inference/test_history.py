"""A series of studies: a change of one treatment is marked only there, and programs can read the series."""

import math

import numpy as np
import pytest

from meshtrial.inference.between import Between, of_values
from meshtrial.inference.history import levels


def series(ratios: list[float], treatment: str = "sidecar") -> Between:
    """Studies of four blocks whose mean ratio to the baseline is known."""
    spread = np.exp([0.01, -0.01, 0.02, -0.02])
    taken = {i: (ratio * spread, np.ones(4)) for i, ratio in enumerate(ratios)}
    one = of_values(taken, None, of=("100rps", "latency_p50_s", treatment, "none"))
    assert one is not None
    return one


STEADY = [1.5 + 0.01 * (i * 7 % 12) for i in range(12)]


def test_a_change_of_one_treatment_is_marked_at_its_study_and_not_in_the_twin():
    compared = [series([ratio + 0.5 * (i >= 8) for i, ratio in enumerate(STEADY)]), series(STEADY, "none-aa")]
    (change,), twin = levels(compared)
    assert twin == ()
    assert compared[0].effects[change.index].study == 8
    assert math.exp(change.before) == pytest.approx(np.exp(np.log(STEADY[:8]).mean()))
    assert math.exp(change.after) == pytest.approx(2.0, abs=0.1)
    assert change.p_adjusted < 0.05


def test_differences_are_kept_beside_ratios():
    one = series(STEADY)
    assert [effect.mean for effect in one.added_effects] == pytest.approx([ratio - 1 for ratio in STEADY], abs=1e-3)
