import math

import numpy as np
import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.stats import compare_paired
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.stopping import FixedN, Precision, Progress, StoppingRule, TwoLooks, half_width, stopping_rule


def test_fixed_stops_at_n_whatever_is_seen() -> None:
    rule = FixedN(10)
    assert not rule.decide(Progress(9, 9, {"a": 0.0}, conclusive=True)).stop
    assert rule.decide(Progress(10, 8)).stop
    assert rule.decide(Progress(10, 10)).alpha == 0.05


def test_precision_waits_for_the_widest_interval() -> None:
    rule = Precision(target=0.03, n_max=20, n_min=8)
    assert not rule.decide(Progress(7, 7, {"a": 0.01})).stop  # before the first look
    decision = rule.decide(Progress(9, 9, {"a": 0.01, "b": 0.05}))
    assert not decision.stop
    assert "(b)" in decision.reason
    assert rule.decide(Progress(9, 9, {"a": 0.01, "b": 0.03})).stop
    assert rule.decide(Progress(20, 20, {"a": 1.0})).stop
    assert not rule.decide(Progress(9, 9, {})).stop


def test_precision_does_not_ask_what_was_found() -> None:
    rule = Precision(target=0.03)
    for conclusive in (False, True):
        assert not rule.decide(Progress(13, 13, {"a": 0.05}, conclusive)).stop


def test_a_plan_keeps_the_precision_rule_that_it_sealed() -> None:
    former = {"rule": "precision", "target": 0.03, "n_max": 20, "n_min": 8, "alpha": 0.05}
    assert stopping_rule(former).decide(Progress(8, 8, {"a": 0.01})).alpha == 0.05
    assert stopping_rule(former).decide(Progress(8, 8, {"a": 0.01})).stop
    assert not Precision(0.03).decide(Progress(11, 11, {"a": 0.01})).stop
    assert Precision(0.03).decide(Progress(12, 12, {"a": 0.01})).alpha == 0.045


def test_two_looks_and_no_others() -> None:
    rule = TwoLooks()
    assert [n for n in range(1, 17) if rule.decide(Progress(n, n, conclusive=True)).stop] == [10, 16]
    assert not rule.decide(Progress(10, 10)).stop
    assert rule.decide(Progress(10, 10, conclusive=True)).alpha == 0.01
    assert rule.decide(Progress(16, 16)).stop
    assert rule.decide(Progress(16, 16)).alpha == 0.04
    assert rule.alpha == pytest.approx(0.05)


def test_the_first_look_has_its_own_floor() -> None:
    assert smallest_n(5, FixedN().alpha) == 8
    assert smallest_n(5, TwoLooks().alpha_first) == 10  # 2^-9 = .00195 <= .01/5
    assert smallest_n(6, TwoLooks().alpha_first) == 11  # more than the first look has


@pytest.mark.parametrize("rule", [FixedN(12), Precision(0.05), TwoLooks(8, 14, 0.02, 0.03)])
def test_a_plan_holds_the_whole_rule(rule: StoppingRule) -> None:
    assert stopping_rule(rule.to_dict()) == rule
    assert rule.most >= 8


def test_plain_forms() -> None:
    assert stopping_rule({"rule": "fixed", "n": 10}) == FixedN(10)
    assert stopping_rule({"rule": "two-looks"}) == TwoLooks(10, 16, 0.01, 0.04)
    assert FixedN(10).to_dict() == {"rule": "fixed", "n": 10, "alpha": 0.05}


@pytest.mark.parametrize(
    "data",
    [
        {"rule": "until it is significant"},
        {},
        {"rule": "fixed", "blocks": 10},
        {"rule": "fixed", "n": "10"},
        {"rule": "fixed", "n": True},
        {"rule": "fixed", "n": 1},
        {"rule": "precision"},
        {"rule": "precision", "target": math.inf},
        {"rule": "precision", "target": -1},
        {"rule": "precision", "target": 0.1, "n_min": 30, "n_max": 20},
        {"rule": "two-looks", "first": 16, "second": 10},
    ],
)
def test_refuses(data: dict[str, object]) -> None:
    with refused(UsageError):
        stopping_rule(data)


def test_half_width() -> None:
    # logs .1 .. .6: the interval of six blocks is their range, ratio half-width sqrt(e^.5) - 1
    d = np.linspace(0.1, 0.6, 6)
    c = compare_paired(np.exp(d), np.ones(6))
    assert half_width(c) == pytest.approx(np.exp(0.25) - 1)
    # For a difference: relative to the larger level in either direction, and not to the estimate.
    assert half_width(compare_paired(d, np.zeros(6), scale="difference")) == pytest.approx(0.25 / 0.35)
    assert half_width(compare_paired(1 + d, np.ones(6), scale="difference")) == pytest.approx(0.25 / 1.35)
    assert half_width(compare_paired(1 - d, np.ones(6), scale="difference")) == pytest.approx(0.25 / 1)
    assert half_width(compare_paired(np.zeros(6), np.zeros(6), scale="difference")) == np.inf
    assert half_width(compare_paired(np.exp(d), np.ones(6), m_family=5)) == np.inf
    # Runs that rank worst open an end, or both, of either treatment: no width is narrow enough.
    for worst in (slice(1), slice(5)):
        for treatment, baseline in (worst_of(worst), np.ones(6)), (np.ones(6), worst_of(worst)):
            for scale in ("ratio", "difference"):
                assert half_width(compare_paired(treatment, baseline, scale=scale)) == np.inf


def worst_of(which: slice) -> np.ndarray:
    values = np.linspace(1.1, 1.6, 6)
    values[which] = np.inf
    return values
