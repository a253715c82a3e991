import numpy as np
import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.stats.growth import (
    bend_p,
    block_slopes,
    closest_curve,
    compare_exponents,
    find_knee,
    ladder,
    marginal_cost,
    marginal_costs,
    power_law,
)

SIZES = np.array([30.0, 60, 120, 300, 600])


def grown(exponent: float, blocks: int = 8, sd: float = 0.02, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.01 * SIZES**exponent * np.exp(rng.normal(0, 0.2, (blocks, 1)) + rng.normal(0, sd, (blocks, len(SIZES))))


def test_block_slope_by_hand() -> None:
    # 1 2 3 against 2 4 6 and against 5 5 8: slopes 2 and 1.5
    assert block_slopes(np.array([1.0, 2, 3]), np.array([[2.0, 4, 6], [5, 5, 8]])).tolist() == [2, 1.5]


def test_what_a_slope_that_is_not_shown_would_take_is_what_the_test_of_so_many_blocks_finds() -> None:
    rng = np.random.default_rng(7)

    def slopes(cost: float, blocks: int) -> np.ndarray:
        return np.array([[0.0, cost + noise] for noise in rng.normal(0, 1, blocks)])

    asked = marginal_cost([0, 1], [[0, 1.4], [0, -1.2], [0, 0.9], [0, -0.3], [0, 0.1], [0, 1.1], [0, -0.6], [0, 0.5]])
    assert not asked.significant
    # The power at the promised slope. If it were promised from the estimated noise, it would be 0.72 to 0.76.
    found = []
    for _ in range(60):
        promised = marginal_cost([0, 1], slopes(0.0, asked.n)).smallest_found(0.05)
        if promised is None:  # 1 in 100 studies seems dependent by chance
            continue
        found += [marginal_cost([0, 1], slopes(promised, asked.n)).p <= 0.05 for _ in range(20)]
    assert 0.8 < np.mean(found) < 0.93


def test_slopes_that_resemble_their_last_block_are_dependent_unless_they_are_large() -> None:
    wander = np.cumsum([0.3, 0.4, 0.2, 0.3, -0.2, -0.4, -0.3, -0.2, -0.4, 0.1])
    for level, dependent in ((0.0, True), (1.0, True), (5.0, False)):
        cost = marginal_cost([0, 1], [[0.0, level + value] for value in wander])
        assert cost.resembles_last_block
        assert cost.dependent is dependent
        assert cost.smallest_found(0.05) is None
    grown_alike = np.exp(np.outer(1 + wander / 10, np.log(SIZES)))
    assert power_law(SIZES, grown_alike).verdict == "dependent"
    assert not marginal_cost([0, 1], [[0.0, value] for value in wander[[4, 0, 8, 2, 6, 1, 9, 3, 7, 5]]]).dependent


def test_too_few_blocks_find_no_slope() -> None:
    few = marginal_cost([0, 1], [[0, 1], [0, -1], [0, 0.5]])
    assert few.smallest_found(0.05) is None


def test_a_clean_power_law() -> None:
    result = power_law([1, 10, 100], [[2, 2 * 10**0.5, 20]] * 6)
    assert result.exponent.estimate == pytest.approx(0.5)
    assert (result.exponent.low, result.exponent.high) == pytest.approx((0.5, 0.5))
    assert result.exponent.p == 2 / 64
    assert result.verdict == "sublinear"
    assert 4**result.exponent.estimate == pytest.approx(2)


def test_the_closer_curve_is_taken_and_goes_on_as_it_should() -> None:
    line = closest_curve(SIZES, [5 + 2 * SIZES, 6 + 2 * SIZES])
    assert line.form == "straight line"
    assert line.at(1200) == pytest.approx([2405, 2406])
    law = closest_curve(SIZES, [3 * SIZES**1.7, 4 * SIZES**-0.9])
    assert law.form == "power law"
    assert law.at(1200) == pytest.approx([3 * 1200**1.7, 4 * 1200**-0.9])


def test_where_no_power_law_can_be_the_line_is_straight() -> None:
    assert closest_curve([1, 2, 4], [[0, 1, 9], [1, 2, 9]]).form == "straight line"
    assert closest_curve([1, 2], [[1, 4], [1, 4]]).form == "straight line"
    with refused(UsageError):
        closest_curve([1, 2, 4], [[1, 2, 4]])


def test_verdicts() -> None:
    assert power_law(SIZES, grown(1.2)).verdict == "superlinear"
    assert power_law(SIZES, grown(0.8)).verdict == "sublinear"
    assert power_law(SIZES, grown(1.0), margin=0.1).verdict == "about linear"
    assert power_law(SIZES, grown(1.0, sd=0.3, seed=3), margin=0.1).verdict == "inconclusive"
    # equality to 1 cannot be shown without a margin
    assert power_law(SIZES, grown(1.0, seed=1)).verdict == "inconclusive"


def test_interval_and_p_never_disagree() -> None:
    for seed in range(30):
        e = power_law(SIZES, grown(1.01, seed=seed)).exponent
        assert (e.low > 1 or e.high < 1) == (e.p <= 0.05)


def test_few_blocks_are_provisional() -> None:
    result = power_law(SIZES, grown(1.3, blocks=4))
    assert result.verdict == "inconclusive"
    assert "provisional" in result.exponent.method
    assert [w.code for w in result.exponent.warnings] == ["below-floor"]


def test_the_block_is_the_unit() -> None:
    # effects common to all rungs of a block (its machine, its hour) do not change the slope's interval
    y = grown(1.1)
    shifted = y * np.exp(np.random.default_rng(5).normal(0, 1, (8, 1)))
    assert power_law(SIZES, shifted).exponent.estimate == pytest.approx(power_law(SIZES, y).exponent.estimate)


def test_a_bend_is_warned_of() -> None:
    y = grown(0.8) + 1e-6 * SIZES**2.5
    codes = [w.code for w in power_law(SIZES, y).exponent.warnings]
    assert codes == ["not-a-power-law"]
    assert "steeper" in power_law(SIZES, y).exponent.warnings[0].message


def test_blocks_too_few_to_see_a_bend_are_said() -> None:
    six, eight = (power_law(SIZES, grown(1.0, blocks=n)).exponent.warnings for n in (6, 8))
    assert [w.code for w in six] == ["bend-unseen"]
    assert eight == ()


def test_bend_by_hand() -> None:
    x = np.array([1.0, 2, 3])
    assert bend_p(x, np.array([[1.0, 2, 4 + i] for i in range(6)])) == 2 / 64  # all curve upwards
    assert bend_p(x, np.array([[1.0, 2, 3]] * 6)) == 1.0


def test_marginal_cost_by_hand() -> None:
    # 2 mcores an endpoint, and 51 mcores that are there without any
    y = [[0.051 + 0.002 * x for x in SIZES]] * 6
    assert marginal_cost(SIZES, y).estimate == pytest.approx(0.002)
    assert marginal_cost(SIZES, y).p == 2 / 64


def test_two_costs_told_apart() -> None:
    endpoints, krps = [30, 30, 600, 600, 300], [1, 20, 1, 20, 5]
    y = [[1 + 0.01 * e + 0.5 * k for e, k in zip(endpoints, krps, strict=True)]] * 6
    found = marginal_costs({"endpoint": endpoints, "1000 rps": krps}, y)
    assert found["endpoint"].estimate == pytest.approx(0.01)
    assert found["1000 rps"].estimate == pytest.approx(0.5)


def test_costs_that_rise_in_step_are_refused() -> None:
    with refused(UsageError):
        marginal_costs({"endpoint": SIZES, "1000 rps": SIZES / 30}, grown(1.0))


def test_exponents_compared_by_block() -> None:
    result = compare_exponents(SIZES, grown(1.2, seed=1), grown(1.0, seed=2))
    assert result.estimate == pytest.approx(0.2, abs=0.02)
    assert result.p == 2 / 256
    same = compare_exponents(SIZES, grown(1.0, seed=1), grown(1.0, seed=2))
    assert same.p > 0.05
    # swapping the treatments turns the sign
    assert compare_exponents(SIZES, grown(1.0, seed=2), grown(1.2, seed=1)).estimate == pytest.approx(-result.estimate)


@pytest.mark.parametrize(
    ("x", "y"),
    [([1, 1], [[1, 2], [1, 2]]), ([1, 2], [[1, 2]])],
)
def test_refuses_what_is_no_ladder(x: list[float], y: object) -> None:
    with pytest.raises(UsageError):
        ladder(x, y)  # type: ignore[arg-type]


def test_an_exponent_needs_positive_values() -> None:
    with refused(UsageError):
        power_law([1, 2, 3], [[0, 1, 2]] * 6)


RATES = np.array([100.0, 200, 400, 600, 800, 1000, 1200, 1400])


def curve(bend: float, blocks: int = 10, sd: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    line = 1 + 0.001 * RATES + bend * np.maximum(RATES - 700, 0)
    return line + rng.normal(0, sd, (blocks, len(RATES))) + rng.normal(0, 0.1, (blocks, 1))


def test_an_exact_bend_is_found() -> None:
    # slope 1 to x = 4, then 3
    x = np.arange(8.0)
    y = np.where(x < 4, x, 4 + 3 * (x - 4))
    knee = find_knee(x, np.tile(y, (6, 1)), np.random.default_rng(0))
    assert knee.at == pytest.approx(4, abs=0.03)  # the grid's step is 5/199
    assert knee.before == pytest.approx(1, abs=0.03)
    assert knee.after == pytest.approx(3, abs=0.03)
    assert knee.found
    assert knee.p == 2 / 64


def test_a_noisy_bend_lies_in_its_interval() -> None:
    knee = find_knee(RATES, curve(0.002), np.random.default_rng(1))
    assert knee.found
    assert knee.low <= 700 <= knee.high
    assert knee.high - knee.low < 400


def test_a_straight_line_has_no_knee() -> None:
    rng = np.random.default_rng(2)
    found = [find_knee(RATES, curve(0.0, seed=seed), rng, draws=50) for seed in range(30)]
    assert sum(k.found for k in found) <= 5  # 5 % of 30, and three standard errors
    quiet = next(k for k in found if not k.found)
    assert [w.code for w in quiet.warnings] == ["no-knee"]


@pytest.mark.parametrize(
    "smooth",
    [lambda x: x**1.5, lambda x: x / (1 + x / 800), lambda x: 1 / (1 - x / 2000), lambda x: x + x**2 / 2000],
    ids=["power law", "levelling off", "queue", "quadratic"],
)
def test_smooth_growth_that_bends_has_no_knee(smooth) -> None:
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = smooth(RATES) * np.exp(rng.normal(0, 0.1, (8, 1)) + rng.normal(0, 0.02, (8, len(RATES))))
        found.append(find_knee(RATES, y, rng, draws=20))
    assert all(knee.p <= 0.05 for knee in found)
    assert sum(knee.found for knee in found) <= 4  # 5 % of 20, and three standard errors
    assert found[0].warnings[0].code == "no-knee"


def test_the_order_of_the_rungs_does_not_matter() -> None:
    y = curve(0.002)
    back = find_knee(RATES[::-1], y[:, ::-1], np.random.default_rng(3))
    assert back == find_knee(RATES, y, np.random.default_rng(3))


def test_few_blocks_are_said() -> None:
    knee = find_knee(RATES, curve(0.002, blocks=4), np.random.default_rng(4))
    assert not knee.found
    assert [w.code for w in knee.warnings] == ["below-floor"]


def test_refuses_short_ladders() -> None:
    with refused(UsageError):
        find_knee([1, 2, 3, 4], np.ones((6, 4)), np.random.default_rng(0))
