"""Spans for a share of the requests: how many are plausible, and how many requests can show it (for a half and 1 %)."""

import pytest
from refused import refused

from meshtrial.design.load import ClosedLoop, FixedRate, Load
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed import proving

ONE_IN_A_HUNDRED = Treatment.parse("sidecar+tracing-1pct")


def test_twenty_coins_may_show_anything_but_one_side_alone():
    # One side alone: 2 ** -20 is 0.95 in a million; at most one of the other: 21 times that.
    assert proving.bounds(20, 50) == (1, 19)
    assert proving.least_requests(50) == 20
    assert proving.bounds(19, 50) == (1, 19)  # here it may be chance


def test_with_too_few_requests_none_may_be_chance():
    assert proving.least_requests(1) == 1375
    assert 0.99**1375 <= 1e-6 < 0.99**1374


@pytest.mark.parametrize(
    ("spans", "passed"), [(0, False), (1, False), (20, True), (35, True), (200, False), (2000, False), (-3, False)]
)
def test_one_in_a_hundred_is_told_from_none_from_ten_and_from_all(spans: int, passed: bool):
    proof = proving.proof("spans", "after", spans, 2000, 1)
    assert (proof.passed, proof.observed) == (passed, str(spans))
    # Of 20 that are expected; their standard deviation is 4.4.
    assert proof.expected == "3 to 44: 1 % of 2000 requests"


def test_no_requests_prove_nothing():
    assert not proving.proof("spans", "after", 0, 0, 1).passed


@pytest.mark.parametrize(
    ("load", "percent"),
    [
        (FixedRate(500, 4, 3), 1),
        (FixedRate(500, 4, 0.75, slices=4), 1),
        (ClosedLoop(4, 1), 1),  # as many as it carries
        (FixedRate(10, 4, 1), 100),
    ],
)
def test_a_load_that_can_show_it_is_taken(load: Load, percent: float):
    proving.check(ONE_IN_A_HUNDRED, load, percent)


def test_a_load_that_can_not_is_refused_before_the_study():
    with refused(UsageError):
        proving.check(ONE_IN_A_HUNDRED, FixedRate(450, 4, 3), 1)
