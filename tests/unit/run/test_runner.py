"""Progress of a plan: completed runs, remaining time, and failed runs."""

import re
from collections.abc import Callable

import pytest

from meshtrial.design.load import FixedRate
from meshtrial.design.plan import Plan, PlannedRun, make_plan
from meshtrial.design.study import Gates
from meshtrial.inference import blocks_in_a_row
from meshtrial.records.store import StudyStore
from meshtrial.run import runner
from meshtrial.run.quiet import Waited
from meshtrial.testbed.base import Others


class Executed:
    """A plan whose runs take 8 s each; a first attempt fails the check that ``fails`` names for its run."""

    def __init__(self, plan: Plan, store: StudyStore, make_record, fails: Callable[[PlannedRun], str]) -> None:
        self.plan, self.store, self.make_record, self.fails = plan, store, make_record, fails
        self.now = 0.0
        self.waited: dict[tuple[str, int], Waited | None] = {}

    def carry_out(self, store, _testbed, together, attempt, waited):
        (planned,) = together
        self.now += 8.0
        self.waited[planned.run_id, attempt] = waited
        fail = self.fails(planned) if attempt == 1 else ""
        record = self.make_record(self.plan, planned, {}, attempt=attempt, fail=fail)
        store.finish(store.begin(planned.run_id, attempt), record, None)
        return [record]

    def lines(self, stop=None, watch=None) -> list[str]:
        """Execute what is not recorded, and return the progress lines."""
        lines: list[str] = []
        self.now = 0.0
        runner.execute(self.store, None, lines.append, stop, overhead_s=1.0, watch=watch)
        return lines


@pytest.fixture
def execution(make_study, make_record, monkeypatch, tmp_path):
    def made(fails: Callable[[PlannedRun], str] = lambda _: "", **study) -> Executed:
        plan = make_plan(make_study(**study))
        executed = Executed(plan, StudyStore.create(tmp_path, plan, {}), make_record, fails)
        monkeypatch.setattr(runner.time, "monotonic", lambda: executed.now)
        monkeypatch.setattr(runner, "carry_out", executed.carry_out)
        return executed

    return made


@pytest.fixture
def two_blocks(execution) -> Executed:
    """Two blocks of three runs of 3 s; the first run fails."""
    loads = (FixedRate(100, 4, 2.0, warmup_s=1.0),)
    return execution(lambda planned: "rate" if planned.sequence == 0 else "", blocks=2, loads=loads)


def test_every_run_is_announced_with_the_time_that_is_left_at_the_pace_so_far(two_blocks):
    lines, first = two_blocks.lines(), two_blocks.plan.runs[0]
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


def test_a_failure_that_may_be_the_treatments_own_is_told_and_not_repeated(execution):
    made = execution(lambda planned: "late" if planned.sequence == 0 else "", blocks=2, own_failures="ranked")
    first = made.plan.runs[0].run_id
    (reported,) = (line for line in made.lines() if line.startswith(first))
    assert "INVALID" not in reported
    assert reported.endswith(": check late: too slow")
    assert len(made.store.records()) == 6
    assert blocks_in_a_row(made.plan, made.store.records()) == 2


def test_what_was_recorded_before_is_not_announced_again(two_blocks):
    blocks = two_blocks.lines(stop=lambda records, repetitions: True)
    assert blocks[-1].startswith("[3/6] 4 runs in ")
    lines = two_blocks.lines()
    assert lines[0].startswith("[3/6] 12 s left, ")
    assert "block 2/2" in lines[0]
    assert lines[-1].startswith("[6/6] 3 runs in ")


def test_the_first_run_and_repeats_wait_for_a_quiet_machine(execution):
    made = execution(lambda planned: "x" if planned in bad else "", blocks=3, gates=Gates(foreign_load=0.25))
    bad, asked, shares = made.plan.runs[3:5], list[float](), iter((0.2, 0.4, 0.3, 0.1))

    def watch(seconds: float) -> Others:
        asked.append(seconds)
        return Others(next(shares))

    lines = made.lines(watch=watch)
    assert asked == [2.0] * 4  # once before the first run; three times before the block's repeats
    waited = {run: found.before for run, found in made.waited.items() if found is not None}
    assert waited == {(planned.run_id, 2): 0.4 for planned in bad}
    said = [line.split(" ")[0] for line in lines]
    assert said.index("quiet") > said.index("other") > said.index(bad[1].run_id)
    made.lines(watch=watch)
    assert len(asked) == 4  # no run remained


def test_a_plan_without_that_check_watches_nothing(execution):
    made = execution(blocks=1, gates=Gates(foreign_load=None))
    made.lines(watch=lambda _: 1 / 0)
    assert set(made.waited.values()) == {None}
