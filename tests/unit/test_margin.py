"""The margin and its notation."""

import math

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.margin import Margin, read_margin


def test_the_floor_widens_the_margin_of_a_small_baseline() -> None:
    margin = Margin(0.05, 0.0001)
    assert margin.ratio(0.010) == pytest.approx(1.05)  # .1 ms on 10 ms is 1 % only
    assert margin.ratio(0.0005) == pytest.approx(1.2)  # .1 ms on .5 ms is 20 %
    assert margin.difference(0.010) == pytest.approx(0.0005)
    assert margin.difference(0.0005) == pytest.approx(0.0001)
    assert margin.difference(0.0) == 0.0001


@pytest.mark.parametrize(
    ("relative", "floor"), [(-0.1, 0.0), (0.0, 0.0), (0.1, -1.0), (math.nan, 0.0), (0.1, math.nan), (10.0, 0.0)]
)
def test_refuses_a_margin_that_is_none(relative: float, floor: float) -> None:
    with pytest.raises(UsageError):
        Margin(relative, floor)


def test_refuses_what_a_zero_baseline_cannot_mean() -> None:
    with refused(UsageError):
        Margin(0.1).ratio(0.0)
    with refused(UsageError):
        Margin(0.1).difference(0.0)


@pytest.mark.parametrize(
    ("text", "alone", "beside"),
    [
        ("5%", Margin(0.05), Margin(0.05, 1e-3)),
        ("0.2ms", Margin(0.0, 2e-4), Margin(0.1, 2e-4)),
        ("5%, 0.2ms", Margin(0.05, 2e-4), Margin(0.05, 2e-4)),
    ],
)
def test_only_what_is_written_is_given(text: str, alone: Margin, beside: Margin) -> None:
    assert read_margin(text, "ms") == alone
    assert read_margin(text, "ms", known=Margin(0.1, 1e-3)) == beside


def test_a_share_of_a_declared_level_is_an_amount() -> None:
    alone = read_margin("5% of 0.8ms", "ms")
    assert (alone.relative, alone.floor) == (0.0, pytest.approx(4e-5))
    for text, floor in (("5% of 0.8ms", 5e-5), ("5%of2ms", 1e-4), ("5% of 0.8ms,0ms", 4e-5), ("5% of 2ms,1ms", 1e-3)):
        beside = read_margin(text, "ms", known=Margin(0.1, 5e-5))
        assert (beside.relative, beside.floor) == (0.0, pytest.approx(floor))
    # It does not depend on the baseline that a study measures.
    declared = read_margin("10% of 200us", "us/request", scale=1e6)
    assert declared.difference(1e-4) == declared.difference(4e-4) == pytest.approx(2e-5)


def test_a_part_of_zero_takes_a_known_part_away() -> None:
    assert read_margin("0ms", "ms", known=Margin(0.1, 1e-3)) == Margin(0.1)
    assert read_margin("0%", "ms", known=Margin(0.1, 1e-3)) == Margin(0.0, 1e-3)
    with refused(UsageError):
        read_margin("0%", "B", known=Margin(0.1))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        *(("5", "ms"), ("x%", "ms"), ("0%", "ms"), ("-5%", "ms"), ("1ms", "rps"), ("1ms", "s"), ("1", "")),
        *(("5% of 1", "ms"), ("5% 1ms", "ms"), ("of 1ms", "ms"), ("5%,5% of 1ms", "ms"), ("5% of 1rps", "ms")),
        *(("0% of 1ms", "ms"), ("-5% of 1ms", "ms")),
    ],
)
def test_another_form_is_refused_with_what_is_allowed(text: str, unit: str) -> None:
    with refused(UsageError):
        read_margin(text, unit, "--margin ")
