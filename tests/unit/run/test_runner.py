"""Progress of a plan: completed runs, remaining time, and failed runs."""

import itertools
import re

import pytest

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Gates
from meshtrial.inference import blocks_in_a_row
from meshtrial.records.store import StudyStore
from meshtrial.run import runner
from meshtrial.testbed.base import Others


@pytest.fixture
def told(make_study, make_record, monkeypatch, tmp_path):
    """Execute two blocks of three runs of 3 s that take 8 s; the first attempt of the first run fails."""
    clock = itertools.count(0, 8)
    now = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    plan = make_plan(make_study(blocks=2, loads=(FixedRate(100, 4, 2.0, warmup_s=1.0),)))

    def carry_out(store, _testbed, together, attempt, _waited):
        (planned,) = together
        now[0] = next(clock) + 8.0
        bad = planned == plan.runs[0] and attempt == 1
        record = make_record(plan, planned, {}, attempt=attempt, fail="rate" if bad else "")
        store.finish(store.begin(planned.run_id, attempt), record, None)
        return [record]

    monkeypatch.setattr(runner, "carry_out", carry_out)
    store = StudyStore.create(tmp_path, plan, {})

    def carry_out(enough=None) -> list[str]:
        lines: list[str] = []
        now[0] = 0.0
        runner.execute(store, None, lines.append, enough, overhead_s=1.0)
        return lines

    return plan, carry_out


def test_every_run_is_announced_with_the_time_that_is_left_at_the_pace_so_far(told):
    plan, carry_out = told
    lines = carry_out()
    first = plan.runs[0]
    assert re.fullmatch(
        rf"\[0/6\] 24 s left, until about .*; block 1/2, 100rps-4c, {re.escape(first.treatment)}", lines[0]
    )
    assert lines[1].startswith(f"{first.run_id} is INVALID, ")
    assert lines[1].endswith(": check rate: too slow")
    # A run planned for 4 s took 8, and five remain.
    assert lines[2].startswith("[1/6] 40 s left, ")
    assert lines[3].startswith("[2/6] 32 s left, ")
    # Three more and the repeat, at the pace of 24 s for a planned 12.
    assert lines[4].startswith("[3/6] 32 s left, ")
    assert lines[4].endswith(f"{first.treatment} again")
    assert lines[-1].startswith("[6/6] 7 runs in 56 s, including 1 repeat")


def test_a_failure_that_may_be_the_treatments_own_is_told_and_not_repeated(
    make_study, make_record, monkeypatch, tmp_path
):
    plan = make_plan(make_study(blocks=2, own_failures="ranked"))

    def carry_out(store, _testbed, together, attempt, _waited):
        (planned,) = together
        record = make_record(plan, planned, {}, attempt=attempt, fail="late" if planned == plan.runs[0] else "")
        store.finish(store.begin(planned.run_id, attempt), record, None)
        return [record]

    monkeypatch.setattr(runner, "carry_out", carry_out)
    store = StudyStore.create(tmp_path, plan, {})
    lines: list[str] = []
    runner.execute(store, None, lines.append, None, overhead_s=1.0)
    (reported,) = (line for line in lines if line.startswith(plan.runs[0].run_id))
    assert "INVALID" not in reported
    assert reported.endswith(": check late: too slow")
    assert len(store.records()) == 6
    assert blocks_in_a_row(plan, store.records()) == 2


def test_what_was_recorded_before_is_not_announced_again(told):
    _, carry_out = told
    blocks = carry_out(enough=lambda records, repetitions: True)
    assert blocks[-1].startswith("[3/6] 4 runs in ")
    lines = carry_out()
    assert lines[0].startswith("[3/6] 12 s left, ")
    assert "block 2/2" in lines[0]
    assert lines[-1].startswith("[6/6] 3 runs in ")


def test_the_first_run_and_repeats_wait_for_a_quiet_machine(make_study, make_record, monkeypatch, tmp_path):
    plan = make_plan(make_study(blocks=3, gates=Gates(foreign_load=0.25)))
    bad, asked, waited, lines = plan.runs[3:5], list[float](), dict[tuple[str, int], float](), list[str]()
    shares = iter((0.2, 0.4, 0.3, 0.1))

    def watch(seconds: float) -> Others:
        asked.append(seconds)
        return Others(next(shares))

    def carry_out(store, _testbed, together, attempt, found):
        (planned,) = together
        record = make_record(plan, planned, {}, attempt=attempt, fail="x" if planned in bad and attempt == 1 else "")
        store.finish(store.begin(planned.run_id, attempt), record, None)
        if found is not None:
            waited[planned.run_id, attempt] = found.before
        return [record]

    monkeypatch.setattr(runner, "carry_out", carry_out)
    store = StudyStore.create(tmp_path, plan, {})
    runner.execute(store, None, lines.append, watch=watch)
    assert asked == [2.0] * 4  # once before the first run; three times before the block's repeats
    assert waited == {(planned.run_id, 2): 0.4 for planned in bad}
    said = [line.split(" ")[0] for line in lines]
    assert said.index("quiet") > said.index("other") > said.index(bad[1].run_id)
    runner.execute(store, None, lines.append, watch=watch)
    assert len(asked) == 4  # no run remained


def test_a_plan_without_that_check_watches_nothing(make_study, make_record, monkeypatch, tmp_path):
    plan = make_plan(make_study(blocks=1, gates=Gates(foreign_load=None)))

    def carry_out(store, _testbed, together, attempt, waited):
        assert waited is None
        record = make_record(plan, together[0], {}, attempt=attempt)
        store.finish(store.begin(record.run_id, attempt), record, None)
        return [record]

    monkeypatch.setattr(runner, "carry_out", carry_out)
    runner.execute(StudyStore.create(tmp_path, plan, {}), None, lambda _: None, watch=None)
    runner.execute(StudyStore.create(tmp_path / "2", plan, {}), None, lambda _: None, watch=lambda _: 1 / 0)
