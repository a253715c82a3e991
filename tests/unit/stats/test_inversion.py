"""The edge convention at the null, on data with ties and zeros where the p-value jumps there."""

import numpy as np
import pytest

from meshtrial.stats.hodges_lehmann import hodges_lehmann
from meshtrial.stats.inversion import settle
from meshtrial.stats.signedrank import signed_rank_p


def test_extended_to_a_null_that_is_not_rejected() -> None:
    # dropping the zero makes p jump up at 0 alone: a little to the right of it every shift is rejected
    d = np.array([1.0, 0, 2, 6, -4, 5, 3, 3, 2])
    assert signed_rank_p(d) > 0.1 >= signed_rank_p(d - 0.25)
    result = hodges_lehmann(d, 0.1)
    assert (result.low, result.low_open, result.high) == (0, False, 4)
    assert not result.excludes(0)


def test_cut_at_a_null_that_is_rejected() -> None:
    # here it makes p jump down: shifts on both sides of 0 are accepted
    d = np.array([4.0, -1, -3, 0, 5, 7, -3, 7])
    assert signed_rank_p(d) <= 0.2 < min(signed_rank_p(d - 0.25), signed_rank_p(d + 0.25))
    result = hodges_lehmann(d, 0.2)
    assert (result.low, result.low_open, result.high) == (0, True, 4.5)
    assert result.excludes(0)
    assert not result.excludes(0.25)
    # and mirrored
    mirrored = hodges_lehmann(-d, 0.2)
    assert (mirrored.low, mirrored.high, mirrored.high_open) == (-4.5, 0, True)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_agreement_on_very_coarse_data(alpha: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        result = hodges_lehmann(rng.integers(-4, 8, rng.integers(4, 12)), alpha)
        assert result.excludes(0) == (result.p <= alpha)
        assert result.low <= result.high


def test_an_end_within_rounding_of_the_null_lies_on_it() -> None:
    result = settle(0.5, 1e-17, 1.0, 0.95, p=0.2, n=8, alpha=0.05, null=0.0, atol=1e-12)
    assert result.low == 0
    assert not result.excludes(0)
