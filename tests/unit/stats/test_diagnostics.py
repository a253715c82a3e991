import math
from itertools import combinations

import numpy as np
import pytest
from refused import as_reviewed
from scipy.stats import kruskal as scipys_kruskal
from scipy.stats import permutation_test, rankdata

from meshtrial.stats.diagnostics import (
    Drift,
    all_dependent,
    autocorrelation,
    baseline_modes,
    carry_over,
    change_text,
    coarse_quantile,
    dependent_blocks,
    diagnose,
    drift,
    drift_of,
    kruskal,
    lag_one,
    log_table,
    modes,
    permuted_kruskal,
    places_differ,
    position_effect,
    previous_treatments,
    repeated_values,
    separation,
    spearman,
    varying_factors,
    warm_up,
    without_blocks,
)
from meshtrial.stats.simulate import Noise, run_places, simulate

TREATMENTS = ["none", "none-aa", "a", "b", "c", "d"]
WHITE = Noise(rho=0.0, drift=0.0, shock_rate=0.0)
Arrays = dict[str, np.ndarray]


def study(seed: int = 0, blocks: int = 10, noise: Noise = WHITE) -> tuple[np.ndarray, Arrays, Arrays]:
    """Log values (blocks, treatments), positions and times of one study."""
    rng = np.random.default_rng(seed)
    values = simulate(np.zeros(6), blocks, 1, rng, noise=noise)[0]
    places = run_places(1, blocks, 6, "randomised", rng)[0]
    return values, named(places % 6), named(places * 20.0)


def named(table: np.ndarray) -> Arrays:
    return {name: table[:, i] for i, name in enumerate(TREATMENTS)}


def codes(values: np.ndarray, **options: object) -> list[str]:
    return [w.code for w in diagnose(named(np.exp(values)), "none", **options)]  # type: ignore[arg-type]


def test_a_sound_study_is_quiet() -> None:
    loud = 0
    for seed in range(40):
        values, positions, times = study(seed)
        loud += bool(codes(values, positions=positions, times=times))
    assert loud <= 8  # nine tests at 1 % each


def test_drift() -> None:
    values, _, times = study()
    drifting = values + 0.4 * np.stack(list(times.values()), axis=1) / 1200
    assert [w.code for w in drift(named(np.exp(drifting)), times)] == ["drift"]
    assert "+" in drift(named(np.exp(drifting)), times)[0].message
    assert "drift by -" in drift(named(np.exp(-drifting)), times)[0].message
    assert drift(named(np.exp(values)), times) == ()
    # A linear trend in logs is found exactly, for any levels of the treatments.
    when = np.stack(list(times.values()), axis=1)
    line = drift_of(named(np.exp(np.arange(when.shape[1]) + 0.4 * when / np.ptp(when))), times)
    assert line.correlation > 0.9
    assert line.size == pytest.approx(0.4, rel=0.1)
    assert drift_of(named(np.ones(when.shape)), times) == Drift(0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("size", "scale", "text"),
    [
        (math.log(1.25), "ratio", "+25.0%"),
        (math.log(1.0002), "ratio", "+0.02%"),
        (-0.0004, "ratio", "-0.04%"),
        (0.0, "ratio", "+0.0%"),
        (-0.00123, "difference", "-0.00123"),
    ],
)
def test_a_change_is_said_with_a_digit_that_is_not_zero(size, scale, text) -> None:
    assert change_text(size, scale) == text


def test_position() -> None:
    values, positions, _ = study()
    first = np.stack(list(positions.values()), axis=1) == 0
    found = position_effect(named(np.exp(values + 0.3 * first)), positions)
    assert [w.code for w in found] == ["position"]
    assert "position 0" in found[0].message
    assert position_effect(named(np.exp(values)), positions) == ()


def test_carry_over_names_the_treatment() -> None:
    values, positions, _ = study(1)
    before = previous_treatments(positions)
    after_c = np.array([[before[name][block] == "c" for name in TREATMENTS] for block in range(10)])
    found = carry_over(named(np.exp(values + 0.3 * after_c)), before)
    assert [w.code for w in found] == ["carry-over"]
    assert "after a run of c" in found[0].message
    assert carry_over(named(np.exp(values)), before) == ()


def test_previous_treatments_by_hand() -> None:
    # block 1: a b; block 2: b a; the run before the second block's b is the first block's b
    before = previous_treatments({"a": [1, 2], "b": [2, 1]})
    assert before == {"a": [None, "b"], "b": ["a", "b"]}
    # a missing run precedes no other run
    assert previous_treatments({"a": [1, np.nan], "b": [2, 1]})["a"] == [None, None]


def test_autocorrelation() -> None:
    wave = np.exp(0.1 * np.sin(np.arange(24) / 4))
    assert [w.code for w in autocorrelation(wave)] == ["autocorrelation"]
    assert autocorrelation(np.exp(np.random.default_rng(0).normal(0, 0.1, 24))) == ()
    assert autocorrelation(wave[:6]) == ()


def test_dependent_blocks_are_seen_in_the_effect_not_in_what_both_share() -> None:
    wave = np.exp(0.1 * np.sin(np.arange(24) / 4))
    noise = np.exp(np.random.default_rng(1).normal(0, 0.01, (2, 24)))
    assert dependent_blocks(wave * noise[0], wave * noise[1]) == ()
    assert [w.code for w in dependent_blocks(wave**2 * noise[0], wave * noise[1])] == ["dependent-blocks"]


def test_missing_runs_and_zeros_are_left_out() -> None:
    values, positions, times = study(2)
    treatments = named(np.exp(values))
    treatments["a"][3] = np.nan
    treatments["b"][:] = 0.0  # no log: the treatment is skipped
    assert diagnose(treatments, "none", positions=positions, times=times) == ()
    assert diagnose({"none": np.zeros(10), "a": np.ones(10)}, "none") == ()


def test_rank_checks_by_hand() -> None:
    assert spearman(np.arange(6.0), np.arange(6.0) ** 3) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    assert spearman(np.arange(6.0), np.ones(6)) == (0.0, 1.0)
    assert kruskal([np.arange(5.0), np.arange(5.0) + 100]) < 0.01
    assert kruskal([np.arange(5.0)]) == 1.0
    # 1 -1 1 -1 ...: products of neighbours are -1, r = -7/8
    r, p = lag_one(np.array([1.0, -1] * 4))
    assert r == pytest.approx(-7 / 8)
    assert p > 0.95


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


def regimes(rng: np.random.Generator, step: float, blocks: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Baseline and twin of a machine that is in one of two states for whole blocks at a time."""
    state = np.where(rng.permutation(blocks) < blocks * 0.4, step, 0.0)
    return tuple(np.exp(state + rng.normal(0, 0.03, blocks)) for _ in range(2))  # type: ignore[return-value]


def test_a_machine_in_two_states_is_seen_in_the_raw_baseline_and_not_after_the_blocks_are_out() -> None:
    rng = np.random.default_rng(0)
    raw = polished = 0
    for _ in range(200):
        none, twin = regimes(rng, math.log(1.5))
        raw += bool(baseline_modes(none, twin))
        table = {"none": none, "none-aa": twin, "a": 1.2 * none * np.exp(rng.normal(0, 0.03, 10))}
        polished += bool(modes(without_blocks(log_table(table)).ravel()))
    assert raw > 0.6 * 200
    assert polished < 0.05 * 200


@pytest.mark.parametrize("shape", ["normal", "t", "drift"])
def test_one_state_is_not_called_two(shape: str) -> None:
    rng = np.random.default_rng(1)
    draw = {
        "normal": lambda: rng.normal(0, 0.1, (2, 10)),
        "t": lambda: 0.1 * rng.standard_t(3, (2, 10)),
        "drift": lambda: np.linspace(0, 0.3, 10) + rng.normal(0, 0.03, (2, 10)),
    }[shape]
    found = sum(bool(baseline_modes(*np.exp(draw()))) for _ in range(1000))
    assert found <= 20


def test_what_the_warning_of_two_states_says() -> None:
    (warning,) = baseline_modes(*regimes(np.random.default_rng(2), math.log(2)))
    assert warning.code == "baseline-modes"
    assert "12 runs of the baseline and its twin are low and 8 are +" in warning.message
    assert baseline_modes([1.0] * 10, [1.0] * 10) == ()
    assert baseline_modes([1.0, 2.0]) == ()


def test_treatments_with_states_of_their_own_are_seen_together_and_sound_ones_are_not() -> None:
    rng = np.random.default_rng(4)

    def wander(rho: float) -> list[np.ndarray]:
        columns = []
        for _ in range(6):
            x = np.zeros(10)
            x[0] = rng.normal()
            for k in range(1, 10):
                x[k] = rho * x[k - 1] + math.sqrt(1 - rho**2) * rng.normal()
            columns.append(np.exp(0.08 * x))
        return columns

    assert sum(bool(all_dependent(wander(0.8))) for _ in range(100)) > 60
    assert sum(bool(all_dependent(wander(0.0))) for _ in range(300)) <= 9
    assert all_dependent([np.arange(1.0, 8.0)] * 6) == ()  # too few blocks
    assert all_dependent([np.ones(10)] * 6) == ()  # nothing varies


def test_places_that_differ_are_found_and_chance_is_not():
    rng = np.random.default_rng(3)
    where = ["a"] * 6 + ["b"] * 6
    base = np.exp(rng.normal(0, 0.05, 12))
    effect = np.repeat([1.1, 1.5], 6)
    (warning,) = places_differ(base * effect * np.exp(rng.normal(0, 0.01, 12)), base, where)
    assert warning.code == "places-differ"
    assert "+10." in warning.message or "+9." in warning.message
    assert places_differ(base * effect, base, ["a"] * 12) == ()
    # Two places of four blocks: 2 of 70 ways lie wholly apart, which is no 1 %.
    few = slice(2, 10)
    (warning,) = places_differ(base[few] * effect[few], base[few], where[few])
    assert warning.code == "places-too-few"
    assert "(4 in a, 4 in b)" in warning.message


def test_a_usual_design_reaches_the_level():
    # Three places of four blocks, wholly apart: 6 of 34650 ways, which the approximation by chi-squared calls 0.0073.
    d = np.repeat([1.0, 1.2, 1.4], 4) * np.exp(0.001 * np.arange(12))
    (warning,) = places_differ(d, np.ones(12), [*"aaaabbbbcccc"])
    assert warning.code == "places-differ"
    # Two places of five: 2 of 252, where that approximation says 0.0090; of six, one block on the wrong side.
    assert permuted_kruskal([np.arange(5.0), np.arange(5.0) + 10]) == pytest.approx(2 / 252)
    ranks = rankdata([1, 2, 3, 4, 5, 8, 7, 9, 10, 11, 12, 6])
    mine = permuted_kruskal([ranks[:6], ranks[6:]])
    theirs = permutation_test(
        [ranks[:6], ranks[6:]], lambda a, b: scipys_kruskal(a, b).statistic, alternative="greater"
    )
    assert mine == pytest.approx(float(theirs.pvalue))


def test_places_that_are_alike_are_told_apart_as_seldom_as_the_level_says():
    values, where = np.exp(0.01 * np.arange(10)), np.array(["b"] * 10)
    found = []
    for first in combinations(range(10), 5):
        where[:] = "b"
        where[list(first)] = "a"
        if places_differ(values, np.ones(10), where.tolist()):
            found.append(first)
    # Of the 252 ways to divide ten blocks, these lie wholly apart, and no other reaches 1 %.
    assert found == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]


def test_warm_up() -> None:
    rng = np.random.default_rng(0)
    first, second = np.exp(rng.normal(0, 0.02, (2, 30)))
    assert warm_up(first, second) == ()
    found = warm_up(first * 1.1, second)
    assert [w.code for w in found] == ["warm-up"]
    assert "-8.4%" in found[0].message  # 1/1.1 - 1 = -9.1 %, and the noise of 30 runs
    # significant, and too small to matter
    assert warm_up(np.ones(30), np.full(30, 1.01)) == ()


def test_coarse_quantile_by_hand() -> None:
    # a 1 ms bucket on 10 ms is 10 %
    assert [w.code for w in coarse_quantile(0.001, 0.010, 0.05)] == ["coarse-quantile"]
    assert coarse_quantile(0.001, 0.010, 0.10) == ()
    assert "10.0%" in coarse_quantile(0.001, 0.010, 0.05)[0].message
    (told,) = coarse_quantile(0.001, 0.010, 0.05, "a run's time", "raise rps")
    as_reviewed(told.message)


def test_repeated_values() -> None:
    assert [w.code for w in repeated_values([1, 1, 1, 2, 2, 2, 1])] == ["repeated-values"]
    assert repeated_values([1, 2, 3, 4, 4]) == ()
    assert repeated_values([0, 0, 0, 0]) == ()


def test_varying_factors_are_named() -> None:
    found = varying_factors(["a", "a", "b", "b"], {"image": ["v1", "v2", "v1", "v1"], "node": ["n1", "n1", "n2", "n2"]})
    assert len(found) == 1
    assert found[0].code == "varying-factor"
    assert "image varies inside a: v1 (1), v2 (1)" in found[0].message
