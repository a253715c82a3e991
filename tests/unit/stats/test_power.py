import math

import numpy as np
import pytest
from scipy.stats import norm, wilcoxon
from statsmodels.stats.power import TTestPower

from meshtrial.errors import UsageError
from meshtrial.stats import VarianceComponents, best_slices, variance_components
from meshtrial.stats.intervals import signed_rank_p_rows
from meshtrial.stats.multiplicity import smallest_n, step_down_max_t_rows
from meshtrial.stats.power import (
    blocks_for_difference,
    blocks_for_equivalence,
    detectable_effect,
    reached_level,
    upper_sd,
)


@pytest.mark.parametrize(("n", "level"), [(6, 0.025), (10, 0.025), (10, 0.005), (16, 0.01), (60, 0.05)])
def test_the_level_that_the_exact_test_reaches(n: int, level: float) -> None:
    reached = reached_level(n, level)
    # the rank sum whose tail it is, and the next one, which is above the level
    tails = [float(wilcoxon(np.arange(1, n + 1) * np.where(np.arange(n) < k, -1, 1), alternative="greater").pvalue)
             for k in range(n + 1)]  # fmt: skip
    assert 0 < reached <= level
    assert all(tail <= reached or tail > level for tail in tails)
    assert reached_level(4, 0.025) == 0
    assert reached_level(61, 0.025) == 0.025


@pytest.mark.parametrize("effect", [0.3, 0.5])
@pytest.mark.parametrize("m", [1, 5])
def test_with_many_blocks_the_plan_is_that_of_the_t_test(effect: float, m: int) -> None:
    expected = math.ceil(TTestPower().solve_power(effect, alpha=0.05 / m, power=0.8) / 0.955)
    assert expected <= blocks_for_difference(1.0, effect, m=m) <= expected + 2


def promised(n: int, shift: float, m: int, margin: float | None = None) -> float:
    """Share of simulated studies of n blocks that show a difference, or equivalence, at alpha/m."""
    d = np.random.default_rng(5).normal(shift, 1.0, (4000, n))
    if margin is None:
        return float((signed_rank_p_rows(d) <= 0.05 / m).mean())
    p = np.maximum(signed_rank_p_rows(d + margin, "greater"), signed_rank_p_rows(d - margin, "less"))
    return float((p <= 0.05 / m).mean())


@pytest.mark.parametrize("size", [0.5, 0.8, 1.0, 1.2, 1.5, 2.0])
@pytest.mark.parametrize("m", [1, 5])
def test_a_plan_keeps_its_promise_and_asks_for_little_more(size: float, m: int) -> None:
    for blocks, power in (
        (blocks_for_difference(1.0, size, m=m), lambda n: promised(n, size, m)),
        (blocks_for_equivalence(1.0, size, m=m), lambda n: promised(n, 0.0, m, size)),
    ):
        # 0.03: Monte Carlo's three standard errors are 0.02, and t is only near the signed-rank test
        assert power(blocks) >= 0.8 - 0.03
        floor = smallest_n(m, 0.05)
        assert blocks <= floor or power(max(floor - 1, blocks - 3)) < 0.8 + 0.03


def test_never_below_the_floor() -> None:
    assert blocks_for_difference(0.01, 1.0) == 6
    assert blocks_for_difference(0.01, 1.0, m=5) == 8
    assert blocks_for_difference(0.0, 1.0, m=5) == 8
    assert blocks_for_equivalence(0.01, 1.0, m=5) == 7


def test_equivalence_beyond_the_table_is_the_normal_formula() -> None:
    expected = ((norm.ppf(0.95) + norm.ppf(0.9)) / 0.05) ** 2 / 0.955
    assert blocks_for_equivalence(1.0, 0.05) == math.ceil(expected)
    # an effect of half the margin leaves half of the margin
    assert blocks_for_equivalence(1.0, 0.1, effect=0.05) == math.ceil(expected)


def test_small_effects_go_beyond_the_table() -> None:
    expected = TTestPower().solve_power(0.02, alpha=0.05, power=0.8) / 0.955
    assert blocks_for_difference(1.0, 0.02) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(("n", "m"), [(100, 3), (400, 1)])
def test_detectable_effect_is_statsmodels(n: int, m: int) -> None:
    expected = TTestPower().solve_power(nobs=n * 0.955, alpha=0.05 / m, power=0.8)
    assert detectable_effect(n, m=m) == pytest.approx(expected, rel=1e-3)


def test_detectable_effect_and_blocks_are_inverse() -> None:
    for n in (8, 10, 16, 40, 100):
        effect = detectable_effect(n) or 0.0
        assert blocks_for_difference(1.0, effect * 1.0001) == n
        assert blocks_for_difference(1.0, effect * 0.9999) == n + 1


def test_nothing_is_detectable_below_the_floor() -> None:
    assert detectable_effect(5) is None
    assert detectable_effect(7, m=5) is None


def test_beyond_the_table_continues_it() -> None:
    assert detectable_effect(513) == pytest.approx(detectable_effect(512) or 0.0, rel=0.005)


@pytest.mark.parametrize(("sd", "margin"), [(-1, 0.1), (math.nan, 0.1), (1, 0.0), (1, -0.1)])
def test_refuses(sd: float, margin: float) -> None:
    with pytest.raises(UsageError):
        blocks_for_difference(sd, margin)
    with pytest.raises(UsageError):
        blocks_for_equivalence(sd, margin)


def test_a_wider_margin_saves_blocks() -> None:
    for blocks in (blocks_for_difference, blocks_for_equivalence):
        assert blocks(0.05, math.log(1.2), m=2) < blocks(0.05, math.log(1.05), m=2)


def test_a_plan_from_a_pilot_has_the_power_that_was_asked_for() -> None:
    # The noise of ten blocks is planned with: once as it was estimated, once at its upper limit.
    rng = np.random.default_rng(8)
    margin, powers = 1.0, {}
    for careful in (False, True):
        found = []
        for sd in rng.normal(0, 1, (400, 10)).std(axis=1, ddof=1).tolist():
            n = blocks_for_difference(upper_sd(sd, 10) if careful else sd, margin)
            found.append(signed_rank_p_rows(rng.normal(margin, 1, (20, n))) <= 0.05)
        powers[careful] = float(np.mean(np.concatenate(found)))
    assert powers[False] < 0.80 < 0.82 < powers[True] < 0.93


def test_the_upper_limit_is_chi_squares() -> None:
    assert upper_sd(1.0, 6) == pytest.approx(1.29, abs=0.005)
    assert upper_sd(2.0, 10) == pytest.approx(2 * 1.19, abs=0.01)


@pytest.mark.parametrize(("n", "least"), [(7, 0.70), (8, 0.75), (10, 0.78)])
def test_what_max_t_is_said_to_find_it_finds(n: int, least: float) -> None:
    rng = np.random.default_rng(n)
    effect = detectable_effect(n, m=5, jointly=True)
    assert effect is not None
    studies = rng.normal(0, 1 / math.sqrt(2), (400, n, 6)) + effect * (np.arange(6) == 1)
    p = step_down_max_t_rows((studies[:, :, 1:] - studies[:, :, :1]).transpose(0, 2, 1))
    assert np.mean(p[:, 0] <= 0.05) > least


def test_max_t_needs_no_more_blocks_than_holm() -> None:
    for m in (1, 5, 10):
        for n in (6, 8, 10, 16):
            holm, jointly = (detectable_effect(n, m=m, jointly=how) for how in (False, True))
            assert jointly is not None
            assert holm is None or jointly <= holm


def test_components_by_hand() -> None:
    # two deployments of two slices: 1 3 | 7 9. Within: (2 + 2)/2 = 2. Means 2 and 8: mean square between 2 * 18 = 36,
    # so between = (36 - 2)/2 = 17
    parts = variance_components([[1, 3], [7, 9]])
    assert (parts.within, parts.between) == pytest.approx((2, 17), rel=1e-4)
    assert parts.run_variance(2) == pytest.approx(18, rel=1e-4)


def test_negative_estimates_are_cut() -> None:
    # equal means: all variation is within
    assert variance_components([[1, 3], [3, 1]]).between == 0


def test_equals_the_method_of_moments_for_balanced_data() -> None:
    # one-way analysis of variance (Searle, Casella & McCulloch 1992, section 3.6): the mean square within, and what the
    # mean square between has beyond it, over the slices
    rng = np.random.default_rng(4)
    data = rng.normal(0, 2, (12, 1)) + rng.normal(0, 1, (12, 4))
    for unit in (1.0, 1e-6, 1e9):
        parts = variance_components(list(data * unit))
        within = data.var(axis=1, ddof=1).mean()
        between = data.mean(axis=1).var(ddof=1) - within / 4
        assert parts.within == pytest.approx(within * unit**2, rel=1e-4)
        assert parts.between == pytest.approx(between * unit**2, rel=1e-4)


def test_deployments_without_noise_inside() -> None:
    parts = variance_components([[1, 1], [3, 3], [5, 5]])
    assert (parts.within, parts.between) == (0, 4)


def test_unequal_slices_are_unbiased() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(100):
        sizes = [2, 3, 5, 2, 4, 6]
        found.append(variance_components([rng.normal(0, 1) + rng.normal(0, 0.5, k) for k in sizes]))
    assert np.mean([f.within for f in found]) == pytest.approx(0.25, rel=0.1)
    assert np.mean([f.between for f in found]) == pytest.approx(1.0, rel=0.24)


def test_cheapest_split_by_hand() -> None:
    # sqrt(40/10 * 9/1) = 6
    parts = VarianceComponents(between=1.0, within=9.0)
    assert best_slices(parts, 40, 10) == 6
    assert best_slices(parts, 0, 10) == 1
    assert best_slices(VarianceComponents(0.0, 1.0), 40, 10, most=8) == 8


def test_cheapest_split_is_cheapest() -> None:
    parts = VarianceComponents(between=0.7, within=2.0)
    cost = {k: parts.run_variance(k) * (30 + 5 * k) for k in range(1, 30)}
    assert abs(best_slices(parts, 30, 5) - min(cost, key=lambda k: cost[k])) <= 1
