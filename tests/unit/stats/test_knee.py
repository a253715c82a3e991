import numpy as np
import pytest

from meshtrial.errors import UsageError
from meshtrial.stats.knee import find_knee

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
    found = [find_knee(RATES, curve(0.0, seed=seed), rng, draws=50) for seed in range(60)]
    assert sum(k.found for k in found) <= 8  # 5 % of 60, and three standard errors
    quiet = next(k for k in found if not k.found)
    assert [w.code for w in quiet.warnings] == ["no-knee"]


def test_the_order_of_the_rungs_does_not_matter() -> None:
    y = curve(0.002)
    back = find_knee(RATES[::-1], y[:, ::-1], np.random.default_rng(3))
    assert back == find_knee(RATES, y, np.random.default_rng(3))


def test_few_blocks_are_said() -> None:
    knee = find_knee(RATES, curve(0.002, blocks=4), np.random.default_rng(4))
    assert not knee.found
    assert [w.code for w in knee.warnings] == ["below-floor"]


def test_refuses_short_ladders() -> None:
    with pytest.raises(UsageError, match="5 different sizes"):
        find_knee([1, 2, 3, 4], np.ones((6, 4)), np.random.default_rng(0))
    with pytest.raises(UsageError, match="once"):
        find_knee([1, 2, 3, 4, 5, 5], np.ones((6, 6)), np.random.default_rng(0))
