"""How long it takes: the load that is asked for, and what came on top the last time."""

from dataclasses import replace

import pytest
from refused import refused

from meshtrial.design.plan import make_plan
from meshtrial.design.study import Load
from meshtrial.errors import RecordError
from meshtrial.records.store import StudyStore
from meshtrial.run.duration import asked_s, expected_overhead_s, overhead_s, remaining_s, said
from meshtrial.stats import TwoLooks

LOAD = Load(100, 4, 2.0, warmup_s=1.0)


@pytest.fixture
def plan(make_study):
    return make_plan(make_study(blocks=2, loads=(LOAD,)))


def times(record, start_s: float, end_s: float):
    started, ended = (f"2026-01-01T00:{int(s // 60):02d}:{s % 60:06.3f}+00:00" for s in (start_s, end_s))
    return replace(record, started_at=started, finished_at=ended, start_unix_s=start_s)


def recorded(plan, make_record, spans):
    return [times(make_record(plan, run, {}), *span) for run, span in zip(plan.runs, spans, strict=False)]


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        (LOAD, 3.0),
        (replace(LOAD, slices=4), 9.0),
        (replace(LOAD, slices=4, slice_warmup_s=0.5), 11.0),
        (replace(LOAD, ramp=4), 3.0),  # its steps share the seconds
        (replace(LOAD, rps=0, search=True), 33.0),  # 16 steps of 2 s
    ],
)
def test_what_a_run_is_asked_for(load, seconds):
    assert asked_s(load) == seconds


def test_what_is_left_are_the_runs_that_are_not_made(plan):
    assert remaining_s(plan, plan.runs, 0.5) == 6 * 3.5
    assert remaining_s(plan, plan.runs[4:], 0.5) == 2 * 3.5


@pytest.mark.parametrize(("backend", "each_s"), [("local", 0.0), ("kubernetes", 50.0)])
def test_services_that_nobody_calls_take_their_time_on_a_cluster(make_study, make_record, backend, each_s):
    crowded = replace(LOAD, unused_services=1000)
    plan = make_plan(replace(make_study(blocks=2, loads=(LOAD, crowded)), backend=backend))
    assert remaining_s(plan, plan.runs, 0.0) == pytest.approx(6 * 3.0 + 6 * (3.0 + each_s))
    # What they take is no part of what every run takes besides.
    run = next(run for run in plan.runs if run.load == crowded.label)
    assert overhead_s(plan, [times(make_record(plan, run, {}), 0, 5 + each_s)]) == pytest.approx(2.0)


def test_a_plan_that_may_end_earlier_says_at_most(plan, make_study):
    assert said(plan, 200).startswith("3 min 20 s left, until about ")
    early = make_plan(make_study(blocks=16, stopping=TwoLooks(alpha_first=0.01, alpha_second=0.04).to_dict()))
    assert said(early, 200).startswith("at most 3 min 20 s left, until about ")


def test_what_runs_take_besides_is_counted_from_end_to_end(plan, make_record):
    assert overhead_s(plan, []) is None
    # 4 s each and half a second between them: 4 + 4.5 + 4.5 seconds for three runs of 3 s of load.
    assert overhead_s(plan, recorded(plan, make_record, [(0, 4), (4.5, 8.5), (9, 13)])) == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"started_at": "yesterday"},
        {"finished_at": "0001-01-01T00:00:00+14:00"},
        {"load": "9rps-1c"},
    ],
)
def test_a_record_that_cannot_be_read_is_refused_by_its_name(plan, make_record, changed):
    (good,) = recorded(plan, make_record, [(0, 4)])
    with refused(RecordError):
        overhead_s(plan, [replace(good, **changed)])


def test_a_pause_of_an_interrupted_study_is_no_part_of_it(plan, make_record):
    assert overhead_s(plan, recorded(plan, make_record, [(0, 4), (1000, 1004)])) == pytest.approx(1.0)


def test_deployments_whose_slices_take_turns_are_counted_once(plan, make_record):
    # Three at once for 12 s, which end within a second: 13 s for three runs of 3 s.
    spans = [(0, 12), (0.1, 12.5), (0.2, 13)]
    assert overhead_s(plan, recorded(plan, make_record, spans)) == pytest.approx(4 / 3)


def test_the_newest_study_of_the_name_and_backend_says_what_to_expect(plan, make_record, make_study, tmp_path):
    assert expected_overhead_s(plan, [], tmp_path) == pytest.approx(1.1)  # nothing is recorded: 1 s and a copy
    store = StudyStore.create(tmp_path, plan, {})
    assert expected_overhead_s(plan, [], tmp_path) == pytest.approx(1.1)
    for record in recorded(plan, make_record, [(0, 5), (5, 10)]):
        store.finish(store.begin(record.run_id, 1), record, None)
    assert expected_overhead_s(plan, [], tmp_path) == pytest.approx(2.0)
    broken = tmp_path / plan.study.name / "99990101T000000Z-broken"
    broken.mkdir()
    (broken / "plan.json").write_text("{")
    assert expected_overhead_s(plan, [], tmp_path) == pytest.approx(2.0)
    assert expected_overhead_s(make_plan(make_study(backend="kubernetes")), [], tmp_path) == pytest.approx(30.1)
    own = recorded(plan, make_record, [(0, 8)])
    assert expected_overhead_s(plan, own, tmp_path) == pytest.approx(5.0)


def test_a_clusters_block_that_stands_at_once_takes_less_besides(make_study, tmp_path):
    loads = (replace(LOAD, slices=4),)
    alone, block = (make_plan(make_study(backend="kubernetes", loads=loads, standing=s)) for s in ("run", "block"))
    # Two seconds a slice, and a third of a block's half a minute.
    assert expected_overhead_s(alone, [], tmp_path) == pytest.approx(30.1)
    assert expected_overhead_s(block, [], tmp_path) == pytest.approx(4 * 2 + 30 / 3 + 0.1)
