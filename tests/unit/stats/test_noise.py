import numpy as np
import pytest

from meshtrial.errors import UsageError
from meshtrial.stats import VarianceComponents, best_slices, compare_paired, variance_components
from meshtrial.stats.noise import effect_size, noise_floor


def test_floor_is_the_apparent_effect_in_either_direction() -> None:
    none = np.ones(6)
    aa = np.array([1.01, 1.02, 1.03, 1.04, 1.05, 1.06])
    up, down = noise_floor(compare_paired(aa, none)), noise_floor(compare_paired(none, aa))
    assert up.floor == pytest.approx(0.035, abs=1e-3)
    assert down.floor == pytest.approx(up.floor)
    assert up.upper == pytest.approx(0.06)


@pytest.mark.parametrize(("blocks", "shaken"), [(5, False), (6, True), (7, True), (10, True)])
def test_a_twin_that_is_apart_in_every_block_is_seen_by_as_few_as_can_show_it(
    blocks: int, noise_exceeds_margin: bool
) -> None:
    # Up to twice the margin, and down to nearly nothing: the interval is not wholly beyond it.
    aa = np.linspace(1.001, 1.1, blocks)
    noise = noise_floor(compare_paired(aa, np.ones(blocks)))
    assert noise.low < 0.05 < noise.upper
    assert noise.noise_exceeds_margin(0.05) is noise_exceeds_margin


def test_effect_size() -> None:
    assert effect_size(1.25, "ratio") == pytest.approx(0.25)
    assert effect_size(0.8, "ratio") == pytest.approx(0.25)
    assert effect_size(-3.0, "difference") == 3.0


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


@pytest.mark.parametrize("data", [[[1, 2]], [[1], [2]], [[1, 2], []], [[1, 2], [np.nan]]])
def test_refuses_what_cannot_tell_the_levels_apart(data: list[list[float]]) -> None:
    with pytest.raises(UsageError):
        variance_components(data)  # type: ignore[arg-type]
