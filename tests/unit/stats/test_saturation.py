import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.stats.saturation import Bracket, LoadStep, RateSearch, bracket, capacity


def rungs(limit: float, *asked: float) -> list[LoadStep]:
    """A system that keeps every rate up to `limit`."""
    return [LoadStep(rate, min(1.0, limit / rate)) for rate in asked]


@pytest.mark.parametrize(
    ("history", "low", "high"),
    [
        (rungs(1000, 400, 800, 1600), 800, 1600),
        (rungs(5000, 400, 800), 800, math.inf),
        (rungs(100, 400, 800), 0, 400),
        ([LoadStep(100, 0.98), LoadStep(200, 0.97)], 100, 200),  # 2 % are tolerated
        ([LoadStep(100, 1.0), LoadStep(200, 1.0, ok=False)], 100, 200),  # a gate failed
        (
            [LoadStep(100, 1.0), LoadStep(200, 0.5), LoadStep(200, 0.6), LoadStep(400, 1.0)],
            100,
            200,
        ),  # kept above a failed one
        ([LoadStep(100, 1.0), LoadStep(200, 0.5), LoadStep(200, 1.0)], 200, math.inf),  # a repeat saves a rate
    ],
)
def test_bracket_by_hand(history: list[LoadStep], low: float, high: float) -> None:
    assert bracket(history) == Bracket(low, high)


def test_capacity_over_six_repeats() -> None:
    # the range of six covers the median with 1 - 2/64
    repeats = [rungs(limit, 500, 700, 900, 1100, 1300) for limit in (900, 950, 1000, 1150, 700, 1200)]
    result = capacity(repeats)
    assert (result.estimate, result.low, result.high) == (900, 700, 1300)
    assert result.confidence == 1 - 2 / 64
    assert result.warnings == ()


def test_nine_repeats_leave_the_extremes_out() -> None:
    # sign test, n = 9: P(at most 1) = 10/512, so the second smallest and second largest, 96.1 %
    result = capacity([rungs(limit, *range(100, 1100, 100)) for limit in range(100, 1000, 100)])
    assert (result.low, result.high) == (200, 900)  # lower ends 100..900, upper ends 200..1000
    assert result.confidence == pytest.approx(1 - 20 / 512)


def test_three_repeats_say_75_percent() -> None:
    result = capacity([rungs(limit, 500, 700, 900) for limit in (600, 800, 850)])
    assert result.confidence == 0.75
    assert [w.code for w in result.warnings] == ["below-floor"]
    assert "at least 6 times" in result.warnings[0].message


def test_ladders_that_end_too_early_say_so() -> None:
    high = capacity([rungs(1e6, 500, 700)] * 6)
    assert math.isinf(high.high)
    assert [w.code for w in high.warnings] == ["ladder-too-low"]
    low = capacity([rungs(10, 500, 700)] * 6)
    assert low.low == 0
    assert [w.code for w in low.warnings] == ["ladder-too-high"]


@given(st.floats(20, 50_000), st.floats(20, 20_000))
def test_the_search_finds_the_limit(limit: float, start: float) -> None:
    search = RateSearch(start=start, highest=60_000, lowest=10)
    history: list[LoadStep] = []
    while (rate := search.next_rate(history)) is not None:
        history += rungs(limit, rate)
        assert len(history) < 60
    found = bracket(history)
    assert found.low <= limit / (1 - search.tolerance)
    assert found.high >= limit
    # three digits of a rate are within 0.5 %
    assert found.high / found.low <= (1 + search.resolution) * 1.02


def test_the_search_step_by_step() -> None:
    search = RateSearch(start=100, highest=1000, resolution=0.2)
    history: list[LoadStep] = []
    asked = []
    while (rate := search.next_rate(history)) is not None:
        asked.append(rate)
        history += rungs(500, rate)
    # doubled until 800 fails twice, then the geometric middle: 566 fails twice, 476 is kept, 566/476 < 1.2
    assert asked == [100, 200, 400, 800, 800, 566, 566, 476]


def test_the_search_keeps_to_its_bounds() -> None:
    assert RateSearch(start=100, highest=150).next_rate(rungs(1e6, 100)) == 150
    assert RateSearch(start=100, highest=150).next_rate(rungs(1e6, 100, 150)) is None
    search = RateSearch(start=100, highest=150, lowest=80)
    assert search.next_rate(rungs(1, 100, 100)) == 80
    assert search.next_rate(rungs(1, 100, 100, 80, 80)) is None


def test_a_broken_search_goes_on_where_it_stopped() -> None:
    search = RateSearch(start=100, highest=10_000)
    history = rungs(900, 100, 200, 400, 800)
    assert search.next_rate(history) == search.next_rate(list(reversed(history))) == 1600
