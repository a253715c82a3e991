"""Results of a whole study: none before its plan is complete."""

import dataclasses

import numpy as np
import pytest

from meshtrial import stats
from meshtrial.design.plan import Plan, make_plan
from meshtrial.inference import infer
from meshtrial.records.schema import RunRecord

LEVEL = {"none": 1.0, "none-aa": 1.0, "node-proxy": 3.0}


def recorded(plan: Plan, make_record, blocks: int) -> list[RunRecord]:
    """The first blocks of a study whose effect is as large as possible."""
    rng = np.random.default_rng(1)
    return [
        make_record(plan, run, {"latency_p50_s": 0.001 * LEVEL[run.treatment] * float(np.exp(rng.normal(0, 0.01)))})
        for run in plan.runs
        if run.repetition <= blocks
    ]


def said(plan: Plan, records: list[RunRecord]) -> set[tuple[str, str]]:
    return {(row.verdict, row.sentence) for row in infer(plan, records)[1] if row.treatment == "node-proxy"}


def test_an_unfinished_study_has_no_verdict_and_says_how_far_it_is(make_study, make_record):
    plan = make_plan(make_study(blocks=10))
    assert said(plan, recorded(plan, make_record, 10)) == {("slower", "slower (material)")}
    early = infer(plan, recorded(plan, make_record, 9))[1]
    assert {(row.verdict, row.qualifier, row.sentence, row.blocks_needed) for row in early} == {
        ("provisional", "9 of 10 blocks", "provisional (9 of 10 blocks)", None)
    }
    assert all(row.ratio is not None for row in early)  # numbers are shown; what they mean is not
    # An incomplete block does not finish it.
    assert {verdict for verdict, _ in said(plan, recorded(plan, make_record, 10)[:-1])} == {"provisional"}


@pytest.mark.parametrize(("blocks", "verdict"), [(9, "provisional"), (10, "slower"), (12, "provisional")])
def test_between_two_looks_there_is_none(make_study, make_record, blocks, verdict):
    plan = make_plan(make_study(blocks=16, stopping=stats.TwoLooks().to_dict()))
    records = recorded(plan, make_record, blocks)
    if blocks == 12:  # the first look left a contrast open: the twin varied
        records = [
            dataclasses.replace(r, responses={"latency_p50_s": 0.001 * (1 + 0.05 * r.repetition)})
            if r.treatment == "node-proxy"
            else r
            for r in records
        ]
    assert {found for found, _ in said(plan, records)} == {verdict}
