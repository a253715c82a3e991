from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from unit import pretended

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.plan import Plan, PlannedRun, make_plan
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, GeneratorOutput
from meshtrial.records.schema import ComponentUsage
from meshtrial.records.store import StudyStore, check_checksums
from meshtrial.run import measured
from meshtrial.run.measured import carry_out
from meshtrial.run.quiet import Waited


class Broken(pretended.Testbed):
    """A testbed on which no deployment starts."""

    def deploy(self, *_: object) -> None:
        raise TestbedError("pod a: CrashLoopBackOff", {"failed-x-events.txt": "everything\nthat happened\n"})


def test_the_evidence_of_a_failure_lies_beside_the_runs_logs(tmp_path: Path, small_plan: Plan):
    store = StudyStore.create(tmp_path, small_plan, {})
    (record,) = carry_out(store, Broken(), small_plan.runs[:1], 1)  # type: ignore[arg-type]
    assert record.reasons == ("pod a: CrashLoopBackOff",)
    folder = store.folder(record.run_id, 1)
    assert (folder / "logs" / "failed-x-events.txt").read_text() == "everything\nthat happened\n"
    assert check_checksums(folder) == []


def test_what_a_run_waited_for_is_in_its_record(tmp_path: Path, small_plan: Plan):
    store = StudyStore.create(tmp_path, small_plan, {})
    for planned, waited in zip(small_plan.runs, (Waited(14.0, 0.5, 0.02), None), strict=False):
        (record,) = carry_out(store, Broken(), [planned], 2, waited)  # type: ignore[arg-type]
        assert record.extra.get("waited") == (waited and {"seconds": 14.0, "before": 0.5, "after": 0.02})


def test_a_long_log_keeps_both_of_its_ends():
    short = "x" * 1_000_000
    assert measured.bounded(short) == short
    long = measured.bounded("a" + "x" * 3_000_000 + "z")
    assert long.startswith("ax")
    assert long.endswith("xz")
    assert len(long) < 1_000_100
    assert "2000002" in long


class Standing(pretended.Testbed):
    """A testbed whose deployments record calls; one may fail in a slice, or everything be interrupted."""

    def __init__(self, spoilt: str = "", interrupted: str = "", crowded: bool = False, broken: str = "") -> None:
        self.spoilt, self.interrupted, self.crowded, self.broken = spoilt, interrupted, crowded, broken
        self.told: list[str] = []
        self.stands: set[str] = set()

    def before_run(self) -> dict[str, float]:
        self.told.append("look")
        return {}

    def make_ready(self, treatments: Sequence[Treatment], *_: object) -> None:
        assert not self.stands
        if self.crowded:
            raise TestbedError("there is room for 2 pods more")

    def deploy(self, treatment: Treatment, load: Load, app: str) -> "Stands":
        if treatment.name == self.broken:
            raise TestbedError("pod a: CrashLoopBackOff")
        self.stands.add(treatment.name)
        return Stands(self, treatment.name)


class Stands(pretended.Deployment):
    def __init__(self, bed: Standing, name: str) -> None:
        self.bed, self.name, self.warm = bed, name, False

    def snapshot(self) -> dict[str, ComponentUsage]:
        assert not self.warm  # requests that keep it warm are not in its counters
        return {}

    def keep_warm(self, call: GeneratorCall | None) -> None:
        self.warm = call is not None

    def generate(self, calls: Sequence[GeneratorCall], *_: object) -> tuple[GeneratorOutput, ...]:
        # One is loaded at a time, while all others that have not failed are kept warm.
        self.bed.told.append(self.name)
        if self.name == self.bed.spoilt:
            raise TestbedError("load pod x was deleted during the run")
        if self.name == self.bed.interrupted:
            raise KeyboardInterrupt
        return ()

    def close(self) -> None:
        self.bed.told.append(f"{self.name} goes")
        self.bed.stands.remove(self.name)


@pytest.fixture
def block(tmp_path: Path, make_study: Callable[..., Study]) -> tuple[StudyStore, list[PlannedRun]]:
    load = FixedRate(400, 4, 0.5, warmup_s=0.0, slices=3, slice_warmup_s=0.25, trickle_rps=5)
    plan = make_plan(make_study(blocks=1, loads=(load,), deployment_mode="concurrent"))
    return StudyStore.create(tmp_path, plan, {}), list(plan.runs)


def test_slices_go_round_in_the_order_that_the_plan_has_sealed(block: tuple[StudyStore, list[PlannedRun]]):
    store, runs = block
    bed = Standing()
    records = carry_out(store, bed, runs, 1)  # type: ignore[arg-type]
    turns = [[runs[place].treatment for place in turn] for turn in store.plan.turns(runs)]
    assert bed.told[:10] == ["look", *(name for turn in turns for name in turn)]
    assert [sorted(turn) for turn in turns] == [sorted(run.treatment for run in runs)] * 3
    assert sorted(bed.told[10:]) == sorted(f"{run.treatment} goes" for run in runs)
    for record in records:
        assert set(record.extra["neighbours"]) == {run.treatment for run in runs} - {record.treatment}


def test_one_that_fails_stands_idle_until_the_others_are_through(block: tuple[StudyStore, list[PlannedRun]]):
    store, runs = block
    bed = Standing(spoilt=runs[0].treatment)
    first, *others = carry_out(store, bed, runs, 1)  # type: ignore[arg-type]
    assert first.reasons == ("load pod x was deleted during the run",)
    assert bed.told.count(runs[0].treatment) == 1
    assert [bed.told.count(run.treatment) for run in runs[1:]] == [3, 3]
    assert all("deleted" not in reason for record in others for reason in record.reasons)
    assert min(bed.told.index(f"{run.treatment} goes") for run in runs) == 1 + 1 + 3 + 3
    assert bed.stands == set()


def test_one_that_does_not_come_up_takes_no_other_with_it(block: tuple[StudyStore, list[PlannedRun]]):
    store, runs = block
    bed = Standing(broken=runs[1].treatment)
    records = carry_out(store, bed, runs, 1)  # type: ignore[arg-type]
    assert records[1].reasons == ("pod a: CrashLoopBackOff",)
    assert [bed.told.count(run.treatment) for run in runs] == [3, 0, 3]


def test_a_block_that_does_not_fit_is_recorded_with_the_reason(block: tuple[StudyStore, list[PlannedRun]]):
    store, runs = block
    bed = Standing(crowded=True)
    records = carry_out(store, bed, runs, 1)  # type: ignore[arg-type]
    assert {record.reasons for record in records} == {("there is room for 2 pods more",)}
    assert bed.told == ["look"]
    assert len(store.records()) == len(runs)


def test_an_interrupted_block_leaves_nothing(block: tuple[StudyStore, list[PlannedRun]]):
    store, runs = block
    bed = Standing(interrupted=runs[1].treatment)
    with pytest.raises(KeyboardInterrupt):
        carry_out(store, bed, runs, 1)  # type: ignore[arg-type]
    assert bed.stands == set()
    assert store.records() == ()
    assert [path.name for path in (store.path / "runs").iterdir()] == []
