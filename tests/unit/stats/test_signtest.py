from __future__ import annotations

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.stats.signtest import MedianRanks, median_ranks


@pytest.mark.parametrize(
    ("n", "rank", "confidence"),
    [
        (1, 1, 0.0),  # one value says nothing of a median
        (5, 1, 1 - 2 / 32),  # the whole range, and not 95 % yet
        (6, 1, 1 - 2 / 64),
        (8, 1, 1 - 2 / 256),  # the second values would reach 1 - 18/256, 93 %
        (9, 2, 1 - 2 * 10 / 512),
        (10, 2, 1 - 2 * 11 / 1024),
    ],
)
def test_ranks_and_confidence_by_hand(n, rank, confidence):
    assert median_ranks(n, 0.05) == MedianRanks(rank, pytest.approx(confidence))


def test_no_values_are_refused():
    with refused(UsageError, "an interval of a median needs at least one value"):
        median_ranks(0, 0.05)
