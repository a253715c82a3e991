"""Which rates were not held here: of the newest study of the same question, on this machine."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from meshtrial.run.held import unheld_before

from meshtrial.design.plan import make_plan
from meshtrial.design.study import Load, Study
from meshtrial.errors import MissingToolError
from meshtrial.records.schema import GateResult, RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.testbed.local import host

HERE = {"cpu_model": "x", "cpus": 2, "cpus_allowed": 2, "memory_bytes": 2**34, "machine": "x86_64"}
FAST, SEARCH = Load(2000, 4, 2), Load(0, 4, 2, search=True)
GATE = GateResult("", 0.2, 0.02, False, "it did not hold")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(host, "require", lambda: None)
    monkeypatch.setattr(host, "describe", lambda: HERE | {"kernel": "7.0"})


@pytest.fixture
def record(make_record, tmp_path) -> Callable[..., str]:
    """Record a study whose runs are as a function makes them of what was planned; its folder's name."""

    def made(study: Study, run: Callable[[RunRecord], RunRecord], stamp: str, there: Mapping = HERE) -> str:
        plan = make_plan(study)
        store = StudyStore.create(tmp_path, plan, {"testbed": {"kernel": "6.1"} | there})
        for planned in plan.runs:
            store.finish(store.begin(planned.run_id, 1), run(make_record(plan, planned, {})), None)
        folder = store.path.rename(store.path.with_name(f"{stamp}-{plan.sha256[:8]}"))
        return folder.name

    return made


def behind(check: str, treatment: str = "node-proxy", blocks: int = 6) -> Callable[[RunRecord], RunRecord]:
    """A treatment fails a check in the first blocks; elsewhere runs hold."""

    def run(one: RunRecord) -> RunRecord:
        failed = one.treatment == treatment and one.repetition <= blocks
        gates = one.gates if not failed else (replace(GATE, name=check),)
        reasons = (f"gate {check}: it did not hold",) if failed else ()
        responses = {"achieved_rps": 1500.0 + one.repetition}
        return replace(one, gates=gates, valid=not failed, reasons=reasons, responses=responses)

    return run


def found(study: Study, root: Path) -> list[tuple[str, str, float, float, str]]:
    return [(one.treatment, one.load.label, one.rps, one.most_rps, one.where) for one in unheld_before(study, root)]


@pytest.mark.parametrize("check", ["rate", "late", "generator CPU", "generator late"])
def test_a_treatment_that_fell_behind_in_most_blocks(check, make_study, record, tmp_path):
    study = make_study(loads=(FAST, Load(200, 4, 2)))
    slow = behind(check)
    name = record(study, lambda run: slow(run) if run.load == FAST.label else run, "20260101T000000Z")
    assert found(study, tmp_path) == [("node-proxy", FAST.label, 2000, 1503.5, name)]
    assert unheld_before(study, tmp_path)[0].load == FAST


def disturbed(run: RunRecord) -> RunRecord:
    """A machine that was busy, or a proof that failed, may be why a rate was not held."""
    slow = behind("late")(run)
    if slow.valid:
        return slow
    if run.repetition % 2:
        gates = (*slow.gates, replace(GATE, name="foreign load"))
        return replace(slow, gates=gates, reasons=tuple(gate.reason for gate in gates))
    return replace(slow, reasons=(*slow.reasons, "proof x (after): expected a, saw b"))


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
