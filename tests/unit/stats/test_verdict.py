import numpy as np
import pytest

from meshtrial.stats import Margin, compare_paired, compare_unpaired, decide, noise_floor
from meshtrial.stats.comparison import Comparison
from meshtrial.stats.noise import NoiseFloor
from meshtrial.stats.verdict import Verdict


def contrast(ratio: float, sd: float = 0.01, n: int = 10, margin: float | None = 0.05, m: int = 1) -> Comparison:
    d = np.log(ratio) + sd * np.linspace(-1.5, 1.5, n)
    return compare_paired(np.exp(d), np.ones(n), margin=None if margin is None else Margin(margin), m_family=m)


def judged(c: Comparison, **options: object) -> Verdict:
    return decide(
        c,
        p_adjusted=c.p,
        p_equivalence_adjusted=c.p_equivalence,
        p_material_adjusted=c.p_material,
        **options,  # type: ignore[arg-type]
    )


def floor(size: float, p: float = 0.002) -> NoiseFloor:
    """An A/A contrast that was shown to differ, by about this much."""
    return NoiseFloor(size, size * 0.8, size * 1.2, size, p, 10, "ratio")


def test_material() -> None:
    verdict = judged(contrast(1.2))
    assert (verdict.label, verdict.qualifier, verdict.text) == ("slower", "material", "slower (material)")
    assert verdict.different


def test_below_margin() -> None:
    # 2 % slower, shown; and shown to be within 5 %
    verdict = judged(contrast(1.02, sd=0.005))
    assert verdict.text == "slower (below margin)"


def test_neither_material_nor_below_margin() -> None:
    verdict = judged(contrast(1.05, sd=0.02))
    assert (verdict.label, verdict.qualifier) == ("slower", "")


@pytest.mark.parametrize(
    ("kind", "up", "down"),
    [("latency", "slower", "faster"), ("resource", "more", "less"), ("level", "higher", "lower")],
)
def test_words(kind: str, up: str, down: str) -> None:
    assert judged(contrast(1.2), kind=kind).label == up
    assert judged(contrast(1 / 1.2), kind=kind).label == down


def test_equivalent() -> None:
    verdict = judged(contrast(1.0))
    assert verdict.label == "equivalent"
    assert not verdict.different


def test_inconclusive_says_how_many_blocks() -> None:
    c = contrast(1.02, sd=0.1)
    verdict = judged(c)
    assert verdict.label == "inconclusive"
    assert c.needed_difference is not None
    assert c.needed_equivalence is not None
    assert verdict.blocks == max(c.needed_difference, c.needed_equivalence)
    assert verdict.text == f"inconclusive (a new study of about {verdict.blocks} blocks)"
    assert verdict.mde == c.mde
    assert not verdict.conclusive


def test_inconclusive_between_the_two_asks_for_more_than_there_were() -> None:
    # enough blocks for the plan, but the correction leaves nothing shown
    c = contrast(1.02, sd=0.02, n=30)
    verdict = decide(c, p_adjusted=0.2, p_equivalence_adjusted=0.2)
    assert verdict.blocks is not None
    assert verdict.blocks > 30


def test_without_a_margin_there_is_no_plan() -> None:
    verdict = judged(contrast(1.001, sd=0.1, margin=None))
    assert verdict.text == "inconclusive"
    assert verdict.blocks is None
    assert verdict.mde is not None


def test_below_the_floor() -> None:
    verdict = judged(contrast(1.5, n=6, m=5))
    assert verdict.text == "inconclusive: at least 8 blocks"
    assert verdict.blocks == 8


def test_unstable_comes_before_a_difference() -> None:
    c = contrast(1.08)
    assert judged(c).label == "slower"
    assert judged(c, noise=floor(0.04)).label == "slower"  # shown to lie within the margin of 5 %
    verdict = judged(c, noise=floor(0.10))
    assert verdict.label == "unstable"
    assert verdict.text == f"unstable (a new study of about {verdict.blocks} blocks)"
    assert "10.0%" in verdict.reason
    assert "5.0%" in verdict.reason


def test_unstable_leaves_an_effect_beyond_the_noise() -> None:
    assert judged(contrast(3.0), noise=floor(0.10)).label == "slower"
    assert judged(contrast(1 / 3.0), noise=floor(0.10)).label == "faster"


def test_a_noise_floor_beyond_the_margin_that_chance_alone_gives_is_not_unstable() -> None:
    wide = NoiseFloor(0.08, 0.0, 0.2, 0.05, 0.3, 10, "ratio")
    assert judged(contrast(1.08), noise=wide).label == "slower"
    assert judged(contrast(1.0), noise=wide).label == "equivalent"


def test_an_interval_beyond_the_margin_is_unstable_also_where_few_blocks_cannot_reach_one_per_cent() -> None:
    seven = NoiseFloor(0.08, 0.06, 0.1, 0.01, 2 / 128, 7, "ratio")
    assert judged(contrast(1.0), noise=seven).label == "unstable"


def test_dependent_blocks_take_every_label() -> None:
    for ratio in (1.0, 1.03):
        verdict = judged(contrast(ratio), dependent=True)
        assert verdict.text == "inconclusive: the blocks depend on each other"
        assert not verdict.conclusive
    # 20 % are 18 standard deviations of the block differences: no dependence of a few blocks makes that.
    assert judged(contrast(1.2), dependent=True).text == "slower (material)"
    assert judged(contrast(1.2), dependent=True, invalid="proof failed").label == "invalid"


def test_material_is_what_its_own_corrected_test_shows() -> None:
    c = contrast(1.2)
    assert c.ci_low > 1.05
    assert decide(c, p_adjusted=c.p, p_material_adjusted=0.06).text == "slower"
    assert decide(c, p_adjusted=c.p, p_material_adjusted=0.05).text == "slower (material)"


def test_unstable_comes_before_equivalent() -> None:
    assert judged(contrast(1.0), noise=floor(0.06)).label == "unstable"


def test_invalid_and_saturated_come_first() -> None:
    c = contrast(3.0)
    assert judged(c, invalid="proof failed", saturated="fell behind").label == "invalid"
    assert judged(c, saturated="fell behind", noise=floor(1.0)).label == "saturated"
    verdict = decide(None, p_adjusted=None)
    assert (verdict.label, verdict.reason) == ("invalid", "fewer than 2 complete blocks are left")


def test_the_corrected_p_decides() -> None:
    c = contrast(1.2)
    assert decide(c, p_adjusted=0.06, p_equivalence_adjusted=None).label == "inconclusive"
    assert decide(c, p_adjusted=0.05, p_equivalence_adjusted=None).label == "slower"


def test_unpaired_counts_runs() -> None:
    c = compare_unpaired([1, 1.5, 2], [1.1, 1.4, 2.1], margin=Margin(0.05))
    verdict = decide(c, p_adjusted=c.p)
    assert verdict.text == "inconclusive: at least 4 runs of each treatment"


def test_no_verdict_ever_says_no_difference() -> None:
    texts = {
        judged(contrast(r, sd, n), noise=noise).text
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
    verdict = decide(c, p_adjusted=c.p, p_material_adjusted=c.p_material, noise=aa, kind="resource")
    assert verdict.text == "more (material)"
