import numpy as np
import pytest

from meshtrial.stats.modes import modes, separation


def test_separation_by_hand() -> None:
    # six at 0 +- 1, six at 10 +- 1: sd 1 each, D = sqrt(2) * 10 / sqrt(1 + 1) = 10
    x = [-1, 1, -1, 1, -1, 1, 9, 11, 9, 11, 9, 11]
    assert separation(x) == (pytest.approx(10), 5)


def test_two_kinds_of_runs_are_seen() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.01, 60) + 0.2 * (rng.random(60) < 0.4)
    found = modes(x)
    assert [w.code for w in found] == ["modes"]
    assert "two kinds" in found[0].message


def test_a_few_shocks_are_no_mode() -> None:
    x = np.concatenate((np.random.default_rng(1).normal(0, 0.01, 57), [0.5, 0.6, 0.7]))
    assert modes(x) == ()


@pytest.mark.parametrize("draw", ["normal", "t3", "uniform", "exponential"])
@pytest.mark.parametrize("n", [12, 30, 60, 200])
def test_one_mode_is_rarely_taken_for_two(draw: str, n: int) -> None:
    rng = np.random.default_rng(n)
    shapes = {"normal": rng.normal, "t3": lambda size: rng.standard_t(3, size), "uniform": rng.random}
    sample = shapes.get(draw, lambda size: rng.exponential(1.0, size))
    false = sum(bool(modes(row)) for row in np.asarray(sample(size=(300, n))))
    assert false <= 9  # 1 % of 300, and three standard errors


def test_too_few_or_all_equal() -> None:
    assert separation(np.arange(11.0))[0] == 0
    assert modes(np.ones(20)) == ()
