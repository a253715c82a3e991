"""How long a study takes, and which rates were not held, from the records."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from refused import refused

from meshtrial.design.load import CapacitySearch, FixedRate, Ramp
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Study
from meshtrial.errors import MissingToolError, RecordError
from meshtrial.records.schema import GateResult, RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.estimates import (
    expected_overhead_s,
    load_s,
    overhead_s,
    remaining_s,
    remaining_text,
    unheld_rates,
)
from meshtrial.stats import TwoLooks
from meshtrial.testbed.local import host

LOAD = FixedRate(100, 4, 2.0, warmup_s=1.0)


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
        (replace(LOAD, after_s=10), 13.0),
        (replace(LOAD, slices=4), 9.0),
        (replace(LOAD, slices=4, slice_warmup_s=0.5), 11.0),
        (Ramp.like(LOAD, steps=4), 3.0),  # its steps divide the seconds
        (CapacitySearch.like(LOAD), 33.0),  # 16 steps of 2 s
    ],
)
def test_what_a_run_is_asked_for(load, seconds):
    assert load_s(load) == seconds


def test_what_is_left_are_the_runs_that_are_not_made(plan):
    assert remaining_s(plan, plan.runs, 0.5) == 6 * 3.5
    assert remaining_s(plan, plan.runs[4:], 0.5) == 2 * 3.5


@pytest.mark.parametrize(("backend", "each_s"), [("local", 0.0), ("kubernetes", 50.0)])
def test_services_that_nobody_calls_take_their_time_on_a_cluster(make_study, make_record, backend, each_s):
    crowded = replace(LOAD, unused_services=1000)
    plan = make_plan(replace(make_study(blocks=2, loads=(LOAD, crowded)), backend=backend))
    assert remaining_s(plan, plan.runs, 0.0) == pytest.approx(6 * 3.0 + 6 * (3.0 + each_s))
    # Creating unused services is not part of the overhead of every run.
    run = next(run for run in plan.runs if run.load == crowded.label)
    assert overhead_s(plan, [times(make_record(plan, run, {}), 0, 5 + each_s)]) == pytest.approx(2.0)


def test_a_plan_that_may_end_earlier_says_at_most(plan, make_study):
    assert remaining_text(plan, 200).startswith("3 min 20 s left, until about ")
    early = make_plan(make_study(blocks=16, stopping=TwoLooks(alpha_first=0.01, alpha_second=0.04).to_dict()))
    assert remaining_text(early, 200).startswith("at most 3 min 20 s left, until about ")


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
    # Three concurrent ones for 12 s, which end within a second: 13 s for three runs of 3 s.
    spans = [(0, 12), (0.1, 12.5), (0.2, 13)]
    assert overhead_s(plan, recorded(plan, make_record, spans)) == pytest.approx(4 / 3)


def test_the_newest_study_of_the_name_and_backend_says_what_to_expect(plan, make_record, make_study, tmp_path):
    assert expected_overhead_s(plan, [], tmp_path) == pytest.approx(1.1)  # nothing is recorded, so 1 s and a copy
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
    alone, block = (
        make_plan(make_study(backend="kubernetes", loads=loads, deployment_mode=mode))
        for mode in ("sequential", "concurrent")
    )
    # Two seconds per slice, and a third of the block's half minute.
    assert expected_overhead_s(alone, [], tmp_path) == pytest.approx(30.1)
    assert expected_overhead_s(block, [], tmp_path) == pytest.approx(4 * 2 + 30 / 3 + 0.1)


HERE = {"cpu_model": "x", "cpus": 2, "cpus_allowed": 2, "memory_bytes": 2**34, "machine": "x86_64"}
FAST, SEARCH = FixedRate(2000, 4, 2), CapacitySearch(4, 2)
GATE = GateResult("", 0.2, 0.02, False, "it did not hold")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(host, "require", lambda: None)
    monkeypatch.setattr(host, "describe", lambda: HERE | {"kernel": "7.0"})


@pytest.fixture
def record(make_record, tmp_path) -> Callable[..., str]:
    """Return a function that records a study, its runs changed by a given function, and returns the folder's name."""

    def made(study: Study, run: Callable[[RunRecord], RunRecord], stamp: str, there: Mapping = HERE) -> str:
        plan = make_plan(study)
        store = StudyStore.create(tmp_path, plan, {"testbed": {"kernel": "6.1"} | there})
        for planned in plan.runs:
            store.finish(store.begin(planned.run_id, 1), run(make_record(plan, planned, {})), None)
        folder = store.path.rename(store.path.with_name(f"{stamp}-{plan.sha256[:8]}"))
        return folder.name

    return made


def behind(check: str, treatment: str = "node-proxy", blocks: int = 6) -> Callable[[RunRecord], RunRecord]:
    """A treatment fails a check in the first blocks, while other runs hold."""

    def run(one: RunRecord) -> RunRecord:
        failed = one.treatment == treatment and one.repetition <= blocks
        gates = one.gates if not failed else (replace(GATE, name=check),)
        reasons = (f"check {check}: it did not hold",) if failed else ()
        responses = {"achieved_rps": 1500.0 + one.repetition}
        return replace(one, gates=gates, valid=not failed, reasons=reasons, responses=responses)

    return run


def found(study: Study, root: Path) -> list[tuple[str, str, float, float, str]]:
    return [(one.treatment, one.load.label, one.rps, one.most_rps, one.where) for one in unheld_rates(study, root)]


@pytest.mark.parametrize("check", ["rate", "late", "generator CPU", "generator late"])
def test_a_treatment_that_fell_behind_in_most_blocks(check, make_study, record, tmp_path):
    study = make_study(loads=(FAST, FixedRate(200, 4, 2)))
    slow = behind(check)
    name = record(study, lambda run: slow(run) if run.load == FAST.label else run, "20260101T000000Z")
    assert found(study, tmp_path) == [("node-proxy", FAST.label, 2000, 1503.5, name)]
    assert unheld_rates(study, tmp_path)[0].load == FAST


def disturbed(run: RunRecord) -> RunRecord:
    """A busy machine or a failed proof may explain a missed rate."""
    slow = behind("late")(run)
    if slow.valid:
        return slow
    if run.repetition % 2:
        gates = (*slow.gates, replace(GATE, name="foreign load"))
        return replace(slow, gates=gates, reasons=tuple(gate.reason for gate in gates))
    return replace(slow, reasons=(*slow.reasons, "check x (after): expected a, saw b"))


@pytest.mark.parametrize("run", [behind("errors"), behind("foreign load"), behind("rate", blocks=3), disturbed])
def test_what_failed_otherwise_or_seldom_tells_nothing(run, make_study, record, tmp_path):
    study = make_study(loads=(FAST,))
    record(study, run, "20260101T000000Z")
    assert found(study, tmp_path) == []


def test_a_search_tells_what_was_carried(make_study, record, tmp_path):
    study = make_study(loads=(SEARCH,), treatments=("none", "none-aa", "node-proxy"))
    capacity = {"none": 9800.0, "none-aa": 9900.0}
    carried = lambda run: replace(  # noqa: E731
        run, responses={"capacity_rps": capacity[run.treatment]} if run.treatment in capacity else {}
    )
    name = record(study, carried, "20260101T000000Z")
    assert found(study, tmp_path) == [
        ("none", SEARCH.label, pytest.approx(10_000), 9800, name),  # within the 2 % by which a rate may differ
        ("none-aa", SEARCH.label, pytest.approx(9900 / 0.98), 9900, name),
    ]


def test_only_the_newest_study_of_the_same_on_the_same_machine_is_asked(make_study, record, tmp_path):
    study, slow = make_study(loads=(FAST,)), behind("rate")
    wanted = record(study, slow, "20260101T000000Z")
    record(study, slow, "20260102T000000Z", there=HERE | {"cpus": 64})
    record(study, slow, "20260103T000000Z", there={})
    record(make_study(loads=(FAST,), app="details"), slow, "20260104T000000Z")
    record(make_study(loads=(FAST,), treatments=("relay", "relay-aa")), slow, "20260105T000000Z")
    (tmp_path / study.name / "20260106T000000Z-x").mkdir()
    (tmp_path / study.name / "20260106T000000Z-x" / "plan.json").write_text("{")
    empty = StudyStore.create(tmp_path, make_plan(study), {"testbed": HERE}).path
    empty.rename(empty.with_name("20260107T000000Z-x"))
    assert {where for *_, where in found(study, tmp_path)} == {wanted}
    record(study, lambda run: run, "20260108T000000Z")
    assert found(study, tmp_path) == []


def test_a_cluster_and_a_machine_without_proc_are_not_told_of(make_study, record, tmp_path, monkeypatch):
    study = make_study(loads=(FAST,))
    record(study, behind("rate"), "20260101T000000Z")
    assert len(found(study, tmp_path)) == 1
    assert found(replace(study, backend="kubernetes"), tmp_path) == []

    def require() -> None:
        raise MissingToolError("backend=local needs Linux with /proc")

    monkeypatch.setattr(host, "require", require)
    assert found(study, tmp_path) == []
