"""A selection of a study's treatments and loads: fewer rows, with equal numbers."""

import pytest
from refused import refused

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.errors import UsageError
from meshtrial.inference import infer
from meshtrial.records.dataset import StudyData, subset


@pytest.fixture
def data(make_study, make_record, tmp_path) -> StudyData:
    names = ("none", "none-aa", "node-proxy", "sidecar")
    plan = make_plan(make_study(names, blocks=6, loads=(FixedRate(100, 4, 2), FixedRate(500, 4, 2))))
    records = [
        make_record(plan, run, {"latency_p50_s": (1 + names.index(run.treatment)) * (1 + run.sequence / 1e4)})
        for run in plan.runs
    ]
    table, rows = infer(plan, records)
    return StudyData(tmp_path, plan, {}, tuple(records), table, tuple(rows))


def test_what_is_left_is_as_it_was(data):
    part = subset(data, ["sidecar"], ["500rps-4c"])
    assert {run.treatment for run in part.runs} == {"none", "none-aa", "sidecar"}
    assert {run.load for run in part.runs} == {"500rps-4c"} == set(part.table["load"])
    whole = {(row.load, row.response, row.treatment): row for row in data.verdicts}
    assert [(row.treatment, row.load) for row in part.verdicts] == [("sidecar", "500rps-4c"), ("none-aa", "500rps-4c")]
    assert all(whole[row.load, row.response, row.treatment] is row for row in part.verdicts)
    # 6 blocks of 3 treatments at one load, of 48 planned runs
    assert (len(part.plan.runs), len(data.plan.runs)) == (18, 48)


def test_a_family_keeps_its_size_and_a_treatment_its_place(data):
    part = subset(data, ["sidecar"])
    assert part.plan.study.treatments == data.plan.study.treatments
    assert part.plan.study.all_contrasts() == data.plan.study.all_contrasts()


def test_nothing_named_is_everything(data):
    part = subset(data)
    assert (part.runs, part.verdicts, part.plan) == (data.runs, data.verdicts, data.plan)
    assert part.table.equals(data.table)


def test_what_is_not_there_is_named(data):
    with refused(UsageError):
        subset(data, ["istio"])
    with refused(UsageError):
        subset(data, [], ["7rps"])
