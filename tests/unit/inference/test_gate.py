"""A gate fires on the words it was given, on primary contrasts alone, and passes nothing that has no verdict."""

from dataclasses import replace

import pytest
from refused import as_reviewed, refused

from meshtrial.design.plan import make_plan
from meshtrial.design.responses import REGISTRY, response
from meshtrial.design.study import Load
from meshtrial.errors import UsageError
from meshtrial.inference.gate import DeclaredContrast, declared_by, judge, read_rules

P50, CPU = REGISTRY["latency_p50_s"], REGISTRY["path_cpu_s_per_request"]
ONE = (DeclaredContrast("l", P50, "t", "none"),)


@pytest.fixture
def outcome(make_row):
    def run(*verdicts, fail_on=(), require=(), alpha=0.05, **changes):
        """A gate over treatments t0, t1, ... with these verdicts, each a word or a word with its qualifier."""
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


@pytest.mark.parametrize("rules", [{"fail_on": ["slower"]}, {"require": ["equivalent,inconclusive"]}])
def test_an_unfinished_study_passes_no_gate(outcome, rules):
    assert outcome("provisional", **rules).fired


def test_a_missing_row_is_invalid_and_never_what_is_required():
    for require in ("equivalent", "equivalent,invalid"):
        found = judge([], ONE, read_rules(require=[require]), 0.05)
        assert found.fired
        assert "no verdict: it was not reported" in found.line
    assert not judge([], ONE, read_rules(["slower"]), 0.05).fired
    assert judge([], ONE, read_rules(["slower,invalid"]), 0.05).fired


@pytest.mark.parametrize("other", [{"twin": True}, {"exploratory": True}])
def test_twin_and_exploratory_rows_have_no_say(make_row, other):
    rows = [make_row(verdict="equivalent"), make_row(verdict="slower", **other)]
    assert not judge(rows, ONE, read_rules(["slower"]), 0.05).fired
    assert not judge(rows, ONE, read_rules(require=["equivalent"]), 0.05).fired
    # Nor do they stand in for a primary row that is missing.
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
        loads=(Load(100, 4, 2), Load(200, 4, 2)),
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
    """Half of alpha a direction and family, whatever the number of treatments."""
    declared = [DeclaredContrast("l", one, treatment, "none") for one in responses for treatment in ("a", "b")]
    assert judge([], declared, read_rules(rules), 0.05).false_alarms == pytest.approx(bound)
    twice = [*declared, *(replace(one, load="other") for one in declared)]
    assert judge([], twice, read_rules(rules), 0.05).false_alarms == pytest.approx(2 * bound)
    assert judge([], declared, read_rules(rules), 0.01).false_alarms == pytest.approx(bound / 5)
