import math

import pytest

from meshtrial.design.load import ClosedLoop, FixedRate
from meshtrial.design.study import Margin
from meshtrial.report import wording
from meshtrial.vocabulary import NO_TWIN, Warning


@pytest.fixture
def row(make_row):
    return make_row


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123456, "0.0123"),
        (1.005, "1.00"),
        (9.996, "10.0"),
        (-0.5, "−0.500"),
        (12345.6, "12\u202f346"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_keep_three_digits_and_never_lose_whole_ones(value, text):
    assert wording.number(value) == text


def test_decimals_stop_where_the_clock_does():
    # fortio's access log ticks in microseconds: a fourth decimal of a millisecond would be made up.
    assert wording.in_unit("latency_p50_s", 0.00052349) == "0.523\u00a0ms"
    assert wording.in_unit("latency_p50_s", -6.09e-7, sign=True) == "−0.001\u00a0ms"
    assert wording.in_unit("latency_p50_s", 4e-8, sign=True) == "0\u00a0ms"
    assert wording.in_unit("path_cpu_s_per_request", 7.084e-5, sign=True) == "+70.8\u00a0µs/request"
    assert wording.in_unit("path_memory_bytes", 48 * 2**20) == "48.0\u00a0MiB"
    assert wording.in_unit("latency_p50_s", None) == "–"


def test_a_change_is_a_percentage_below_two_and_a_factor_above():
    assert wording.change(1.384) == "+38.4\u00a0%"
    assert wording.change(0.88) == "−12.0\u00a0%"
    assert wording.change(1.0) == "0\u00a0%"
    assert wording.change(2.0) == "2.00×"
    assert wording.change(12.14) == "12.1×"
    assert wording.change(None) == "–"


def test_an_estimate_and_its_interval_share_their_notation():
    assert wording.change_interval(0.954, 1.029) == "−4.6 to +2.9\u00a0%"
    assert wording.change(1.84, high=2.74) == "1.84×"
    assert wording.change_interval(1.45, 2.74) == "1.45 to 2.74×"
    assert wording.change_interval(None, None) == "–"
    # Runs that rank worst open an end.
    assert wording.change_interval(None, 2.0) == "at most 2.00×"
    assert wording.interval_in_unit("latency_p50_s", 0.001, None) == "at least +1.00\u00a0ms"


def test_probabilities_are_never_zero():
    assert wording.probability(0.001953125) == "0.002"
    assert wording.probability(1e-7) == "< 0.0001"
    assert wording.equation("p", 0.0039).replace("\u00a0", " ") == "p = 0.0039"
    assert wording.equation("q", 1e-9).replace("\u00a0", " ") == "q < 0.0001"


@pytest.mark.parametrize(
    ("verdict", "qualifier", "said"),
    [
        ("slower", "material", "slower, material"),
        ("inconclusive", "a new study of about 6 blocks", "inconclusive (a new study of about 6 blocks)"),
        ("inconclusive", "at least 8 blocks", "inconclusive (at least 8 blocks)"),
        ("provisional", "7 of 10 blocks", "provisional, 7 of 10 blocks"),
    ],
)
def test_a_verdict_is_said_with_its_qualifier(row, verdict, qualifier, said):
    assert wording.verdict_text(row(verdict=verdict, qualifier=qualifier)) == said


def test_where_the_floor_decided_the_verdict_says_so(row):
    given = {"margin": 0.69, "margin_relative": 0.05, "margin_floor": 1e-4, "baseline_value": 1.44e-4}
    within = "within 0.100 ms; 5 % would be 0.007 ms"
    said = [
        wording.verdict_text(row(verdict="equivalent", **given)),
        wording.verdict_text(row(verdict="slower", qualifier="below margin", **given)),
        wording.verdict_text(row(verdict="slower", qualifier="material", **given)),
        wording.margin(row(**given)),
        wording.margin(row(margin=0.05, margin_relative=0.05)),
    ]
    assert [text.replace("\u00a0", " ") for text in said] == [
        f"equivalent, {within}",
        f"slower, below margin {within}",
        "slower, material",
        "0.100 ms (69 %)",
        "5 %",
    ]


def test_a_verdict_without_a_check_of_the_studys_own_noise_says_so(row):
    alone = {"warnings": (Warning(NO_TWIN, "the A/A twin none-aa has no values here"),)}
    assert wording.verdict_text(row(verdict="slower", qualifier="material", **alone)) == (
        "slower, material, no A/A check"
    )
    assert wording.verdict_text(row(verdict="invalid", **alone)) == "invalid"


def test_a_row_says_that_its_interval_is_not_corrected(row):
    apart = {"p": 0.03, "p_adjusted": 0.09, "adjustment": "max-t", "scale": "difference", "difference_high": 2e-4}
    mark = ", excludes zero by itself, not after correction"
    open_row = {"verdict": "inconclusive", "difference_low": 1e-5}
    assert wording.verdict_text(row(**apart, **open_row)) == f"inconclusive{mark}"
    assert wording.verdict_text(row(**apart | {"adjustment": "none"}, **open_row)) == "inconclusive"
    assert wording.verdict_text(row(**apart, **open_row | {"difference_low": -1e-5})) == "inconclusive"
    assert wording.verdict_text(row(**apart, **open_row | {"verdict": "slower"})) == "slower"
    ratios = {"adjustment": "holm", "scale": "ratio", "ci_low": 0.8, "ci_high": 0.9}
    assert wording.verdict_text(row(verdict="equivalent", **ratios)) == f"equivalent{mark}"


def test_the_smallest_effect_is_a_ratio_only_where_there_is_one(row):
    assert wording.mde_text(row(ratio=1.1, mde=0.04)) == "4.0\u00a0%"
    assert wording.mde_text(row(ratio=1.1, mde=2e-4, scale="difference")) == "0.200\u00a0ms"
    assert wording.mde_text(row()) == "–"


def test_the_effect_of_the_verdict_comes_first_and_the_other_beside_it(row):
    both = {"n_blocks": 8, "ratio": 1.1, "ci_low": 1.05, "ci_high": 1.2}
    both |= {"difference": 1e-4, "difference_low": 5e-5, "difference_high": 2e-4}
    of_ratio, of_difference = row(**both), row(**both, scale="difference")
    added, change = "+0.100\u00a0ms", "+10.0\u00a0%"
    assert (wording.effect(of_ratio), wording.other_effect(of_ratio)) == (change, added)
    assert (wording.effect(of_difference), wording.other_effect(of_difference)) == (added, change)
    assert wording.effect_interval(of_difference) == wording.added_interval(of_difference) != ""


def test_an_interval_without_ends_has_no_brackets(row):
    whole = {"n_blocks": 8, "ratio": 1.1, "ci_low": 1.05, "ci_high": 1.2}
    assert wording.effect_in_full(row(**whole)) == "+10.0\u00a0% (+5.0 to +20.0\u00a0%)"
    assert wording.effect_in_full(row(**whole | {"ci_low": None, "ci_high": None})) == "+10.0\u00a0%"
    assert wording.effect_in_full(row(**whole | {"ci_low": None})) == "+10.0\u00a0% (at most +20.0\u00a0%)"


def test_the_margin_of_a_difference_is_said_as_the_part_that_decides(row):
    typical = {"scale": "difference", "baseline_value": 1e-3}
    assert wording.margin(row(**typical, margin=1e-4, margin_relative=0.1)) == "10\u00a0%"
    floor = row(**typical, margin=1e-4, margin_relative=0.05, margin_floor=1e-4)
    assert wording.margin(floor) == "0.100\u00a0ms (10\u00a0%)"
    assert (
        wording.margin(row(scale="difference", baseline_value=0.0, margin=1e-4, margin_floor=1e-4)) == "0.100\u00a0ms"
    )


def test_a_warning_of_all_contrasts_is_said_once(row):
    drift, odd = Warning("drift", "the runs drift; keep blocks short"), Warning("tests-disagree", "look at the dots")
    rows = [row(treatment="a", warnings=(drift,)), row(treatment="b", warnings=(drift, odd))]
    assert wording.warnings(rows) == [
        "p50 latency: the runs drift; keep blocks short",
        "p50 latency, b: look at the dots",
    ]
    assert wording.warnings(rows, ["drift"]) == ["p50 latency: the runs drift; keep blocks short"]


def test_declared_numbers_stay_as_declared():
    assert wording.margin_text("latency_p50_s", Margin(0.05, 1e-4)) == "±5\u00a0%, at least 0.1 ms"
    assert wording.margin_text("latency_p50_s", Margin(0.0, 1e-4)) == "±0.1 ms"
    assert wording.declared_percent(0.02) == "2\u00a0%"
    assert wording.load_text(FixedRate(2000, 10, 5)) == "2\u202f000 requests per second over 10 connections"
    assert "closed loop" in wording.load_text(ClosedLoop(1, 5))
    assert "a new connection" in wording.load_text(FixedRate(10, 1, 5, keepalive=False))
    by = [wording.load_text(FixedRate(10, 4, 5, generators=count, generators_vary=True)) for count in (1, 2)]
    assert [text.rsplit(", ")[-1] for text in by] == ["1 load generator", "2 load generators"]


def test_durations_and_sizes():
    assert wording.duration(312) == "5 min 12 s"
    assert wording.duration(5.2) == "5.2 s"
    assert wording.duration(7200) == "2 h 00 min"
    assert wording.mebibytes(16 * 2**20) == "16.0 MiB"
    assert wording.mebibytes(8 * 2**30) == "8.00 GiB"
    assert wording.listing(["a", "b", "c"]) == "a, b and c"


def test_an_interval_of_dependent_blocks_is_marked_where_the_verdict_stands(make_row):
    numbers = {"n_blocks": 10, "ratio": 3.0, "ci_low": 2.5, "ci_high": 3.5}
    depend = (Warning("dependent-blocks", "m"),)
    assert "too narrow because blocks depend" in wording.effect_in_full(make_row(warnings=depend, **numbers))
    for unmarked in ({}, {"warnings": depend, "verdict": "dependent"}):
        assert "too narrow" not in wording.effect_in_full(make_row(**numbers | unmarked))
