from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtrial.stats import Margin, compare_paired
from meshtrial.stats.contrast import Comparison, compare_unpaired
from meshtrial.stats.verdict import (
    NoiseFloor,
    Verdict,
    block_count,
    blocks_of_a_new_study,
    decide,
    effect_size,
    noise_floor,
)
from meshtrial.vocabulary import VerdictLabel, sentence


def contrast(ratio: float, sd: float = 0.01, n: int = 10, margin: float | None = 0.05, m: int = 1) -> Comparison:
    d = np.log(ratio) + sd * np.linspace(-1.5, 1.5, n)
    return compare_paired(np.exp(d), np.ones(n), margin=None if margin is None else Margin(margin), m_family=m)


def judged(c: Comparison, **options: object) -> Verdict:
    return decide(
        c,
        p_adjusted=c.effect.p,
        p_equivalence_adjusted=c.against and c.against.p_equivalence,
        p_material_adjusted=c.against and c.against.p_material,
        **options,  # type: ignore[arg-type]
    )


def said(verdict: Verdict) -> str:
    return sentence(verdict.label, verdict.qualifier)


def floor(size: float, p: float = 0.002) -> NoiseFloor:
    """An A/A contrast with a significant difference of about this size."""
    return NoiseFloor(size, size * 0.8, size * 1.2, p)


@pytest.mark.parametrize(
    ("c", "text"),
    [
        (contrast(1.2), "slower (material)"),
        # 2 % slower, shown; and shown to be within 5 %
        (contrast(1.02, sd=0.005), "slower (below margin)"),
        (contrast(1.05, sd=0.02), "slower"),
        (contrast(1.0), "equivalent"),
        (contrast(1.001, sd=0.1, margin=None), "inconclusive"),
        (contrast(1.5, n=6, m=5), "inconclusive (at least 8 blocks)"),
    ],
)
def test_what_is_said(c: Comparison, text: str) -> None:
    verdict = judged(c)
    assert said(verdict) == text
    assert verdict.label.different == text.startswith("slower")
    assert verdict.blocks == (8 if "8 blocks" in text else None)


@pytest.mark.parametrize(
    ("kind", "up", "down"),
    [("latency", "slower", "faster"), ("resource", "more", "less"), ("level", "higher", "lower")],
)
def test_words(kind: str, up: str, down: str) -> None:
    assert judged(contrast(1.2), kind=kind).label == up
    assert judged(contrast(1 / 1.2), kind=kind).label == down


def test_inconclusive_says_how_many_blocks() -> None:
    c = contrast(1.02, sd=0.1)
    verdict = judged(c)
    assert verdict.label == "inconclusive"
    assert c.against is not None
    assert verdict.blocks == max(c.against.needed_difference, c.against.needed_equivalence)
    assert said(verdict) == f"inconclusive (a new study of {block_count(verdict.blocks)} blocks)"
    assert not verdict.label.conclusive


@pytest.mark.parametrize(
    ("n", "text"), [(13, "about 13"), (20, "about 20"), (23, "about 20"), (469, "about 500"), (960, "1000 or more")]
)
def test_beyond_twenty_blocks_one_digit_is_all_that_an_estimated_noise_gives(n: int, text: str) -> None:
    assert block_count(n) == text


def test_an_estimate_that_may_be_nothing_gives_no_number_of_blocks() -> None:
    # Enough blocks for the margin, an estimate beyond it, and an interval that includes "no effect".
    d = 0.06 + np.array([-0.3, *[0.0] * 38, 0.3]) + 0.12 * np.linspace(-1.5, 1.5, 40)
    c = compare_paired(np.exp(d), np.ones(40), margin=Margin(0.05))
    c = replace(c, against=replace(c.against, needed_difference=30, needed_equivalence=30))
    known = replace(c, ratio=replace(c.ratio, low=1.01))
    unknown = replace(c, ratio=replace(c.ratio, low=0.99))
    assert (blocks_of_a_new_study(known) or 0) > 40
    assert blocks_of_a_new_study(unknown) is None


def test_inconclusive_between_the_two_asks_for_more_than_there_were() -> None:
    # enough blocks for the plan, but nothing is significant after the correction
    c = contrast(1.02, sd=0.02, n=30)
    verdict = decide(c, p_adjusted=0.2, p_equivalence_adjusted=0.2)
    assert verdict.blocks is not None
    assert verdict.blocks > 30


def test_unstable_comes_before_a_difference() -> None:
    c = contrast(1.08)
    assert judged(c).label == "slower"
    verdict = judged(c, noise=floor(0.10))
    assert verdict.label == "unstable"
    assert said(verdict) == f"unstable (a new study of {block_count(verdict.blocks)} blocks)"


# A noise floor beyond the margin that chance alone gives, and one of so few blocks that they cannot reach 1 %.
WIDE, SEVEN = NoiseFloor(0.08, 0.0, 0.2, 0.3), NoiseFloor(0.08, 0.06, 0.1, 2 / 128)


@pytest.mark.parametrize(
    ("ratio", "noise", "label"),
    [
        (1.08, floor(0.04), "slower"),  # shown to lie within the margin of 5 %
        (3.0, floor(0.10), "slower"),
        (1 / 3.0, floor(0.10), "faster"),
        (1.0, floor(0.06), "unstable"),  # before equivalent
        (1.08, WIDE, "slower"),
        (1.0, WIDE, "equivalent"),
        (1.0, SEVEN, "unstable"),
    ],
)
def test_noise_makes_unstable_what_does_not_lie_beyond_it(ratio: float, noise: NoiseFloor, label: str) -> None:
    assert judged(contrast(ratio), noise=noise).label == label


def test_dependent_blocks_take_every_label() -> None:
    for ratio in (1.0, 1.03):
        verdict = judged(contrast(ratio), dependent=True)
        assert said(verdict) == "dependent"
        assert not verdict.label.conclusive
    # 20 % are 18 standard deviations of the block differences: no dependence of a few blocks makes that.
    assert said(judged(contrast(1.2), dependent=True)) == "slower (material)"
    assert judged(contrast(1.2), dependent=True, stopped=VerdictLabel.INVALID).label == "invalid"


def test_material_is_what_its_own_corrected_test_shows() -> None:
    c = contrast(1.2)
    assert c.effect.low > 1.05
    assert said(decide(c, p_adjusted=c.effect.p, p_material_adjusted=0.06)) == "slower"
    assert said(decide(c, p_adjusted=c.effect.p, p_material_adjusted=0.05)) == "slower (material)"


def test_invalid_and_saturated_come_first() -> None:
    c = contrast(3.0)
    assert judged(c, stopped=VerdictLabel.INVALID).label == "invalid"
    assert judged(c, stopped=VerdictLabel.SATURATED, noise=floor(1.0)).label == "saturated"
    verdict = decide(None, p_adjusted=None)
    assert verdict == Verdict(VerdictLabel.INVALID, "")


def test_the_corrected_p_decides() -> None:
    c = contrast(1.2)
    assert decide(c, p_adjusted=0.06, p_equivalence_adjusted=None).label == "inconclusive"
    assert decide(c, p_adjusted=0.05, p_equivalence_adjusted=None).label == "slower"


def test_unpaired_counts_runs() -> None:
    c = compare_unpaired([1, 1.5, 2], [1.1, 1.4, 2.1], margin=Margin(0.05))
    verdict = decide(c, p_adjusted=c.effect.p)
    assert said(verdict) == "inconclusive (at least 4 runs of each treatment)"


def test_what_buckets_may_have_made_is_not_called() -> None:
    # 3 to 5 % slower, shown; each quantile known to 3 % of itself: 0.97 / 1.03 of the lower end lies below 1.
    c = contrast(1.04)
    assert said(judged(c)) == "slower (below margin)"
    assert said(judged(c.widened(0.03, 0.03))) == "inconclusive (the buckets are too coarse to tell)"
    # Known to 0.5 %, the upper end reaches beyond the margin of 5 %.
    assert said(judged(c.widened(0.005, 0.005))) == "slower"
    assert c.widened(0, 0) is c


@given(st.floats(0, 0.3), st.floats(0, 0.3), st.sampled_from([1.0, 1.02, 1.05, 1.2]), st.sampled_from([0.005, 0.1]))
def test_buckets_never_narrow_an_interval_and_never_make_a_verdict(
    treatment: float, baseline: float, ratio: float, sd: float
) -> None:
    c = contrast(ratio, sd)
    wide = c.widened(treatment, baseline)
    assert wide.effect.low <= c.effect.low
    assert wide.effect.high >= c.effect.high
    sharp, blunt = judged(c), judged(wide)
    assert blunt.label in (sharp.label, VerdictLabel.INCONCLUSIVE)
    assert blunt.label is VerdictLabel.INCONCLUSIVE or blunt.qualifier in (sharp.qualifier, "")


def test_no_verdict_ever_says_no_difference() -> None:
    texts = {
        said(judged(contrast(r, sd, n), noise=noise))
        for r in (0.5, 1.0, 1.02, 2.0)
        for sd in (0.001, 0.1)
        for n in (3, 10)
        for noise in (None, floor(0.2))
    }
    assert len(texts) > 5
    assert not any("no difference" in t or "same" in t for t in texts)


def test_noise_on_the_difference_scale() -> None:
    zero = np.zeros(8)
    aa = noise_floor(compare_paired(zero, zero, scale="difference", margin=Margin(0.1, 0.01)))
    assert aa.floor == 0
    cores = 0.3 + np.arange(8) / 100
    c = compare_paired(cores, zero, scale="difference", margin=Margin(0.1, 0.01))
    verdict = decide(
        c, p_adjusted=c.effect.p, p_material_adjusted=c.against and c.against.p_material, noise=aa, kind="resource"
    )
    assert said(verdict) == "more (material)"


def test_floor_is_the_apparent_effect_in_either_direction() -> None:
    none = np.ones(6)
    aa = np.array([1.01, 1.02, 1.03, 1.04, 1.05, 1.06])
    up, down = noise_floor(compare_paired(aa, none)), noise_floor(compare_paired(none, aa))
    assert up.floor == pytest.approx(0.035, abs=1e-3)
    assert down.floor == pytest.approx(up.floor)
    assert up.upper == pytest.approx(0.06)


@pytest.mark.parametrize(("blocks", "noise_exceeds_margin"), [(5, False), (6, True), (7, True), (10, True)])
def test_a_twin_that_is_apart_in_every_block_is_seen_by_as_few_as_can_show_it(
    blocks: int, noise_exceeds_margin: bool
) -> None:
    # Up to twice the margin, and down to nearly nothing: the interval is not wholly beyond it.
    aa = np.linspace(1.001, 1.1, blocks)
    noise = noise_floor(compare_paired(aa, np.ones(blocks)))
    assert noise.low < 0.05 < noise.upper
    assert noise.noise_exceeds_margin(0.05) is noise_exceeds_margin


def test_effect_size() -> None:
    assert effect_size(1.25, "ratio") == pytest.approx(0.25)
    assert effect_size(0.8, "ratio") == pytest.approx(0.25)
    assert effect_size(-3.0, "difference") == 3.0
