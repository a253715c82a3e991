"""`meshtrial verify`: every kind of damage is told, and what a crash left is none."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import polars as pl
import pytest
from commandline import SAMPLE, meshtrial
from refused import missing

from meshtrial.inference import analyse
from meshtrial.records.store import StudyStore, read_json, write_checksums, write_json


@pytest.fixture
def study(tmp_path: Path, small_plan, make_record) -> StudyStore:
    store = StudyStore.create(tmp_path, small_plan, {})
    for index, run in enumerate(small_plan.runs):
        record = make_record(small_plan, run, {"latency_p50_s": 0.1 + 0.001 * index})
        store.finish(store.begin(run.run_id, 1), record, None)
    analyse(store)
    return store


def verify(study: StudyStore) -> tuple[int, str]:
    code, _, err = meshtrial("verify", study.path)
    return code, err


def test_what_was_written_is_intact_and_what_a_crash_left_is_no_damage(study):
    assert verify(study) == (0, "")
    (study.begin("09-9-none", 1) / "fortio.json").write_text("{")
    assert verify(study) == (0, "")


def test_other_verdicts_in_parquet_are_told(study):
    path = study.path / "verdicts.parquet"
    pl.read_parquet(path).with_columns(ratio=pl.col("ratio") * 1.5).write_parquet(path)
    code, err = verify(study)
    assert code == 1
    assert err.splitlines() == [f"meshtrial verify: {path}: re-analysis of the records gives other verdicts"]


@pytest.mark.parametrize("name", ["verdicts.parquet", "runs.parquet"])
def test_a_table_that_cannot_be_read_is_told_with_what_makes_it_again(study, name):
    path = study.path / name
    path.write_bytes(path.read_bytes()[:100])
    code, err = verify(study)
    assert code == 1
    assert missing(err, [path, study.path]) == []
    path.unlink()
    assert verify(study)[0] == 1


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("environment.json", {"cpus": 64}, "was altered after it was recorded"),
        ("stopping.json", {"alpha": 0.5}, "the rule and the records say something else"),
    ],
)
def test_another_environment_and_another_end_are_told(study, name, changed, told):
    path = study.path / name
    write_json(path, read_json(path) | changed)
    code, err = verify(study)
    assert (code, err) == (1, f"meshtrial verify: {path}: {told}\n")


def test_an_environment_of_a_study_that_began_before_its_digest_was_written_is_not_asked_for(study):
    (study.path / "SHA256SUMS").unlink()
    assert verify(study) == (0, "")


def test_latencies_that_the_requests_do_not_give_are_told_though_the_sums_were_remade(tmp_path):
    study = StudyStore.open(shutil.copytree(SAMPLE, tmp_path / SAMPLE.parent.name / SAMPLE.name))
    folder = study.folder(study.plan.runs[0].run_id, 1)
    record = read_json(folder / "run.json")
    slower = {name: 5 * value for name, value in record["responses"].items() if name.startswith("latency_p")}
    write_json(folder / "run.json", record | {"responses": record["responses"] | slower})
    write_checksums(folder)
    analyse(study)
    code, err = verify(study)
    assert code == 1
    p50 = record["responses"]["latency_p50_s"]
    assert f"{folder / 'run.json'}: latency_p50_s is {5 * p50:.6g}, its requests give {p50:.6g}" in err


def test_a_run_that_cannot_be_read_is_told_beside_what_else_there_is(study):
    folders = [study.folder(run.run_id, 1) for run in study.plan.runs[:2]]
    (folders[0] / "run.json").write_text("")
    (folders[1] / "more").touch()
    code, err = verify(study)
    assert code == 1
    assert f"{folders[0] / 'run.json'}: cannot be read (" in err
    assert f"{folders[1] / 'more'}: was not there when the run was recorded" in err


def test_a_run_that_is_there_twice_is_told(study):
    run = study.plan.runs[0]
    twice = study.folder(run.run_id, 1).with_name("99-9-none")
    shutil.copytree(study.folder(run.run_id, 1), twice)
    code, err = verify(study)
    assert code == 1
    assert f"{twice}: is not the folder of the run that it holds" in err


def test_a_run_that_the_plan_does_not_have_is_told(study, make_record):
    run = dataclasses.replace(study.plan.runs[0], run_id="98-1-none")
    study.finish(study.begin(run.run_id, 1), make_record(study.plan, run, {"latency_p50_s": 0.1}), None)
    code, err = verify(study)
    assert code == 1
    assert f"{study.folder(run.run_id, 1)}: its run is not in the plan" in err
