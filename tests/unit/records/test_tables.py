from dataclasses import replace

import polars as pl
import pytest

from meshtrial.design.load import CapacitySearch, Ramp
from meshtrial.design.plan import make_plan
from meshtrial.records.tables import include, is_result, runs_table

LOAD = "100rps-4c"


def records_of(plan, make_record, fail=lambda block, treatment, attempt: ""):
    """Return all runs of a plan; a failed first attempt is repeated once, as the runner does."""
    found = []
    for run in plan.runs:
        for attempt in (1, 2):
            reason = fail(run.repetition, run.treatment, attempt)
            found.append(make_record(plan, run, {"latency_p50_s": 1.0 + attempt}, attempt=attempt, fail=reason))
            if not reason:
                break
    return found


def test_without_failures_every_block_counts(small_plan, make_record):
    taken = include(small_plan, records_of(small_plan, make_record), LOAD)
    assert taken.blocks == (1, 2, 3, 4, 5, 6)
    assert not taken.excluded
    assert not taken.excluded_blocks


def test_a_repeat_that_passes_takes_the_place_of_the_first(small_plan, make_record):
    found = records_of(small_plan, make_record, lambda b, t, a: "errors" if (b, t, a) == (2, "none", 1) else "")
    assert include(small_plan, found, LOAD).blocks == (1, 2, 3, 4, 5, 6)
    table = runs_table(small_plan, found)
    rows = table.filter((pl.col("block") == 2) & (pl.col("treatment") == "none"))
    assert rows.select("attempt", "valid", "included").rows() == [(1, False, False), (2, True, True)]


def test_a_run_that_fails_twice_takes_its_block_from_every_treatment(small_plan, make_record):
    found = records_of(small_plan, make_record, lambda b, t, a: "errors" if (b, t) == (2, "node-proxy") else "")
    taken = include(small_plan, found, LOAD)
    assert taken.blocks == (1, 3, 4, 5, 6)
    runs = {block: [(run.treatment, run.attempt) for run in runs] for block, runs in taken.excluded_blocks.items()}
    assert runs == {2: [("node-proxy", 2)]}
    table = runs_table(small_plan, found)
    assert not table.filter(pl.col("block") == 2)["included"].any()
    # Both attempts are in the table.
    assert table.filter((pl.col("block") == 2) & (pl.col("treatment") == "node-proxy")).height == 2


def test_a_treatment_that_mostly_fails_is_set_aside_and_leaves_the_blocks_to_the_others(small_plan, make_record):
    found = records_of(small_plan, make_record, lambda b, t, a: "proof" if t == "node-proxy" and b > 2 else "")
    taken = include(small_plan, found, LOAD)
    assert taken.excluded == {"node-proxy": "invalid"}
    assert taken.blocks == (1, 2, 3, 4, 5, 6)
    table = runs_table(small_plan, found)
    assert set(table.filter(pl.col("included"))["treatment"]) == {"none", "none-aa"}


def test_a_treatment_that_cannot_hold_the_rate_is_saturated(small_plan, make_record):
    found = records_of(small_plan, make_record, lambda b, t, a: "rate" if t == "node-proxy" else "")
    assert include(small_plan, found, LOAD).excluded == {"node-proxy": "saturated"}


def ranked(make_study):
    return make_plan(make_study(own_failures="ranked"))


def test_a_failure_of_the_treatments_own_is_a_result_and_no_repeat_takes_its_place(make_study, make_record):
    plan = ranked(make_study)
    found = records_of(plan, make_record, lambda b, t, a: "late" if (b, t, a) == (2, "node-proxy", 1) else "")
    taken = include(plan, found, LOAD)
    assert taken.blocks == (1, 2, 3, 4, 5, 6)
    assert taken.chosen[2, "node-proxy"].attempt == 1
    rows = runs_table(plan, found).filter((pl.col("block") == 2) & (pl.col("treatment") == "node-proxy"))
    assert rows.select("attempt", "valid", "included").rows() == [(1, False, True), (2, True, False)]


@pytest.mark.parametrize("failed", ["foreign load", "generator CPU", "generator late", "throttling", "proof"])
def test_what_the_instrument_failed_is_repeated(failed, make_study, make_record):
    plan = ranked(make_study)
    found = records_of(plan, make_record, lambda b, t, a: failed if (b, t, a) == (2, "node-proxy", 1) else "")
    taken = include(plan, found, LOAD)
    assert taken.chosen[2, "node-proxy"].attempt == 2
    assert taken.chosen[2, "node-proxy"].valid


def test_a_failure_beside_one_of_the_instrument_is_repeated(make_study, make_record):
    plan = ranked(make_study)
    record = make_record(plan, plan.runs[0], {}, fail="late")
    assert is_result(plan, record)
    (gate,) = record.gates
    gates = (gate, replace(gate, name="generator CPU"))
    both = replace(record, gates=gates, reasons=tuple(one.reason for one in gates))
    assert not is_result(plan, both)
    assert not is_result(plan, replace(record, reasons=(*record.reasons, "the load pod was deleted")))


def test_a_treatment_that_fails_by_itself_in_most_blocks_is_saturated(make_study, make_record):
    plan = ranked(make_study)
    found = records_of(plan, make_record, lambda b, t, a: "rate" if t == "node-proxy" and b > 2 else "")
    taken = include(plan, found, LOAD)
    assert taken.excluded == {"node-proxy": "saturated"}
    assert taken.blocks == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("load", [CapacitySearch(4, 2), Ramp(100, 4, 2, steps=4)], ids=["search", "ramp"])
def test_steps_that_are_meant_to_fail_are_no_result(load, make_study, make_record):
    plan = make_plan(make_study(own_failures="ranked", loads=(load,)))
    assert not is_result(plan, make_record(plan, plan.runs[0], {}, fail="rate"))


def test_a_broken_study_counts_only_finished_blocks(small_plan, make_record):
    found = records_of(small_plan, make_record)[:7]
    taken = include(small_plan, found, LOAD)
    assert taken.blocks == (1, 2)
    assert taken.unfinished == (3, 4, 5, 6)
