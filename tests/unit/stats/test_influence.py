import numpy as np

from meshtrial.stats import Margin, Warning, compare_paired
from meshtrial.stats.influence import influence
from meshtrial.stats.verdict import decide


def warned(d: np.ndarray, factor: float = 1.0, m: int = 1) -> tuple[Warning, ...]:
    t, b = np.exp(d), np.ones(len(d))
    c = compare_paired(t, b, margin=Margin(0.05), m_family=m)
    p, p_eq = min(1.0, c.effect.p * factor), min(1.0, (c.against.p_equivalence if c.against else 1.0) * factor)
    return influence(t, b, c, decide(c, p_adjusted=p, p_equivalence_adjusted=p_eq), p, p_eq, list(range(1, len(d) + 1)))


def test_a_difference_shown_by_every_block_hangs_on_none() -> None:
    assert warned(np.linspace(0.1, 0.3, 10)) == ()


def test_a_difference_that_hangs_on_some_blocks() -> None:
    # n = 10, T- = 8: p = 2 * 25/1024 = .049 is shown; without block 7 T- = 1,
    # without block 1 T- = 6 of 9: p = 2 * 14/512 = .055, without any other T- >= 7: p >= .07
    d = np.array([-1, 2, 3, 4, 5, 6, -7, 8, 9, 10]) / 10
    found = warned(d)
    assert [w.code for w in found] == ["influential-block"]
    assert "not be shown" in found[0].message
    assert "any one of 9 blocks" in found[0].message


def test_one_block_that_hides_a_difference_is_named() -> None:
    # nine positive, and one block far negative: T- = 10, p = 2 * 43/1024 = .084; without it 2/512
    d = np.array([0.10, 0.11, 0.12, 0.13, -0.9, 0.14, 0.15, 0.16, 0.17, 0.18])
    found = warned(d)
    assert len(found) == 1
    assert "without block 5 the verdict would be conclusive" in found[0].message


def test_a_study_at_its_floor_is_not_fragile_by_that_alone() -> None:
    # 8 blocks, 5 contrasts: 7 blocks cannot reach .01 at all
    assert warned(np.linspace(0.1, 0.3, 8), factor=5, m=5) == ()


def test_nothing_is_said_below_the_floor() -> None:
    assert warned(np.array([0.1, 0.2, -0.1])) == ()
