"""Comparing studies: agreement, differences, the day as a unit, and changes of level in a series."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commandline import SAMPLE, meshtrial
from refused import refused

from meshtrial import stats
from meshtrial.design.load import FixedRate, Load
from meshtrial.design.plan import make_plan
from meshtrial.errors import UsageError
from meshtrial.inference import between, infer
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.tables import runs_table
from meshtrial.report.tables.between import between as table
from meshtrial.vocabulary import VerdictLabel

# p50 and CPU per request: what each treatment adds to 0.11 ms and 22 us.
ADDED = {"none": (0, 0), "none-aa": (0, 0), "node-proxy": (1.2e-4, 68e-6), "sidecar+mtls": (4.1e-4, 240e-6)}
PRIMARY = ("latency_p50_s", "path_cpu_s_per_request")
LOAD = FixedRate(2000, 10, 6.0)


@pytest.fixture(scope="module")
def days(make_study, make_record) -> Callable[..., list[StudyData]]:
    """Return studies that differ only in their seed, each made once; tests must not change them."""

    @cache
    def day(seed: int, load: Load) -> StudyData:
        plan = make_plan(make_study(tuple(ADDED), blocks=30, seed=seed, primary=PRIMARY, loads=(load,)))
        rng = np.random.default_rng(seed)
        of_blocks = rng.normal(0, 0.008, plan.study.blocks)
        records = []
        for run in plan.runs:
            noise = float(np.exp(of_blocks[run.repetition - 1] + rng.normal(0, 0.03)))
            p50, cpu = ADDED[run.treatment]
            responses = {"latency_p50_s": (1.1e-4 + p50) * noise, "path_cpu_s_per_request": (22e-6 + cpu) * noise}
            records.append(make_record(plan, run, responses))
        return StudyData(Path(f"day-{seed}"), plan, {}, tuple(records), runs_table(plan, records), ())

    return lambda *seeds, load=LOAD: [day(seed, load) for seed in seeds]


def slower(data: StudyData, factor: float, treatments: tuple[str, ...] = ()) -> StudyData:
    """Return the study with another p50, of some treatments or of all."""
    mine = pl.col("response") == "latency_p50_s"
    if treatments:
        mine &= pl.col("treatment").is_in(treatments)
    value = pl.when(mine).then(pl.col("value") * factor).otherwise("value")
    return replace(data, table=data.table.with_columns(value.alias("value")))


def of(found: tuple[between.Between, ...], treatment: str, baseline: str = "none") -> between.Between:
    (one,) = [o for o in found if (o.treatment, o.baseline, o.response) == (treatment, baseline, "latency_p50_s")]
    return one


def test_two_days_of_the_same_agree(days):
    one = of(between.compare(days(1, 2)), "node-proxy")
    (result,) = one.against_first
    assert one.word(result) == "agree within the margin"
    assert len(one.effects) == 2


def test_a_day_that_changes_a_treatment_differs_and_one_that_changes_all_does_not(days):
    first, second = days(1, 2)
    found = between.compare([first, slower(second, 1.4, ("node-proxy",))])
    (result,) = of(found, "node-proxy").against_first
    assert of(found, "node-proxy").word(result) == "differ"
    assert result.comparison is not None
    assert result.comparison.effect.estimate == pytest.approx(1.4, rel=0.03)
    # A slower machine cancels in the ratio; the baseline's own level shows it.
    found = between.compare([first, slower(second, 1.4)])
    (result,) = of(found, "node-proxy").against_first
    assert of(found, "node-proxy").word(result) == "agree within the margin"
    (result,) = of(found, "none", "").against_first
    assert of(found, "none", "").word(result) == "differ"


def test_two_days_are_never_as_strong_as_one_study(days):
    one = of(between.compare(days(1, 2)), "sidecar+mtls")
    assert one.over_days is not None
    within = 1.96 * min(effect.error for effect in one.effects)
    assert np.log(one.over_days.high / one.over_days.low) / 2 > within
    # If days differ a lot, the interval shows it: here it includes no effect too.
    first, second = days(3, 4)
    far = of(between.compare([first, slower(second, 1.5, ("sidecar+mtls",))]), "sidecar+mtls")
    assert far.over_days is not None
    assert far.over_days.low < 1
    assert far.over_days.between_sd == pytest.approx(np.log(1.5) / np.sqrt(2), rel=0.2)


def test_the_interval_over_days_covers_what_days_vary_around():
    """In 200 series of six days whose effects vary by 10 %, about 95 % of the intervals contain the true effect."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(200):
        effects = []
        for day in range(6):
            logs = np.log(1.3) + 0.1 * rng.standard_normal() + 0.05 * rng.standard_normal(10)
            effects.append(between.effect_of(day, np.exp(logs), np.ones(10), "ratio"))
        over = between.over_days(effects, "ratio", 0.05)
        assert over is not None
        inside += over.low <= 1.3 <= over.high
    assert 180 <= inside <= 199


def test_other_questions_and_other_loads_are_refused(days):
    first, second = days(1, 2)
    other = replace(second, plan=replace(second.plan, study=replace(second.plan.study, name="scale_out")))
    with refused(UsageError):
        between.compare([first, other])
    (elsewhere,) = days(3, load=FixedRate(500, 10, 6.0))
    with refused(UsageError):
        between.compare([first, elsewhere])
    with refused(UsageError):
        between.compare([first])


def test_the_table_names_the_studies_and_says_what_it_cannot(days):
    studies = days(1, 2, 3)
    shown = table(studies, between.compare(studies), ["rps: 500 / 2000"]).text
    assert "A: " in shown
    assert "C: " in shown
    assert "Differs between them: rps: 500 / 2000" in shown
    assert "may come from the day" in shown
    assert "none, its value" in shown


@pytest.mark.parametrize(
    ("factor", "more_s", "scale"),
    [
        (1.0, 0.0, "they suggest that neither scale agrees better"),
        (2.0, 0.0, "affected the baseline and the treatments in proportion"),  # everything takes twice the time
        (1.0, 1e-3, "the added amounts changed less"),  # everything takes a millisecond more
    ],
)
def test_which_scale_holds_better_is_what_the_studies_say(days, factor, more_s, scale):
    first, second = days(1, 2)
    value = pl.when(pl.col("response") == "latency_p50_s").then(pl.col("value") * factor + more_s).otherwise("value")
    studies = [first, replace(second, table=second.table.with_columns(value.alias("value")))]
    assert scale in " ".join(table(studies, between.compare(studies), []).text.split())


def test_many_studies_are_summed_up_in_one_line_each(days):
    studies = days(1, 2, 3, 4, 5, 6)
    shown = table(studies, between.compare(studies), []).text
    assert "smallest" in shown
    assert "of 5" in shown


def test_a_study_of_the_baseline_and_its_twin_alone_judges_the_twin(make_study, make_record):
    plan = make_plan(make_study(("none", "none-aa"), primary=PRIMARY))
    records = [make_record(plan, run, dict.fromkeys(PRIMARY, 1e-3 + 1e-5 * run.sequence)) for run in plan.runs]
    _, rows = infer(plan, records)
    assert {(row.treatment, row.twin) for row in rows} == {("none-aa", True)}
    assert {row.response for row in rows} >= set(PRIMARY)


def test_versions_as_treatments_are_no_change_from_study_to_study(days):
    def versioned(data: StudyData, of_node_proxy: str, turned: bool) -> StudyData:
        told = {"none": "proxy:1", "node-proxy": of_node_proxy}
        runs = [replace(run, versions={"image proxy": told.get(run.treatment, "proxy:1")}) for run in data.runs]
        return replace(data, runs=tuple(reversed(runs) if turned else runs))

    first, second = days(1, 2)
    studies = [versioned(first, "proxy:2", False), versioned(second, "proxy:2", True)]
    assert not [line for line in between.differences(studies) if "version of" in line]
    studies[1] = versioned(second, "proxy:3", False)
    assert "version of image proxy: proxy:1, proxy:2 / proxy:1, proxy:3" in between.differences(studies)


def test_the_command_compares_two_studies_and_refuses_what_it_cannot(tmp_path, copied):
    target = tmp_path / "between.json"
    code, out, err = meshtrial("compare", SAMPLE, copied, "--json", target)
    assert (code, err) == (0, "")
    assert "Study against study" in out
    assert json.loads(target.read_text())["schema"] == "meshtrial.between/1"
    for argv, why in (
        ([], "give --baseline"),
        ([SAMPLE], "name two or more"),
        ([SAMPLE, SAMPLE], "named twice"),
        ([SAMPLE, copied, "--fail-on", "slower"], "gates"),
    ):
        code, _, err = meshtrial("compare", *argv)
        assert code == 2
        assert why in err


def test_where_the_baseline_moves_the_added_amount_agrees_and_the_ratio_does_not():
    """Two sessions of one machine in another idle state: 0.4 ms are added in both, to 0.08 and to 0.13 ms."""
    rng = np.random.default_rng(2)

    def taken(base: float) -> tuple[np.ndarray, np.ndarray]:
        level = base * np.exp(0.02 * rng.standard_normal(12))
        return level + 4e-4 * np.exp(0.03 * rng.standard_normal(12)), level

    found = between.of_values({0: taken(8e-5), 1: taken(1.3e-4)}, Margin(0.05, 5e-5))
    assert found is not None
    (by_ratio,), (by_amount,) = found.against_first, found.added
    assert (found.word(by_ratio), found.word(by_amount)) == ("differ", "agree within the margin")


def test_the_next_day_is_predicted_on_both_scales_from_three_on():
    """Three sessions that differ by 5 %: each scale has its own interval, much wider than that of the mean."""
    rng = np.random.default_rng(8)

    def taken() -> tuple[np.ndarray, np.ndarray]:
        base = 1e-4 * np.exp(0.02 * rng.standard_normal(10))
        return base + 4e-4 * np.exp(0.05 * rng.standard_normal() + 0.02 * rng.standard_normal(10)), base

    studies = dict(enumerate(taken() for _ in range(4)))
    found = between.of_values({i: studies[i] for i in range(3)}, None)
    assert found is not None
    for over, of_scale in ((found.over_days, "ratio"), (found.added_over_days, "difference")):
        means = [between.effect_of(i, *studies[i], of_scale).mean for i in range(4)]
        low, high = stats.next_session(means[:3])
        ends = (np.exp(low), np.exp(high)) if of_scale == "ratio" else (low, high)
        assert (over.next_low, over.next_high) == pytest.approx(ends)
        assert low <= means[3] <= high
    two = between.of_values({i: studies[i] for i in range(2)}, None)
    assert (two.over_days.next_low, two.added_over_days.next_high) == (None, None)


def test_the_interval_over_days_is_never_narrower_than_the_noise_inside_them():
    # Three days that happen to lie closer together than their own noise.
    logs = np.linspace(-0.3, 0.3, 10)
    effects = [between.effect_of(day, np.exp(0.2 + 1e-4 * day + logs), np.ones(10), "ratio") for day in range(3)]
    over = between.over_days(effects, "ratio", 0.05)
    assert over is not None
    inside = effects[0].error / np.sqrt(3)
    assert np.log(over.high / over.low) / 2 > 1.9 * inside
    assert (over.between_sd, over.sd_low) == (0, 0)


def test_a_spread_has_an_interval_and_two_days_have_none():
    rng = np.random.default_rng(6)

    def days(many: int) -> between.OverDays:
        means = 0.2 * rng.standard_normal(many)
        logs = means[:, None] + 0.05 * rng.standard_normal((many, 10))
        effects = [between.effect_of(i, np.exp(day), np.ones(10), "ratio") for i, day in enumerate(logs)]
        over = between.over_days(effects, "ratio", 0.05)
        assert over is not None
        return over

    assert (days(2).sd_low, days(2).sd_high) == (None, None)
    held = 0
    for _ in range(200):
        over = days(6)
        assert over.sd_low is not None
        assert over.sd_high is not None
        assert over.sd_low <= over.between_sd <= over.sd_high
        held += over.sd_low <= 0.2 <= over.sd_high
    assert 180 <= held <= 199


def test_an_unfinished_study_is_said_to_be_one(days, make_row):
    first, second = days(1, 2)
    early = replace(second, verdicts=(make_row(verdict=VerdictLabel.PROVISIONAL),))
    shown = table([first, early], between.compare([first, early]), []).text
    assert "B is not finished" in shown
    assert "A is not finished" not in shown
    assert "not estimable" in shown


def series(ratios: list[float], treatment: str = "sidecar") -> between.Between:
    """Studies of four blocks whose mean ratio to the baseline is known."""
    spread = np.exp([0.01, -0.01, 0.02, -0.02])
    taken = {i: (ratio * spread, np.ones(4)) for i, ratio in enumerate(ratios)}
    one = between.of_values(taken, None, of=("100rps", "latency_p50_s", treatment, "none"))
    assert one is not None
    return one


STEADY = [1.5 + 0.01 * (i * 7 % 12) for i in range(12)]


def test_a_change_of_one_treatment_is_marked_at_its_study_and_not_in_the_twin():
    compared = [series([ratio + 0.5 * (i >= 8) for i, ratio in enumerate(STEADY)]), series(STEADY, "none-aa")]
    (change,), twin = between.levels(compared)
    assert twin == ()
    assert compared[0].effects[change.index].study == 8
    assert math.exp(change.before) == pytest.approx(np.exp(np.log(STEADY[:8]).mean()))
    assert math.exp(change.after) == pytest.approx(2.0, abs=0.1)
    assert change.p_adjusted < 0.05


def test_differences_are_kept_beside_ratios():
    one = series(STEADY)
    assert [effect.mean for effect in one.added_effects] == pytest.approx([ratio - 1 for ratio in STEADY], abs=1e-3)
