"""A study that gives verdicts has succeeded; what was excluded from them is one line."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from refused import as_reviewed

from meshtrial.design.plan import make_plan
from meshtrial.design.study import Load
from meshtrial.inference.ending import ending
from meshtrial.records import parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.schema import GateResult
from meshtrial.vocabulary import VerdictLabel

BUSY = "other programs used {:.0%} of the machine's CPU time: end them, or measure on a machine of its own (`top` ...)"
FAILED = "2.00% of the requests failed (503: 12, time-out: 3); see the components' logs"


@pytest.fixture
def recorded(make_study, make_record, make_row):
    """A study whose runs failed as is said of their blocks and treatments, with rows of these verdicts."""

    def made(failed, words=(VerdictLabel.SLOWER,), rates=(100,)) -> StudyData:
        plan = make_plan(make_study(blocks=6, loads=tuple(Load(rate, 4, 2) for rate in rates), own_failures="ranked"))
        runs = []
        for planned in plan.runs:
            own = failed.get((planned.load, planned.repetition, planned.treatment), ())
            own = own or failed.get((planned.repetition, planned.treatment), ())
            for attempt in (1, 2) if own else (1,):
                run = make_record(plan, planned, {}, attempt=attempt, fail="x" if own else "")
                gates = tuple(gate for gate in own if isinstance(gate, GateResult))
                reasons = tuple(f"gate {g.name}: {g.message}" if isinstance(g, GateResult) else g for g in own)
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
        ((VerdictLabel.PROVISIONAL,), False, True),  # a look at an unfinished study owes nothing
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
