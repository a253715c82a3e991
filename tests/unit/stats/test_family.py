import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.stats import ContrastResult, Family, Margin, Warning, analyse_family, compare_paired
from meshtrial.stats.family import influence
from meshtrial.stats.intervals import hodges_lehmann
from meshtrial.stats.multiplicity import holm
from meshtrial.stats.verdict import Verdict, decide
from meshtrial.vocabulary import Correction, Scale, VerdictLabel, sentence

MARGIN = Margin(0.05)
AA = Family("none", twin="none-aa", margin=MARGIN)


def study(n: int = 10, seed: int = 0, sd: float = 0.01, **ratios: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    block = rng.normal(0, 0.05, n)
    treatments = {"none": 1.0, "none-aa": 1.0, **ratios}
    return {name: ratio * np.exp(block + rng.normal(0, sd, n)) for name, ratio in treatments.items()}


def said(verdict: Verdict) -> str:
    return sentence(verdict.label, verdict.qualifier)


def named(results: tuple[ContrastResult, ...]) -> dict[str, ContrastResult]:
    return {r.treatment: r for r in results}


def test_a_whole_family() -> None:
    values = study(seed=1, sidecar=1.4, ambient=1.0, slim=1.001)
    results = analyse_family(values, AA)
    assert [r.treatment for r in results] == ["sidecar", "ambient", "slim", "none-aa"]
    found = named(results)
    assert said(found["sidecar"].verdict) == "slower (material)"
    assert found["ambient"].verdict.label == "equivalent"
    assert found["none-aa"].role == "a/a"
    assert found["none-aa"].verdict.label == "equivalent"
    assert found["sidecar"].noise is not None
    assert found["sidecar"].noise.floor < 0.02


def test_holm_over_the_family_without_the_twin() -> None:
    values = study(sd=0.1, a=1.1, b=1.05, c=0.95)
    results = analyse_family(values, AA)
    raw = [compare_paired(values[k], values["none"]).effect.p for k in ("a", "b", "c")]
    assert [r.p_adjusted for r in results[:3]] == holm(raw).tolist()
    assert [r.adjustment for r in results] == ["holm"] * 3 + ["none"]
    assert [r.comparison and r.comparison.m_family for r in results] == [3, 3, 3, 1]
    aa = results[3]
    assert aa.comparison is not None
    assert aa.p_adjusted == aa.comparison.effect.p
    assert aa.adjustment == "none"


def test_exploratory_is_labelled_and_corrected_by_benjamini_hochberg() -> None:
    results = analyse_family(study(sd=0.1, a=1.1, b=1.05), Family("none", twin="none-aa", primary=False))
    assert {r.role for r in results} == {"exploratory", "a/a"}
    assert results[0].adjustment == "benjamini-hochberg"


def test_a_missing_run_takes_its_block_from_every_treatment() -> None:
    values = study(n=11, a=1.2, b=1.2)
    values["b"][4] = math.nan
    results = analyse_family(values, AA, blocks=[f"B{i}" for i in range(11)])
    for r in results:
        assert r.comparison is not None
        assert r.comparison.n == 10
        (warning,) = (w for w in r.warnings if w.code == "blocks-excluded")
        assert "(B4)" in warning.message


@pytest.mark.parametrize("label", [VerdictLabel.INVALID, VerdictLabel.SATURATED])
def test_a_treatment_that_is_out_keeps_its_blocks_to_itself_and_counts(label: VerdictLabel) -> None:
    values = study(a=1.2, b=1.2, c=9.0)
    values["c"][1:] = math.nan
    found = named(analyse_family(values, AA, stopped={"c": label}))
    assert found["c"].verdict == Verdict(label, "")
    assert found["c"].comparison is None
    a = found["a"]
    assert a.comparison is not None
    assert a.verdict.label == "slower"
    assert a.comparison.n == 10
    assert a.comparison.m_family == 3
    assert a.p_adjusted == pytest.approx(3 * 2 / 1024)


@pytest.mark.parametrize(
    ("stopped", "expected"),
    [
        ({"a": VerdictLabel.SATURATED}, "saturated"),
        ({"none": VerdictLabel.SATURATED}, "saturated (the baseline)"),
        ({"none": VerdictLabel.SATURATED, "a": VerdictLabel.SATURATED}, "saturated (both)"),
        ({"none": VerdictLabel.INVALID, "a": VerdictLabel.SATURATED}, "invalid (the baseline)"),
        ({"none": VerdictLabel.SATURATED, "a": VerdictLabel.INVALID}, "invalid"),
    ],
)
def test_a_verdict_names_the_side_that_stopped(stopped: dict[str, VerdictLabel], expected: str) -> None:
    (result,) = analyse_family(study(a=1.2), Family("none", contrasts=[("a", "none")]), stopped=stopped)
    assert said(result.verdict) == expected


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ({"a": 6, "b": 0, "none": 0}, "saturated"),  # sign test: 2 / 2^6 = .03
        ({"a": 5, "b": 0, "none": 0}, "invalid"),  # 2 / 2^5 = .06
        ({"a": 8, "b": 0, "none": 4}, "invalid"),
        ({"a": 0, "b": 0, "none": 6}, "saturated (the baseline)"),
    ],
)
@pytest.mark.parametrize("correction", get_args(Correction))
def test_saturated_must_fail_more_often_than_the_other_side(
    failed: dict[str, int], expected: str, correction: Correction
) -> None:
    failures = {name: np.arange(8) < count for name, count in failed.items()}
    side = max(failed, key=lambda name: failed[name])
    family = Family("none", contrasts=[("a", "none")], correction=correction)
    values = study(n=8, a=1.2, b=1.0)
    (result,) = analyse_family(values, family, stopped={side: VerdictLabel.SATURATED}, rate_failures=failures)
    assert said(result.verdict) == expected
    assert ("rate-failures" in [w.code for w in result.warnings]) == (expected == "invalid")
    # a plan without that test counts only the treatment's failures
    (result,) = analyse_family(values, family, stopped={side: VerdictLabel.SATURATED})
    assert result.verdict.label == "saturated"


def test_saturated_is_corrected_over_its_family() -> None:
    failures = {"a": np.arange(8) < 7, "b": np.arange(8) < 1, "none": np.zeros(8)}
    values, stopped = study(n=8, a=1.2, b=1.0), {"a": VerdictLabel.SATURATED}
    labels = {}
    for correction in get_args(Correction):
        family = Family("none", contrasts=[("a", "none"), ("b", "none")], correction=correction, alpha=0.03)
        found = analyse_family(values, family, stopped=stopped, rate_failures=failures)
        labels[correction] = found[0].verdict.label
    # 2 / 2^7 = .016, twice that by Holm, unchanged by flips of blocks
    assert labels == {"holm": "invalid", "max-t": "saturated"}


def test_a_contrast_without_a_p_still_counts() -> None:
    # Holm: 5 * .01, 4 * .02; Benjamini and Hochberg: 4 * .01
    assert Family("none").corrected([0.01, 0.02, None, None, None])[:3] == [0.05, 0.08, None]
    assert Family("none", primary=False).corrected([0.01, None, None, None])[:2] == [0.04, None]


def test_too_few_blocks_left() -> None:
    values = study(n=3, a=1.2)
    values["a"][:2] = math.nan
    results = analyse_family(values, Family("none", twin="none-aa"))
    assert [r.verdict.label for r in results] == ["invalid", "invalid"]


def test_a_noisy_twin_makes_small_effects_unstable_and_leaves_large_ones() -> None:
    values = study(a=1.06, b=2.0)
    values["none-aa"] = values["none"] * np.exp(np.linspace(0.08, 0.14, 10)[[4, 9, 1, 6, 3, 8, 0, 5, 2, 7]])
    found = named(analyse_family(values, AA))
    assert found["a"].verdict.label == "unstable"
    assert found["b"].verdict.label == "slower"
    assert {"aa-differs", "noise-floor"} <= {w.code for w in found["b"].warnings}


def test_a_twin_without_values_is_said_with_every_verdict() -> None:
    for word in (VerdictLabel.INVALID, VerdictLabel.SATURATED):
        found = named(analyse_family(study(a=1.2), AA, stopped={"none-aa": word}))
        assert found["a"].verdict.label == "slower"
        assert "no-aa-check" in {w.code for w in found["a"].warnings}
    assert "no-aa-check" not in {w.code for r in analyse_family(study(a=1.2), AA) for w in r.warnings}
    without = Family("none", contrasts=[("a", "none")])
    assert "no-aa-check" not in {w.code for r in analyse_family(study(a=1.2), without) for w in r.warnings}


def test_material_is_corrected_over_the_family() -> None:
    values = study(n=6, a=1.2, b=1.2, c=1.2)
    (alone,) = analyse_family({k: values[k] for k in ("none", "a")}, Family("none", margin=Margin(0.1)))
    assert said(alone.verdict) == "slower (material)"
    assert alone.p_material_adjusted == 1 / 64
    ten = study(n=10, a=1.2, b=1.2, c=1.2)
    found = analyse_family(ten, Family("none", twin="none-aa", margin=Margin(0.1)))
    assert [r.p_material_adjusted for r in found if r.role == "primary"] == [3 / 1024] * 3


def test_treatments_with_slow_states_of_their_own_get_no_verdict() -> None:
    rng = np.random.default_rng(3)
    values = {}
    for name in ("none", "none-aa", "a", "b", "c", "d"):
        state = np.zeros(10)
        for k in range(1, 10):
            state[k] = 0.95 * state[k - 1] + rng.normal(0, 0.1)
        values[name] = np.exp(state + (0.7 if name == "a" else 0))
    found = named(analyse_family(values, AA))
    assert said(found["a"].verdict) == "dependent"
    assert "dependent-blocks" in {w.code for w in found["a"].warnings}


def test_declared_pairs() -> None:
    values = study(a=1.2, b=1.0)
    results = analyse_family(values, Family("none", contrasts=[("a", "b")], margin=MARGIN))
    assert [(r.treatment, r.baseline) for r in results] == [("a", "b")]
    assert results[0].comparison is not None
    assert results[0].comparison.m_family == 1
    assert results[0].verdict.label == "slower"
    assert results[0].noise is None


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_the_treatments_does_not_matter(order: list[str]) -> None:
    values = study(sd=0.1, a=1.1, b=1.05, c=0.95)
    shuffled = {k: values[k] for k in ["none", *order, "none-aa"]}
    a = named(analyse_family(values, AA))
    b = named(analyse_family(shuffled, AA))
    assert {k: r.verdict for k, r in a.items()} == {k: r.verdict for k, r in b.items()}


def test_one_contrast_needs_no_correction() -> None:
    for correction in get_args(Correction):
        (alone,) = analyse_family(study(a=1.2), Family("none", contrasts=[("a", "none")], correction=correction))
        assert alone.comparison is not None
        assert alone.p_adjusted == alone.comparison.effect.p


@pytest.mark.parametrize("correction", get_args(Correction))
def test_a_study_of_the_baseline_and_its_twin_alone_judges_the_twin(correction: Correction) -> None:
    (twin,) = analyse_family(
        study(seed=1), Family("none", twin="none-aa", contrasts=[], margin=MARGIN, correction=correction)
    )
    assert (twin.treatment, twin.role, twin.verdict.label) == ("none-aa", "a/a", "equivalent")


PAIRS = [("b", "a"), ("c", "a"), ("c", "b")]


def test_max_t_calls_pairs_with_six_blocks_where_holm_can_call_none() -> None:
    values = study(n=6, a=1.0, b=1.3, c=1.9)
    for correction, words in (("max-t", ["slower"] * 3), ("holm", ["inconclusive"] * 3)):
        results = analyse_family(values, Family("none", contrasts=PAIRS, margin=MARGIN, correction=correction))
        assert [r.verdict.label for r in results] == words
        assert [r.adjustment for r in results] == [correction] * 3
    # five blocks cannot reach 5 % at all
    few = analyse_family(study(n=5, a=1.0, b=1.3, c=1.9), Family("none", contrasts=PAIRS, correction="max-t"))
    assert [said(r.verdict) for r in few] == ["inconclusive (at least 6 blocks)"] * 3


def test_tests_against_the_margin_are_corrected_by_holm_under_max_t() -> None:
    values = study(sd=0.02, a=1.0, b=1.1, c=1.0)
    by_max_t, by_holm = (
        analyse_family(values, Family("none", contrasts=PAIRS, margin=MARGIN, correction=correction))
        for correction in ("max-t", "holm")
    )
    for one, other in zip(by_max_t, by_holm, strict=True):
        assert one.p_equivalence_adjusted == other.p_equivalence_adjusted
        assert one.p_material_adjusted == other.p_material_adjusted
        assert one.comparison is not None
        assert one.comparison.effect.p <= one.p_adjusted <= other.p_adjusted


@given(st.integers(0, 200), st.integers(5, 12))
def test_what_max_t_calls_different_has_an_interval_that_excludes_no_effect(seed: int, n: int) -> None:
    values = study(n=n, seed=seed, sd=0.1, a=1.0, b=1.1, c=1.2)
    for r in analyse_family(values, Family("none", contrasts=PAIRS, margin=MARGIN, correction="max-t")):
        assert r.comparison is not None
        assert not r.verdict.label.different or r.comparison.excludes_no_effect


def test_one_flip_serves_contrasts_on_two_scales() -> None:
    # "none" lacks this part, so it is compared by difference and the others by ratio, all in one family
    values = study(n=6, a=1.0, b=1.3) | {"none": np.zeros(6)}
    pairs = [("a", "none"), ("b", "none"), ("b", "a")]
    family = Family("none", contrasts=pairs, correction="max-t", margin=MARGIN, differences=pairs[:2])
    results = analyse_family(values, family)
    assert [r.comparison.scale for r in results if r.comparison] == ["difference", "difference", "ratio"]
    assert [r.verdict.label for r in results] == ["slower"] * 3
    assert [r.comparison.margin for r in results if r.comparison] == [None, None, pytest.approx(0.05)]


def test_an_invalid_treatment_leaves_the_other_pairs_their_p() -> None:
    values = study(n=6, a=1.0, b=1.3, c=1.9)
    family = Family("none", contrasts=PAIRS, correction="max-t")
    results = analyse_family(values, family, stopped={"c": VerdictLabel.INVALID})
    assert [r.verdict.label for r in results] == ["slower", "invalid", "invalid"]
    assert [r.p_adjusted for r in results[1:]] == [None, None]
    assert results[0].comparison is not None
    assert results[0].comparison.m_family == 3


def test_the_twin_has_a_floor_of_its_own() -> None:
    # 7 blocks are too few for five treatments, and enough for one A/A contrast
    values = study(n=7, a=1.2, b=1.0, c=1.0, d=1.0, e=1.0)
    found = named(analyse_family(values, AA))
    assert said(found["a"].verdict) == "inconclusive (at least 8 blocks)"
    twin = found["none-aa"].comparison
    assert twin is not None
    assert not twin.provisional
    assert twin.m_family == 1


def test_unpaired() -> None:
    rng = np.random.default_rng(0)
    values = {"none": rng.normal(1, 0.01, 6), "a": rng.normal(1.5, 0.01, 6), "b": rng.normal(1, 0.01, 5)}
    family = Family("none", design="unpaired", margin=MARGIN)
    a, b = analyse_family(values, family)
    assert a.verdict.label == "slower"
    assert a.adjustment == "holm"
    assert a.p_adjusted == pytest.approx(2 * 2 / 924)
    assert b.verdict.label != "slower"
    assert all(r.warnings[0].code == "order-unknown" for r in (a, b))
    assert all(r.warnings == () for r in analyse_family(values, replace(family, order_known=True)))
    # Runs of a saturated treatment are not compared, but still count.
    values["b"] = 9 * values["b"]
    a, b = analyse_family(values, family, stopped={"b": VerdictLabel.SATURATED})
    assert a.p_adjusted == pytest.approx(2 * 2 / 924)
    assert (b.verdict.label, b.comparison, b.p_adjusted) == ("saturated", None, None)


def test_the_twin_of_unpaired_runs_is_not_corrected() -> None:
    rng = np.random.default_rng(0)
    values = {name: rng.normal(level, 0.01, 6) for name, level in {"none": 1, "none-aa": 1, "a": 1.5, "b": 1.2}.items()}
    *_, twin = analyse_family(values, Family("none", twin="none-aa", design="unpaired", margin=MARGIN))
    assert (twin.treatment, twin.role, twin.adjustment) == ("none-aa", "a/a", "none")
    assert twin.comparison is not None
    assert twin.comparison.m_family == 1
    assert twin.p_adjusted == twin.comparison.effect.p


def test_a_family_without_a_usable_treatment_is_judged_too() -> None:
    stopped = dict.fromkeys(("none", "none-aa", "a"), VerdictLabel.INVALID)
    results = analyse_family(study(a=1.2), AA, blocks=list(range(10)), stopped=stopped)
    assert [r.verdict.label for r in results] == ["invalid", "invalid"]


def warned(d: np.ndarray, factor: float = 1.0, m: int = 1) -> tuple[Warning, ...]:
    t, b = np.exp(d), np.ones(len(d))
    c = compare_paired(t, b, margin=Margin(0.05), m_family=m)
    p, p_eq = min(1.0, c.effect.p * factor), min(1.0, (c.against.p_equivalence if c.against else 1.0) * factor)
    verdict = decide(c, p_adjusted=p, p_equivalence_adjusted=p_eq)
    return influence({"ratio": (t, b), "difference": (t, b)}, c, verdict, p, p_eq, list(range(1, len(d) + 1)))


def test_a_difference_shown_by_every_block_hangs_on_none() -> None:
    assert warned(np.linspace(0.1, 0.3, 10)) == ()


def test_a_difference_that_hangs_on_some_blocks() -> None:
    # All blocks (n = 10) have T- = 8 and p = 2 * 25/1024 = .049.
    # Without block 7 T- = 1. Without block 1 T- = 6 of 9 and p = 2 * 14/512 = .055.
    # Without any other block T- >= 7 and p >= .07.
    d = np.array([-1, 2, 3, 4, 5, 6, -7, 8, 9, 10]) / 10
    found = warned(d)
    assert [w.code for w in found] == ["influential-block"]
    assert "not be a difference" in found[0].message
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


def of_sessions(effects: list[float], sd: float = 0.0, blocks: int = 4) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """Values of a and none, equal within each session up to the noise, and the session of each block."""
    rng, n = np.random.default_rng(3), len(effects) * blocks
    none = 1.0 + rng.uniform(0, 0.5, n)
    values = {"none": none, "a": none * np.exp(np.repeat(effects, blocks) + rng.normal(0, sd, n))}
    return values, {block: f"session {(block - 1) // blocks + 1}" for block in range(1, n + 1)}


@pytest.mark.parametrize("scale", get_args(Scale))
def test_with_sessions_as_the_unit_the_means_of_their_blocks_are_tested(scale: Scale) -> None:
    values, sessions = of_sessions([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    (of_blocks,) = analyse_family(values, Family("none", scale=scale), sessions=sessions)
    (found,) = analyse_family(values, Family("none", scale=scale, unit="session"), sessions=sessions)
    assert found.comparison is not None
    assert of_blocks.comparison is not None
    assert (found.comparison.n, found.comparison.counted, of_blocks.comparison.n) == (6, "sessions", 24)
    assert found.comparison.effect.p == pytest.approx(2 / 2**6)
    # The median of all averages of two of six means: of ratios .35, of differences from the arithmetic means.
    assert found.comparison.ratio is not None
    assert math.log(found.comparison.ratio.estimate) == pytest.approx(0.35)
    means = (values["a"] - values["none"]).reshape(6, 4).mean(axis=1)
    assert found.comparison.difference.estimate == pytest.approx(hodges_lehmann(means).estimate)


def test_five_sessions_cannot_be_called_and_a_lost_one_counts() -> None:
    values, sessions = of_sessions([0.5] * 6, sd=0.01)
    values["a"][-4:] = np.nan
    (found,) = analyse_family(values, Family("none", unit="session"), sessions=sessions)
    assert said(found.verdict) == "inconclusive (at least 6 sessions)"


def test_a_session_with_a_run_that_ranks_worst_ranks_worst() -> None:
    values, sessions = of_sessions([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    values["a"][0] = math.inf
    (found,) = analyse_family(values, Family("none", unit="session"), sessions=sessions)
    assert found.comparison is not None
    assert found.comparison.effect.high == math.inf
    assert found.comparison.effect.low == pytest.approx(math.exp(0.2))


def test_max_t_flips_whole_sessions() -> None:
    """Two contrasts that agree in all six sessions have the floor of one; 24 blocks would go far below it."""
    values, sessions = of_sessions([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    values["b"] = values["a"] * 1.1
    family = Family("none", correction="max-t", unit="session")
    assert {r.p_adjusted for r in analyse_family(values, family, sessions=sessions)} == {2 / 2**6}
    of_blocks = analyse_family(values, replace(family, unit="block"), sessions=sessions)
    assert all(r.p_adjusted is not None and r.p_adjusted < 1e-4 for r in of_blocks)
