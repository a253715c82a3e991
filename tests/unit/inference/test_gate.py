"""A gate fires on its rules, for primary contrasts only, and does not pass a study without verdicts."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from refused import as_reviewed, refused

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.design.responses import REGISTRY, response
from meshtrial.errors import UsageError
from meshtrial.inference.gate import DeclaredContrast, declared_by, ending, judge, read_rules
from meshtrial.records import parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.schema import GateResult
from meshtrial.vocabulary import VerdictLabel

P50, CPU = REGISTRY["latency_p50_s"], REGISTRY["path_cpu_s_per_request"]
ONE = (DeclaredContrast("l", P50, "t", "none"),)


@pytest.fixture
def outcome(make_row):
    def run(*verdicts, fail_on=(), require=(), alpha=0.05, **changes):
        """A gate over treatments t0, t1, ... with these verdicts, each with or without a qualifier."""
        rows, declared = [], []
        for place, verdict in enumerate(verdicts):
            word, _, qualifier = verdict.partition(":")
            said = {"treatment": f"t{place}", "verdict": word, "qualifier": qualifier}
            rows.append(make_row(**said | changes))
            declared.append(DeclaredContrast("l", P50, f"t{place}", "none"))
        return judge(rows, declared, read_rules(fail_on, require), alpha)

    return run


def test_it_fires_on_any_word_that_fails_and_names_contrast_verdict_and_rule(outcome):
    found = outcome("equivalent", "slower:material", fail_on=["slower,more"])
    assert found.fired
    as_reviewed(found.line)


def test_it_passes_and_says_what_it_passed(outcome):
    found = outcome("inconclusive", "equivalent", "inconclusive", fail_on=["slower", "more"])
    assert not found.fired
    as_reviewed(found.line)


@pytest.mark.parametrize(
    ("verdict", "rule", "fired"),
    [
        ("slower", "slower", True),
        ("slower", "slower:material", False),
        ("slower:below margin", "slower:material", False),
        ("slower:material", "slower:material", True),
        ("slower:below margin", "slower:below-margin", True),
        ("faster:material", "slower:material", False),
    ],
)
def test_a_qualifier_narrows_a_word(outcome, verdict, rule, fired):
    assert outcome(verdict, fail_on=[rule]).fired is fired


@pytest.mark.parametrize("word", ["inconclusive", "unstable", "saturated", "invalid"])
def test_what_was_not_settled_is_the_users_choice(outcome, word):
    assert not outcome(word, fail_on=["slower,more"]).fired
    assert outcome(word, fail_on=[f"slower,{word}"]).fired
    assert outcome(word, require=["equivalent"]).fired
    assert not outcome(word, require=[f"equivalent,{word}"]).fired


def test_what_is_required_holds_for_every_primary_contrast(outcome):
    assert not outcome("equivalent", "equivalent", require=["equivalent"]).fired
    found = outcome("equivalent", "faster", require=["equivalent"])
    assert found.line.endswith("t1 against none, p50 latency at l: faster (--require equivalent)")
    assert not outcome("equivalent", "slower:below margin", require=["equivalent,slower:below-margin"]).fired
    assert outcome("equivalent", "slower", require=["equivalent,slower:below-margin"]).fired


@pytest.mark.parametrize(("side", "fired"), [("", "110"), ("the baseline", "101"), ("both", "111")])
def test_a_gate_may_look_at_one_side_of_what_was_not_compared(outcome, side: str, fired: str):
    rules = ("saturated", "saturated:treatment", "saturated:baseline")
    assert "".join(str(int(outcome(f"saturated:{side}", fail_on=[rule]).fired)) for rule in rules) == fired
    assert not outcome(f"saturated:{side}", fail_on=["invalid:treatment"]).fired


@pytest.mark.parametrize("rules", [{"fail_on": ["slower"]}, {"require": ["equivalent,inconclusive"]}])
def test_an_unfinished_study_passes_no_gate(outcome, rules):
    assert outcome("provisional", **rules).fired


def test_a_missing_row_is_invalid_and_never_what_is_required():
    for require in ("equivalent", "equivalent,invalid"):
        found = judge([], ONE, read_rules(require=[require]), 0.05)
        assert found.fired
        assert "no verdict: the response was not reported" in found.line
    assert not judge([], ONE, read_rules(["slower"]), 0.05).fired
    assert judge([], ONE, read_rules(["slower,invalid"]), 0.05).fired


@pytest.mark.parametrize("other", [{"twin": True}, {"exploratory": True}])
def test_twin_and_exploratory_rows_have_no_say(make_row, other):
    rows = [make_row(verdict="equivalent"), make_row(verdict="slower", **other)]
    assert not judge(rows, ONE, read_rules(["slower"]), 0.05).fired
    assert not judge(rows, ONE, read_rules(require=["equivalent"]), 0.05).fired
    # Nor do they replace a missing primary row.
    assert judge([make_row(verdict="equivalent", **other)], ONE, read_rules(require=["equivalent"]), 0.05).fired


def test_nothing_to_judge_is_no_pass():
    found = judge([], (), read_rules(["slower"]), 0.05)
    assert found.fired
    as_reviewed(found.line)


def test_without_rules_nothing_fires(outcome):
    found = outcome("slower", "provisional")
    assert not found.fired
    as_reviewed(found.line)


def test_a_long_reason_stays_one_line(outcome):
    found = outcome(*["slower"] * 5, fail_on=["slower"], qualifier="a\n\tlot")
    assert "\n" not in found.line
    assert found.line.startswith("gate fired: 5 of 5 primary contrasts: t0 ")
    assert found.line.endswith("; and 2 more")


@pytest.mark.parametrize(
    "rules",
    [
        {"fail_on": ["slowr"]},
        {"require": ["same"]},
        {"fail_on": [" , "]},
        {"fail_on": ["slower:big"]},
        {"fail_on": ["slower:"]},
        {"fail_on": ["equivalent:material"]},
        {"require": ["provisional"]},
        {"fail_on": ["more"], "require": ["more"]},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_what_is_allowed(rules):
    with refused(UsageError):
        read_rules(**rules)


def test_every_primary_contrast_of_a_plan_is_asked_for(make_study):
    study = make_study(
        ("none", "none-aa", "node-proxy", "sidecar"),
        primary=("latency_p50_s", "path_cpu_s_per_request"),
        loads=(FixedRate(100, 4, 2), FixedRate(200, 4, 2)),
    )
    found = declared_by(make_plan(study))
    assert len(found) == 2 * 2 * 2
    assert {(one.treatment, one.baseline) for one in found} == {("node-proxy", "none"), ("sidecar", "none")}
    assert {one.load for one in found} == {load.label for load in study.loads}


@pytest.mark.parametrize(
    ("responses", "rules", "bound"),
    [
        ((P50,), ["slower,more"], 0.025),
        ((P50, CPU), ["slower,more"], 0.05),
        ((P50, CPU), ["slower"], 0.025),
        ((P50, CPU), ["slower,faster,more,less"], 0.1),
        ((P50, CPU, response("latency_p99_s")), ["slower:material,more"], 0.075),
        ((P50,), ["inconclusive"], 0.0),
    ],
)
def test_the_bound_on_false_alarms_counts_families_and_directions(responses, rules, bound):
    """Half of alpha per direction and family, for any number of treatments."""
    declared = [DeclaredContrast("l", one, treatment, "none") for one in responses for treatment in ("a", "b")]
    assert judge([], declared, read_rules(rules), 0.05).false_alarms == pytest.approx(bound)
    twice = [*declared, *(replace(one, load="other") for one in declared)]
    assert judge([], twice, read_rules(rules), 0.05).false_alarms == pytest.approx(2 * bound)
    assert judge([], declared, read_rules(rules), 0.01).false_alarms == pytest.approx(bound / 5)


BUSY = "other programs used {:.0%} of the machine's CPU time: end them, or measure on a machine of its own (`top` ...)"
FAILED = "2.00% of the requests failed (503: 12, time-out: 3); see the components' logs"


@pytest.fixture
def recorded(make_study, make_record, make_row):
    """A study with failures in the given blocks and treatments, and rows of these verdicts."""

    def made(failed, words=(VerdictLabel.SLOWER,), rates=(100,)) -> StudyData:
        plan = make_plan(
            make_study(blocks=6, loads=tuple(FixedRate(rate, 4, 2) for rate in rates), own_failures="ranked")
        )
        runs = []
        for planned in plan.runs:
            own = failed.get((planned.load, planned.repetition, planned.treatment), ())
            own = own or failed.get((planned.repetition, planned.treatment), ())
            for attempt in (1, 2) if own else (1,):
                run = make_record(plan, planned, {}, attempt=attempt, fail="x" if own else "")
                gates = tuple(gate for gate in own if isinstance(gate, GateResult))
                reasons = tuple(f"check {g.name}: {g.message}" if isinstance(g, GateResult) else g for g in own)
                runs.append(replace(run, gates=gates, reasons=reasons))
        rows = tuple(make_row(verdict=word) for word in words)
        return StudyData(Path("nowhere"), plan, {}, tuple(runs), pl.DataFrame(), rows)

    return made


def busy(share: float) -> GateResult:
    return GateResult("foreign load", share, 0.1, False, BUSY.format(share))


def test_a_study_of_which_nothing_was_excluded_says_nothing(recorded):
    assert (ending(recorded({})).has_verdict, ending(recorded({})).excluded) == (True, "")


def test_blocks_are_told_with_the_worst_of_each_check_and_how_many_are_left(recorded):
    failed = {(2, "none"): [busy(0.31)], (2, "node-proxy"): [busy(0.48)], (5, "none"): ["pod a: CrashLoopBackOff"]}
    said = ending(recorded(failed))
    assert said.has_verdict
    as_reviewed(said.excluded)


def test_a_treatment_that_is_excluded_takes_no_block_with_it(recorded):
    late = GateResult("generator late", 0.2, 0.05, False, "20.0% of the sends left late: the generator's own timers")
    failed = {(block, "node-proxy"): [late] for block in range(1, 5)} | {(6, "none"): [busy(0.2)]}
    as_reviewed(ending(recorded(failed)).excluded)


def test_where_all_treatments_are_excluded_none_is_no_name(recorded):
    failed = {(block, name): [busy(0.3)] for block in range(1, 6) for name in ("none", "none-aa", "node-proxy")}
    as_reviewed(ending(recorded(failed)).excluded)
    failed = {key: value for key, value in failed.items() if key[1] != "node-proxy"}
    assert ending(recorded(failed)).excluded.startswith("treatments none and none-aa excluded: other programs ")


def test_a_failure_that_is_a_result_excludes_nothing(recorded):
    assert ending(recorded({(1, "none"): [GateResult("errors", 0.02, 0.01, False, FAILED)]})).excluded == ""


def test_what_is_in_brackets_is_no_advice_and_loads_are_named(recorded):
    failed = {("200rps-4c", 1, "none"): [GateResult("errors", 0.02, 0.01, False, FAILED), busy(0.2)]}
    as_reviewed(ending(recorded(failed, rates=(100, 200))).excluded)


def test_where_every_block_is_excluded_no_verdict_uses_one(recorded):
    treatments = ("none", "none-aa", "node-proxy")
    failed = {(block, treatments[block % 3]): [busy(block / 10)] for block in range(1, 7)}
    said = ending(recorded(failed, words=[VerdictLabel.INVALID]))
    assert not said.has_verdict
    as_reviewed(said.excluded)


@pytest.mark.parametrize(
    ("words", "measured", "expected"),
    [
        ((VerdictLabel.INCONCLUSIVE,), True, True),
        ((VerdictLabel.SATURATED, VerdictLabel.INVALID), True, True),
        ((VerdictLabel.INVALID,), True, False),
        ((VerdictLabel.INVALID,), False, False),
        ((VerdictLabel.PROVISIONAL, VerdictLabel.INVALID), True, False),
        ((VerdictLabel.PROVISIONAL,), False, True),  # an interim look at an unfinished study needs no verdict
        ((), True, False),
    ],
)
def test_a_verdict_is_a_word_on_a_primary_contrast(recorded, make_row, words, measured, expected):
    data = recorded({}, words=words)
    explored = make_row(verdict=VerdictLabel.SLOWER, exploratory=True)
    twin = make_row(verdict=VerdictLabel.EQUIVALENT, twin=True) if words else explored
    data = replace(data, verdicts=(*data.verdicts, explored, twin))
    assert ending(data, measured=measured).has_verdict is expected


def test_of_a_study_without_another_treatment_the_twin_is_asked(recorded, make_row):
    data = replace(recorded({}), verdicts=(make_row(verdict=VerdictLabel.EQUIVALENT, twin=True),))
    assert ending(data).has_verdict


def test_a_part_of_a_study_owes_no_verdict(recorded):
    data = recorded({}, words=[VerdictLabel.PROVISIONAL])
    assert not ending(data).has_verdict
    assert ending(replace(data, environment={"part": parts.described(Part(1, 2), data.plan)})).has_verdict
