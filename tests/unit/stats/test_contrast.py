import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from meshtrial.errors import UsageError
from meshtrial.stats import Margin, compare_paired
from meshtrial.stats.contrast import Comparison, compare_unpaired, paired_t_interval, paired_t_p, sign_flip_p
from meshtrial.stats.power import blocks_for_equivalence, detectable_effect, upper_sd
from meshtrial.stats.ranktests import signed_rank_p

# fine values, and coarse ones with many ties and zeros in the ratios
positive = st.one_of(st.floats(0.1, 10).map(lambda x: round(x, 3)), st.integers(95, 105).map(lambda x: x / 100))
treatments = st.integers(2, 12).flatmap(
    lambda n: st.tuples(st.lists(positive, min_size=n, max_size=n), st.lists(positive, min_size=n, max_size=n))
)


def codes(result: Comparison) -> list[str]:
    return [w.code for w in result.warnings]


def noisy(n: int, ratio: float, sd: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return ratio * np.exp(rng.normal(0, sd, n)), np.exp(rng.normal(0, sd, n))


def test_a_doubling_by_hand() -> None:
    # every block doubles exactly: all differences are ln 2, the interval is the point 2
    result = compare_paired([2, 4, 6, 8, 10, 12], [1, 2, 3, 4, 5, 6])
    assert (result.effect.estimate, result.effect.low, result.effect.high) == pytest.approx((2, 2, 2))
    assert result.effect.p == 2 / 64
    assert result.baseline_median == 3.5
    assert result.difference.estimate == pytest.approx(3.5)  # (2 - 1) * 3.5
    assert result.method == "exact signed-rank, Hodges-Lehmann"


def test_is_scipy_on_the_log_ratios() -> None:
    t, b = noisy(12, 1.1, 0.1)
    d = np.log(t / b)
    result = compare_paired(t, b, margin=Margin(0.2))
    assert result.effect.p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    assert result.p_paired_t == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert result.effect.sd == pytest.approx(d.std(ddof=1))
    half = math.log(1.2)
    above = stats.wilcoxon(d + half, alternative="greater", method="exact").pvalue
    below = stats.wilcoxon(d - half, alternative="less", method="exact").pvalue
    assert result.against.p_equivalence == pytest.approx(max(above, below))
    i, j = np.triu_indices(12)
    assert result.effect.estimate == pytest.approx(math.exp(np.median((d[i] + d[j]) / 2)))


@given(treatments)
def test_interval_and_p_never_disagree(pair: tuple[list[float], list[float]]) -> None:
    result = compare_paired(*pair)
    if not result.provisional:
        assert result.excludes_no_effect == (result.effect.p <= result.alpha)
        assert result.effect.confidence >= 0.95 - 1e-12
        # the differences in milliseconds agree
        assert (result.difference.low > 0) == (result.effect.low > 1)


@given(treatments)
def test_antisymmetric(pair: tuple[list[float], list[float]]) -> None:
    t, b = pair
    forth, back = compare_paired(t, b, margin=Margin(0.1)), compare_paired(b, t, margin=Margin(0.1))
    assert forth.effect.estimate * back.effect.estimate == pytest.approx(1)
    assert forth.effect.low * back.effect.high == pytest.approx(1)
    assert forth.effect.p == back.effect.p
    assert forth.against.p_equivalence == back.against.p_equivalence
    assert forth.p_sign_flip == back.p_sign_flip
    assert forth.against.needed_difference == back.against.needed_difference


@given(treatments, st.sampled_from([1e-3, 1e3, 1e6, 60.0]))
def test_unit_does_not_matter(pair: tuple[list[float], list[float]], unit: float) -> None:
    t, b = (np.array(v) for v in pair)
    a, s = compare_paired(t, b, margin=Margin(0.1)), compare_paired(t * unit, b * unit, margin=Margin(0.1))
    assert a.effect.p == s.effect.p
    assert a.against.p_equivalence == s.against.p_equivalence
    assert a.against.needed_equivalence == s.against.needed_equivalence
    assert s.effect.estimate == pytest.approx(a.effect.estimate)
    assert (s.effect.low, s.effect.high) == pytest.approx((a.effect.low, a.effect.high))
    assert s.difference.estimate == pytest.approx(a.difference.estimate * unit)


def test_below_the_floor_is_provisional() -> None:
    t, b = noisy(7, 1.3, 0.01)
    result = compare_paired(t, b, m_family=5)  # 7 blocks reach 1/64 = .0156, five contrasts need .01
    assert result.provisional
    assert result.floor_n == 8
    assert "provisional" in result.method
    assert result.effect.confidence == 0.95
    assert result.mde is None
    assert codes(result) == ["below-floor"]
    interval = stats.ttest_1samp(np.log(t / b), 0).confidence_interval(0.95)
    assert (result.effect.low, result.effect.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert not compare_paired(t, b, m_family=1).provisional


def test_difference_scale_for_a_baseline_of_zero() -> None:
    cores = [0.31, 0.29, 0.33, 0.30, 0.35, 0.28]
    result = compare_paired(cores, [0.0] * 6, scale="difference", margin=Margin(0.1, 0.02))
    # the 11th of 21 Walsh averages: sums .56 .57 .58 .58 .59 .59 .60 .60 .61 .61 .62
    assert result.effect.estimate == pytest.approx(0.31)
    assert (result.effect.low, result.effect.high) == (0.28, 0.35)
    assert result.against.high == 0.02
    assert result.difference.estimate == result.effect.estimate
    assert result.effect.sd == pytest.approx(np.std(cores, ddof=1))
    assert result.excludes_no_effect


def test_blocks_needed_and_smallest_effect_are_those_of_the_plan() -> None:
    t, b = noisy(10, 1.0, 0.1, seed=2)
    result = compare_paired(t, b, margin=Margin(0.1))
    sd = upper_sd(result.effect.sd, 10)
    assert result.mde == pytest.approx(math.expm1((detectable_effect(10) or 0.0) * sd), rel=1e-12)
    assert result.against.needed_equivalence == blocks_for_equivalence(sd, math.log(1.1))
    assert compare_paired(t, b).against is None
    five = compare_paired(t, b, margin=Margin(0.1), m_family=5)
    assert five.against.needed_equivalence == blocks_for_equivalence(sd, math.log(1.1), m=5)
    assert (five.against.needed_difference or 0) > (result.against.needed_difference or math.inf)


def test_where_the_floor_decides_the_margin_is_tested_in_the_responses_unit() -> None:
    b = np.array([1.0, 1.2, 0.9, 1.1, 0.8, 1.3, 1.0, 0.7, 1.4, 1.05]) * 1e-4
    t = b + np.array([3, -4, 2, -1, 4, -3, 1, 2, -2, -5]) * 1e-6
    margin = Margin(0.05, floor=2e-5)  # a fifth of the baseline, four times the relative part
    result = compare_paired(t, b, margin=margin)
    assert (result.against.relative, result.against.floor) == (0.05, 2e-5)
    assert result.margin == pytest.approx(2e-5 / 1.025e-4)
    assert result.against.p_equivalence == max(
        signed_rank_p(t - b + 2e-5, "greater"), signed_rank_p(t - b - 2e-5, "less")
    )
    relative = compare_paired(t, b, margin=Margin(0.05, floor=1e-7))
    assert relative.against.floor is None
    # Another baseline in the same study does not change a verdict by the floor; a ratio would change it.
    shifted = compare_paired(t + 1e-4, b + 1e-4, margin=margin)
    assert shifted.against.p_equivalence == result.against.p_equivalence


def test_both_effects_have_their_own_test_and_the_scale_says_which_one_judges() -> None:
    t, b = noisy(10, 1.3, 0.05)
    of_ratio, of_difference = (compare_paired(t, b, scale=scale) for scale in ("ratio", "difference"))
    assert (of_ratio.ratio, of_ratio.difference) == (of_difference.ratio, of_difference.difference)
    assert of_ratio.effect == of_ratio.ratio
    assert of_difference.effect == of_ratio.difference
    assert of_difference.effect.p == pytest.approx(stats.wilcoxon(t - b, method="exact").pvalue)
    assert of_difference.effect.sd == pytest.approx(np.std(t - b, ddof=1))


def test_a_proxy_that_adds_the_same_to_a_baseline_that_moves_is_sharp_by_difference_alone() -> None:
    rng = np.random.default_rng(4)
    b = rng.uniform(0.8e-4, 1.3e-4, 10)
    result = compare_paired(b + 4e-4 + rng.normal(0, 4e-6, 10), b, scale="difference")
    width = (result.difference.high - result.difference.low) / result.difference.estimate
    assert width < 0.03
    assert (result.ratio.high - result.ratio.low) / result.ratio.estimate > 5 * width


@pytest.mark.parametrize("scale", ["ratio", "difference"])
@pytest.mark.parametrize(("floor", "on_differences"), [(2e-5, True), (1e-7, False)])
def test_the_part_of_the_margin_that_decides_is_tested_on_its_own_scale(scale, floor, on_differences) -> None:
    b = np.linspace(0.8e-4, 1.2e-4, 10)
    t = b * 1.01 + 2e-6
    result = compare_paired(t, b, margin=Margin(0.05, floor=floor), scale=scale)
    d, half = (t - b, floor) if on_differences else (np.log(t / b), math.log1p(0.05))
    assert result.against.p_equivalence == pytest.approx(
        max(signed_rank_p(d + half, "greater", 1e-12), signed_rank_p(d - half, "less", 1e-12))
    )
    typical = float(np.median(b))
    bound = floor if on_differences else 0.05 * typical
    assert result.margin == pytest.approx(bound if scale == "difference" else bound / typical)


def test_material_asks_whether_the_effect_is_larger_than_the_margin() -> None:
    t, b = noisy(10, 1.3, 0.02, seed=3)
    result = compare_paired(t, b, margin=Margin(0.1))
    assert result.against.p_material == signed_rank_p(np.log(t / b) - math.log(1.1), "greater")
    assert compare_paired(b, t, margin=Margin(0.1)).against.p_material == result.against.p_material
    assert compare_paired(t, b, margin=Margin(0.5)).against.p_material > 0.5
    assert compare_paired(t, b).against is None


def test_one_wild_block_is_named_by_the_cross_checks() -> None:
    b = np.ones(10)
    t = 1 + np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 40.0])
    result = compare_paired(t, b)
    assert result.effect.p == 2 / 1024
    assert result.p_paired_t > 0.05
    assert codes(result) == ["tests-disagree"]


def test_a_tie_that_rounding_hides_is_still_a_tie() -> None:
    # ln(0.84/0.87) and ln(0.87/0.84) are opposite but for the last bit; their average must be zero, not 1e-17
    rows = [(0.87, 0.84), (0.84, 0.87), (1, 1)]
    rows += [(1.01, 1), (1.05, 1), (1.06, 1), (1.1, 1), (1.17, 1), (1.19, 1), (0.97, 1)]
    t, b = np.array(rows).T
    for alpha in (0.01, 0.03, 0.05, 0.1, 0.2):
        result = compare_paired(t, b, alpha=alpha)
        assert result.provisional or result.excludes_no_effect == (result.effect.p <= alpha)


@pytest.mark.parametrize("scale", ["ratio", "difference"])
def test_a_run_that_ranks_worst_is_held_by_the_exact_test_and_opens_the_end_that_needs_it(scale) -> None:
    t, b = noisy(10, 1.3, 0.05)
    whole = compare_paired(t, b, scale=scale, margin=Margin(0.05))
    t[4] = math.inf
    one = compare_paired(t, b, scale=scale, margin=Margin(0.05))
    # Nine blocks and an infinite one on the same side have the p-value of ten blocks on one side.
    assert one.effect.p == whole.effect.p == 2 / 2**10
    assert math.isfinite(one.effect.estimate)
    assert math.isfinite(one.effect.low)
    assert one.against.p_material == whole.against.p_material
    assert one.effect.sd == pytest.approx(compare_paired(np.delete(t, 4), np.delete(b, 4), scale=scale).effect.sd)
    t[5:7] = math.inf
    three = compare_paired(t, b, scale=scale)
    assert (math.isfinite(three.effect.low), three.effect.high) == (True, math.inf)
    # A failing baseline is the mirror image.
    assert compare_paired(b, t, scale=scale).effect.low == (0 if scale == "ratio" else -math.inf)


def test_a_block_in_which_both_rank_worst_decides_nothing() -> None:
    t, b = noisy(10, 1.3, 0.05)
    nine = compare_paired(t[:9], b[:9], margin=Margin(0.05))
    t[9] = b[9] = math.inf
    ten = compare_paired(t, b, margin=Margin(0.05))
    assert ten.effect == nine.effect
    assert ten.against.p_equivalence == nine.against.p_equivalence
    assert "zeros" not in codes(ten)


@given(st.integers(0, 10**6), st.floats(-5, 5))
def test_a_shift_of_the_treatment_shifts_its_interval_where_runs_rank_worst(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    t, b = np.where(rng.random((2, 9)) < 0.2, math.inf, rng.normal(10, 1, (2, 9)))
    t[0], b[0] = 10, 9  # so that neither fails in every block
    here, there = (compare_paired(one, b, alpha=0.1, scale="difference").difference for one in (t, t + shift))
    # At the null value the edge convention may extend or cut an interval.
    if 0 not in (here.low, here.high, there.low, there.high):
        assert (there.estimate, there.low, there.high) == pytest.approx(
            (here.estimate + shift, here.low + shift, here.high + shift)
        )


def test_so_many_worst_ranks_that_no_size_is_left_have_no_estimate() -> None:
    t, b = noisy(10, 1.0, 0.05)
    t[:5] = math.inf
    found = compare_paired(t, b, scale="difference")
    assert (found.effect.estimate, found.effect.high) == (math.inf, math.inf)
    assert math.isfinite(found.effect.sd)


def test_runs_that_rank_worst_leave_no_size_of_a_study_to_promise() -> None:
    t, b = noisy(12, 1.0, 0.02)
    assert compare_paired(t, b, margin=Margin(0.05)).against.needed_difference == 7
    # With two failures each, the usual formula would promise 80 % power at 13 blocks; simulations give 54 to 67 %.
    t[3], b[7] = math.inf, math.inf
    failing = compare_paired(t, b, margin=Margin(0.05))
    assert (failing.against.needed_difference, failing.against.needed_equivalence, failing.mde) == (None, None, None)


def test_below_the_floor_a_worst_rank_opens_its_end() -> None:
    t, b = noisy(4, 1.3, 0.05)
    t[0] = math.inf
    found = compare_paired(t, b)
    assert found.provisional
    assert 0 < found.effect.low < math.inf
    assert found.effect.high == math.inf


@pytest.mark.parametrize(
    ("t", "b", "options"),
    [
        ([1, 2], [1, 2, 3], {}),
        ([1], [1], {}),
        ([1, 2], [0, 1], {}),
        ([1, -2], [1, 1], {}),
        ([1, math.nan], [1, 1], {}),
        ([1, 2], [0, 0], {"scale": "difference", "margin": Margin(0.1)}),
    ],
)
def test_refuses(t: list[float], b: list[float], options: dict[str, object]) -> None:
    with refused(UsageError):
        compare_paired(t, b, **options)  # type: ignore[arg-type]


positive_unpaired = st.lists(st.floats(0.1, 10).map(lambda x: round(x, 2)), min_size=2, max_size=6)


def test_six_against_six_completely_apart() -> None:
    result = compare_unpaired([20, 21, 22, 23, 24, 25], [10, 10.5, 11, 11.5, 12, 12.5])
    assert result.effect.p == result.smallest_p == 2 / 924
    # 36 ratios; U <= 5 rejects at .05 (sizes 2/924 .. 26/924 = .028), U = 6 has 36/924 = .039, U = 7 has 50/924 = .054
    assert result.effect.confidence == pytest.approx(1 - 38 / 924)
    assert result.effect.low > 1
    assert codes(result) == ["order-unknown"]
    known = compare_unpaired([20, 21, 22, 23, 24, 25], [10, 10.5, 11, 11.5, 12, 12.5], order_known=True)
    assert replace(known, warnings=result.warnings) == result
    assert codes(known) == []


def test_the_table_of_mann_and_whitney() -> None:
    # number of the 924 splits with U <= 5 is 19, twice that over 924 is .0411 (Mann & Whitney 1947, table I)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=6), rng.normal(size=6)
    result = compare_unpaired(np.exp(x), np.exp(y))
    assert result.effect.confidence == pytest.approx(1 - 2 * 19 / 924)
    assert result.effect.p == pytest.approx(stats.mannwhitneyu(x, y, method="exact").pvalue)


def test_three_against_three_cannot_say() -> None:
    result = compare_unpaired([2, 3, 4], [0.2, 0.3, 0.41])
    assert result.effect.p == result.smallest_p == 0.1
    assert result.provisional
    assert codes(result) == ["order-unknown", "below-floor"]
    assert "0.1" in result.warnings[1].message
    reference = stats.ttest_ind(np.log([2, 3, 4]), np.log([0.2, 0.3, 0.41]), equal_var=False).confidence_interval()
    assert (result.effect.low, result.effect.high) == pytest.approx((np.exp(reference.low), np.exp(reference.high)))


@given(positive_unpaired, positive_unpaired)
def test_interval_and_p_never_disagree_of_unpaired(t: list[float], b: list[float]) -> None:
    result = compare_unpaired(t, b, alpha=0.1)
    if not result.provisional:
        assert result.excludes_no_effect == (result.effect.p <= 0.1)


@given(positive_unpaired, positive_unpaired)
def test_antisymmetric_of_unpaired(t: list[float], b: list[float]) -> None:
    forth, back = compare_unpaired(t, b, margin=Margin(0.3)), compare_unpaired(b, t, margin=Margin(0.3))
    assert forth.effect.estimate * back.effect.estimate == pytest.approx(1)
    assert forth.effect.p == pytest.approx(back.effect.p)
    assert forth.against.p_equivalence == pytest.approx(back.against.p_equivalence)


def test_noise_and_runs_needed() -> None:
    # both treatments have the log variance of 0 1 2 3 4 5, 3.5, times .01^2; the difference of two runs has twice that
    x = np.exp(np.arange(6) / 100)
    result = compare_unpaired(x, x[::-1] * 1.001, margin=Margin(0.05))
    assert result.effect.sd == pytest.approx(np.sqrt(2 * 3.5) / 100)
    assert result.against.needed_difference is not None
    # two-sample t-test at the same power, over .955; the noise of twelve runs has ten degrees of freedom
    sd = upper_sd(np.sqrt(3.5) / 100, 11)
    expected = TTestIndPower().solve_power(np.log(1.05) / sd, alpha=0.05, power=0.8) / 0.955
    assert result.against.needed_difference == pytest.approx(expected, abs=3)


def test_equivalence_of_tight_treatments() -> None:
    t, b = 1 + np.arange(8) / 1000, 1.0005 + np.arange(8) / 1000
    result = compare_unpaired(t, b, margin=Margin(0.05))
    assert result.against.p_equivalence is not None
    assert result.against.p_equivalence <= 0.001
    assert result.effect.p > 0.05


@pytest.mark.parametrize(("t", "b"), [([1], [1, 2]), ([0, 1], [1, 2])])
def test_refuses_of_unpaired(t: list[float], b: list[float]) -> None:
    with pytest.raises(UsageError):
        compare_unpaired(t, b)


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
