"""Changes of level: what the smallest series can show, by hand, and where a change is marked."""

from math import comb

import numpy as np
import pytest

from meshtrial.stats import fewest_for_change, level_changes

STEP = [1.0, 1.3, 1.1, 1.2, 2.4, 2.1, 2.3, 2.2]


def test_a_complete_step_has_the_p_value_of_its_arrangements():
    """Of C(8, 4) = 70 ways to choose the first four, 2 separate low from high."""
    ((change,),) = level_changes([STEP])
    assert change.index == 4
    assert (change.before, change.after) == pytest.approx((1.15, 2.25))
    assert change.p_adjusted == pytest.approx(2 / comb(8, 4), abs=0.005)


@pytest.mark.parametrize(("series", "fewest"), [(1, 8), (3, 9), (5, 10)])
def test_the_fewest_studies_follow_from_the_same_count(series, fewest):
    assert fewest_for_change(series) == fewest
    step = 0.1 * np.arange(fewest) + 100.0 * (np.arange(fewest) >= fewest // 2)
    steady = np.tile([1.0, 2.0], fewest)[:fewest]
    assert level_changes([step, *[steady] * (series - 1)])[0]
    assert not level_changes([step[1:], *[steady[1:]] * (series - 1)])[0]


def test_two_changes_are_both_found_and_the_order_of_time_matters():
    rng = np.random.default_rng(2)
    series = rng.normal(0, 0.1, 36) + np.repeat([0.0, 1.0, 2.0], 12)
    (changes,) = level_changes([series])
    assert [change.index for change in changes] == [12, 24]
    assert [round(change.after, 1) for change in changes] == [1.0, 2.0]
    assert level_changes([rng.permutation(series)]) == ((),)


def test_units_and_direction_change_nothing():
    ((change,),) = level_changes([STEP])
    ((scaled,),) = level_changes([1e-6 * np.array(STEP)])
    ((falling,),) = level_changes([-np.array(STEP)])
    assert change.index == scaled.index == falling.index
    assert change.p_adjusted == scaled.p_adjusted == falling.p_adjusted


@pytest.mark.parametrize("series", [[1.0] * 20, [1.0, 1.2] * 9 + [99.0], [1.0, 2.0]], ids=["equal", "outlier", "two"])
def test_equal_values_a_single_outlier_and_a_short_series_are_no_change(series):
    assert level_changes([series]) == ((),)
