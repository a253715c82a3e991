import shutil
from pathlib import Path

import polars as pl
import pytest
from refused import as_reviewed, missing, refused

from meshtrial.design.plan import Plan, make_plan
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference import analyse, infer
from meshtrial.records import parts
from meshtrial.records.merging import merge
from meshtrial.records.parts import Part
from meshtrial.records.store import StudyStore, check_checksums

REQUESTS = pl.DataFrame({"latency_s": [0.1], "ok": [True]})


def recorded(root: Path, plan: Plan, make_record, part: str, skip: int = 0) -> StudyStore:
    """Run one part in a cluster of its own, leaving out the last runs if requested."""
    share = Part.parse(part)
    environment = {
        "schema": "meshtrial.environment/1",
        "plan_sha256": plan.sha256,
        "testbed": {"context": f"cluster-{share.number}"},
        "part": parts.described(share, plan),
    }
    store = StudyStore.create(root, plan, environment)
    planned = store.runs_here()
    for run in planned[: len(planned) - skip]:
        folder = store.begin(run.run_id, 1)
        store.finish(folder, make_record(plan, run, {"latency_p50_s": 0.1 + 0.001 * run.sequence}), REQUESTS)
    return store


@pytest.fixture
def three(tmp_path, small_plan, make_record) -> list[StudyStore]:
    return [recorded(tmp_path, small_plan, make_record, part) for part in ("2/3", "1/3", "3/3")]


def test_the_parts_together_are_the_study(three, tmp_path, small_plan):
    merged = merge(three, tmp_path / "whole" / "merged")
    assert merged.plan == small_plan
    assert {record.run_id for record in merged.records()} == {run.run_id for run in small_plan.runs}
    assert all(check_checksums(folder) == [] for folder in (merged.path / "runs").iterdir())
    assert parts.session_of_block(merged.plan, merged.environment)[3] == "part 2 (cluster-2)"
    assert merged.environment["plan_sha256"] == small_plan.sha256
    assert [place["recorded_as"] for place in merged.environment["parts"]] == [
        store.path.name for store in sorted(three, key=lambda store: store.blocks)
    ]
    # No block was dropped and none is provisional, so the rows equal those of one place.
    plain, rows = infer(small_plan, merged.records())
    data = analyse(merged)
    assert data.table.equals(plain)
    assert [row.p for row in data.verdicts] == [row.p for row in rows]
    assert "provisional" not in {row.verdict for row in data.verdicts}


def test_a_part_alone_has_no_verdict_and_says_how_far_the_study_is(three):
    assert {(row.verdict, row.sentence) for row in analyse(three[2]).verdicts} == {
        ("provisional", "provisional (2 of 6 blocks)")
    }


def test_the_folder_is_whole_or_not_there_and_never_replaced(three, tmp_path, monkeypatch):
    target = tmp_path / "whole" / "merged"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", full)
        with refused(RecordError):
            merge(three, target)
    assert list(target.parent.iterdir()) == []
    merge(three, target)
    with refused(RecordError):
        merge(three, target)


def said_of(stores, tmp_path, kind=UsageError) -> str:
    with pytest.raises(kind) as caught:
        merge(stores, tmp_path / "merged")
    as_reviewed(*str(caught.value).splitlines())
    assert not (tmp_path / "merged").exists()
    return str(caught.value)


def test_blocks_that_are_missing_or_there_twice_are_named(three, tmp_path, small_plan, make_record):
    said_of(three[1:], tmp_path)
    again = recorded(tmp_path / "again", small_plan, make_record, "1/2")
    assert missing(said_of([*three, again], tmp_path), ["block", 1, again.path]) == []
    said_of(three[:1], tmp_path)
    said_of([three[0]] * 2, tmp_path)


def test_another_plan_is_named_by_what_differs(three, tmp_path, make_study, make_record):
    other = recorded(tmp_path / "other", make_plan(make_study(seed=8)), make_record, "3/3")
    said_of([*three[:2], other], tmp_path)
    asked = make_study(options={"parameters": {"rps": 5}})
    other = recorded(tmp_path / "asked", make_plan(asked), make_record, "3/3")
    assert missing(said_of([*three[:2], other], tmp_path), ["rps", other.path]) == []


def test_what_is_no_part_is_refused(three, tmp_path, small_plan):
    whole = StudyStore.create(tmp_path / "all", small_plan, {"testbed": {}})
    said_of([*three, whole], tmp_path)


def test_a_part_that_is_not_through_is_refused(three, tmp_path, small_plan, make_record):
    short = recorded(tmp_path / "short", small_plan, make_record, "3/3", skip=1)
    said_of([*three[:2], short], tmp_path, RecordError)


def test_an_altered_run_and_one_of_another_part_are_refused(three, tmp_path):
    folder = next((three[0].path / "runs").iterdir())
    (folder / "latency.parquet").write_bytes(b"")
    altered = f"{folder}/latency.parquet: was altered after it was recorded"
    said_of(three, tmp_path, RecordError)
    shutil.copytree(next((three[1].path / "runs").iterdir()), three[2].path / "runs" / "strayed")
    strayed = StudyStore.open(three[1].path).records()[0].run_id
    first, second = said_of(three, tmp_path, RecordError).splitlines()
    assert first == altered
    assert second.startswith(f"{three[2].path}: ")
    assert second.endswith(strayed)
