"""Another margin, error level or baseline: the same inference on the same runs, marked after the fact."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from refused import refused

from meshtrial.commands.verify import same
from meshtrial.design.plan import make_plan
from meshtrial.errors import UsageError
from meshtrial.inference import claim, infer
from meshtrial.inference.ranking import rankings
from meshtrial.inference.reanalysis import reanalyse
from meshtrial.margin import Margin
from meshtrial.records import listing
from meshtrial.records.dataset import StudyData
from meshtrial.vocabulary import BETWEEN

# The newest recorded one of each question; `verify` analyses all of them.
NEWEST = {path.name.partition("-")[0]: name for name, path in listing.samples().items() if path.is_file()}.values()
TREATMENTS = ("none", "none-aa", "node-proxy", "sidecar")
# Around 10 ms, where the floor of 0.05 ms never decides: the proxy adds 11 to 13 %, and the twin less than 1 %.
P50 = {
    "none": [1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.01],
    "none-aa": [1.004, 1.016, 0.995, 1.007, 1.034, 0.977, 1.003, 1.006],
    "node-proxy": [1.12, 1.145, 1.1, 1.135, 1.15, 1.099, 1.117, 1.13],
    "sidecar": [1.5, 1.54, 1.47, 1.52, 1.56, 1.46, 1.49, 1.53],
}
CPU = {"none": 0.0, "none-aa": 0.0, "node-proxy": 2e-5, "sidecar": 5e-5}


@pytest.fixture
def recorded(make_study, make_record, tmp_path) -> Callable[..., StudyData]:
    def make(blocks: int = 8, **more: Any) -> StudyData:
        margins = {"latency_p50_s": Margin(0.05, 5e-5), "data_plane_cpu_s_per_request": Margin(0.1)}
        plan = make_plan(make_study(TREATMENTS, blocks=blocks, margins=margins, **more))
        records = []
        for run in plan.runs:
            p50 = P50[run.treatment][(run.repetition - 1) % 8]
            cpu = CPU[run.treatment] * p50
            records.append(make_record(plan, run, {"latency_p50_s": p50 / 100, "data_plane_cpu_s_per_request": cpu}))
        table, rows = infer(plan, records)
        return StudyData(tmp_path, plan, {}, tuple(records), table, tuple(rows))

    return make


@pytest.fixture
def data(recorded) -> StudyData:
    return recorded()


def verdict(data: StudyData, treatment: str, response: str = "latency_p50_s") -> str:
    (row,) = [row for row in data.verdicts if (row.treatment, row.response) == (treatment, response)]
    return f"{row.verdict} {row.qualifier}".strip() if row.verdict.different else row.verdict


def test_the_declared_values_give_the_declared_rows_and_no_mark(data):
    again = reanalyse(data, margin="p50=5%,0.05ms", alpha=0.05, baseline="none")
    assert again.changes == ""
    assert again.data.verdicts == data.verdicts


@pytest.mark.parametrize("name", NEWEST)
def test_a_recorded_study_gives_its_own_verdicts_again(name: str, sample: Callable[[str], StudyData]):
    data = sample(name)
    again = reanalyse(data)
    assert again.changes == ""
    # Recorded on another processor, whose logarithms round the last digit differently.
    recomputed, recorded = ([claim(row.to_dict()) for row in one.verdicts] for one in (again.data, data))
    assert same(recomputed, recorded)


@pytest.mark.parametrize(
    ("margin", "proxy", "twin"),
    [
        # +12 %: all eight blocks lie beyond 5 %, p = 1/256; on both sides of 12 %; within 30 %
        ("5%", "slower material", "equivalent"),
        ("12%", "slower", "equivalent"),
        ("30%", "slower below margin", "equivalent"),
        # the twin lies within 1 % and not within 0.1 %; the floor is put out of the way
        ("0.1%,0.0001ms", "slower material", "inconclusive"),
        # a floor of 3 ms on 10 ms decides as 30 % does
        ("3ms", "slower below margin", "equivalent"),
    ],
)
def test_labels_move_as_the_margin_does(data, margin, proxy, twin):
    found = reanalyse(data, margin=margin).data
    assert verdict(found, "node-proxy") == proxy
    assert verdict(found, "none-aa") == twin
    assert verdict(data, "node-proxy") == "slower material"


def test_only_the_tests_against_the_margin_change_with_it(data):
    before = data.verdicts[0]
    after = reanalyse(data, margin="30%").data.verdicts[0]
    assert (before.ratio, before.ci_low, before.ci_high, before.p, before.p_adjusted) == (
        after.ratio,
        after.ci_low,
        after.ci_high,
        after.p,
        after.p_adjusted,
    )
    # all eight differences beyond 5 % and within 30 %: 1/256 each, twice that by Holm over two contrasts
    assert before.p_material == after.p_equivalence == 1 / 256
    assert after.p_equivalence_adjusted == 2 / 256
    assert (after.margin_relative, before.margin_relative) == (0.3, 0.05)


def test_no_more_is_called_than_the_level_allows(data):
    # eight blocks cannot give less than 2/256 = 0.0078
    strict = reanalyse(data, alpha=0.005)
    assert verdict(strict.data, "node-proxy") == "inconclusive"
    assert strict.changes == "alpha 0.005 instead of 0.05, declared before the runs"
    assert [row.confidence for row in strict.data.verdicts] != [row.confidence for row in data.verdicts]


def test_another_level_scales_that_of_the_look_that_ended_the_study(recorded):
    # two looks spend 0.01 of 0.05 at ten blocks, so they would have spent 0.02 of 0.1
    looked = recorded(16, stopping={"rule": "two-looks"})
    some = tuple(run for run in looked.runs if run.repetition <= 10)
    table, rows = infer(looked.plan, some)
    early = replace(looked, runs=some, table=table, verdicts=tuple(rows))
    fixed = recorded(10, alpha=0.02, stopping={"rule": "fixed", "n": 10, "alpha": 0.02})
    again = reanalyse(early, alpha=0.1).data.verdicts
    assert {row.verdict for row in again} != {"provisional"}
    assert [(row.confidence, row.p_adjusted, row.verdict) for row in again] == [
        (row.confidence, row.p_adjusted, row.verdict) for row in fixed.verdicts
    ]


def test_another_baseline_is_one_family_of_all_others_against_it(data):
    found = reanalyse(data, baseline="node-proxy")
    assert found.changes == "baseline node-proxy instead of none, declared before the runs"
    rows = {row.treatment: row for row in found.data.verdicts if row.response == "latency_p50_s"}
    assert {name: row.baseline for name, row in rows.items()} == {
        "none": "node-proxy",
        "sidecar": "node-proxy",
        "none-aa": "none",
    }
    assert [row.verdict for row in rows.values()] == ["faster", "slower", "equivalent"]
    # 2/256 is the smallest p of eight blocks; Holm over two contrasts doubles it
    assert [(row.p, row.p_adjusted) for row in rows.values() if not row.twin] == [(2 / 256, 4 / 256)] * 2
    own = next(row for row in data.verdicts if row.treatment == "node-proxy")
    assert rows["none"].ratio == pytest.approx(1 / own.ratio)


def test_declared_contrasts_give_way_to_the_family_of_the_baseline(make_study, data):
    contrasts = reanalyse(data, baseline="sidecar").data.plan.study.contrasts
    declared = replace(data.plan.study, contrasts=contrasts)
    study = replace(data, plan=replace(data.plan, study=declared))
    back = reanalyse(study, baseline="none")
    assert back.changes == "baseline none instead of the declared contrasts, declared before the runs"
    kept = [(row.treatment, row.p_adjusted, row.verdict) for row in back.data.verdicts]
    assert kept == [(row.treatment, row.p_adjusted, row.verdict) for row in data.verdicts]


def test_a_part_that_the_treatment_lacks_is_compared_as_a_difference(data):
    rows = reanalyse(data, baseline="node-proxy").data.verdicts
    (row,) = [row for row in rows if row.treatment == "none" and row.response == "data_plane_cpu_s_per_request"]
    assert row.ratio is None
    assert row.difference < 0
    assert row.verdict == "less"


def test_every_row_says_that_it_is_after_the_fact(data):
    found = reanalyse(data, margin="10%")
    assert found.changes == "margin 10\u00a0% instead of 5\u00a0%, declared before the runs"
    assert all(row.after_the_fact == found.changes for row in found.data.verdicts)
    assert not any(row.after_the_fact for row in data.verdicts)


def test_a_margin_of_an_exploratory_response_is_said_as_such(data):
    said = reanalyse(data, margin="data_plane_cpu_s_per_request=20%").changes
    assert said == "margins of exploratory responses, declared before the runs"


def test_several_choices_are_said_together(data):
    said = reanalyse(data, margin="0.2ms", alpha=0.1, baseline="sidecar").changes.replace("\u00a0", " ")
    assert said == (
        "floor 0.2 ms instead of 0.05 ms; alpha 0.1 instead of 0.05; baseline sidecar instead of none, "
        "declared before the runs"
    )


def test_what_all_primary_responses_share_is_said_once(data):
    study = replace(data.plan.study, primary=("latency_p50_s", "data_plane_cpu_s_per_request"))
    both = replace(data, plan=replace(data.plan, study=study))
    said = reanalyse(both, margin="20%,0.1ms").changes.replace("\u00a0", " ")
    assert said == "margin 20 % instead of 5 % and 10 %; floor 0.1 ms instead of 0.05 ms, declared before the runs"
    none = replace(data, plan=replace(data.plan, study=replace(study, margins={"latency_p50_s": Margin(0.05)})))
    said = reanalyse(none, margin="0.1ms").changes.replace("\u00a0", " ")
    assert said == "floor 0.1 ms instead of none, declared before the runs"
    said = reanalyse(both, margin="10%").changes.replace("\u00a0", " ")
    assert said == "margin of p50 latency 10 % instead of 5 %, declared before the runs"


def test_an_unfinished_study_stays_without_a_verdict(data, make_record):
    some = tuple(run for run in data.runs if run.repetition < 8)
    table, rows = infer(data.plan, some)
    found = reanalyse(replace(data, runs=some, table=table, verdicts=tuple(rows)), margin="30%")
    assert {row.verdict for row in found.data.verdicts} == {"provisional"}


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"margin": "ten"}, ("ten", "5%", "0.2ms")),
        ({"margin": "p51=5%"}, ("'p51'", "p50")),
        ({"margin": "-5%"}, ("-5%", "5%", "0.2ms")),
        ({"alpha": 0.7}, ("alpha", 0.7, 0.5)),
        ({"baseline": "linkerd"}, ("baseline", "linkerd", "none", "node-proxy", "sidecar")),
        ({"baseline": "none-aa"}, ("baseline", "none-aa", "node-proxy", "sidecar")),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(data, asked, named):
    with refused(UsageError, names=[*named]):
        reanalyse(data, **asked)


def test_pairs_bring_their_own_correction_to_a_study_that_declared_another(recorded):
    data = recorded()
    study = replace(data.plan.study, correction="holm")
    assert reanalyse(replace(data, plan=replace(data.plan, study=study)), pairs=True).changes == (
        "step-down max-T over whole blocks instead of Holm's correction; all pairs of treatments beside the declared "
        "contrasts, declared before the runs"
    )


def test_pairs_that_were_not_declared_are_marked(sample):
    data = sample("feature_impact-20261124T194022Z-df1edfcf")
    found = reanalyse(data, pairs=True)
    assert found.changes == "all pairs of treatments beside the declared contrasts, declared before the runs"
    pairs = [row for row in found.data.verdicts if row.family == BETWEEN]
    assert all(row.after_the_fact and row.exploratory for row in found.data.verdicts)
    # A contrast for what its parent has too is declared, which leaves three pairs.
    declared = data.plan.study.primary
    shown = Counter(row.response for row in pairs if row.response in declared and row.verdict.different)
    assert shown == dict.fromkeys(declared, 3)
    places = {one.places[0].treatment: one.places[0].places for one in rankings(found.data)}
    assert places == {"istio": "1"}
    with refused(UsageError):
        reanalyse(data, baseline="istio", pairs=True)
