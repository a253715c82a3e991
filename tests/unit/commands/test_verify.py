"""`meshtrial verify` reports every kind of damage, and accepts what a crash leaves."""

import dataclasses
import shutil
from pathlib import Path

import polars as pl
import pytest
from commandline import meshtrial
from refused import as_reviewed, missing

from meshtrial.design.plan import make_plan
from meshtrial.inference import analyse
from meshtrial.records.mechanism import write_mechanism
from meshtrial.records.store import StudyStore, read_json, seal, write_checksums, write_json


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make_study, make_record) -> Path:
    plan = make_plan(make_study())
    store = StudyStore.create(tmp_path_factory.mktemp("whole"), plan, {})
    for index, run in enumerate(plan.runs):
        record = make_record(plan, run, {"latency_p50_s": 0.1 + 0.001 * index})
        store.finish(store.begin(run.run_id, 1), record, None)
    analyse(store)
    return store.path


@pytest.fixture
def study(whole: Path, tmp_path: Path) -> StudyStore:
    return StudyStore.open(shutil.copytree(whole, tmp_path / "study"))


def verify(study: StudyStore) -> tuple[int, str]:
    code, _, err = meshtrial("verify", study.path)
    return code, err


def told(study: StudyStore) -> str:
    """Return the problems that it finds."""
    code, err = verify(study)
    assert code == 1
    as_reviewed(*err.splitlines())
    return err


def test_what_was_written_is_intact_and_what_a_crash_left_is_no_damage(study):
    assert verify(study) == (0, "")
    (study.begin("09-9-none", 1) / "fortio.json").write_text("{")
    assert verify(study) == (0, "")


def test_other_verdicts_in_parquet_are_told(study):
    path = study.path / "verdicts.parquet"
    pl.read_parquet(path).with_columns(ratio=pl.col("ratio") * 1.5).write_parquet(path)
    told(study)


@pytest.mark.parametrize("name", ["verdicts.parquet", "runs.parquet"])
def test_a_table_that_cannot_be_read_is_told_with_what_makes_it_again(study, name):
    path = study.path / name
    path.write_bytes(path.read_bytes()[:100])
    assert missing(told(study), [path, study.path]) == []
    path.unlink()
    assert verify(study)[0] == 1


@pytest.mark.parametrize(("name", "changed"), [("environment.json", {"cpus": 64}), ("stopping.json", {"alpha": 0.5})])
def test_another_environment_and_another_end_are_told(study, name, changed):
    path = study.path / name
    write_json(path, read_json(path) | changed)
    told(study)


def test_an_environment_of_a_study_that_began_before_its_digest_was_written_is_not_asked_for(study):
    (study.path / "SHA256SUMS").unlink()
    assert verify(study) == (0, "")


@pytest.fixture
def sample(copied) -> StudyStore:
    return StudyStore.open(copied)


def test_latencies_that_the_requests_do_not_give_are_told_though_the_sums_were_remade(sample):
    folder = sample.folder(sample.plan.runs[0].run_id, 1)
    record = read_json(folder / "run.json")
    slower = {name: 5 * value for name, value in record["responses"].items() if name.startswith("latency_p")}
    write_json(folder / "run.json", record | {"responses": record["responses"] | slower})
    write_checksums(folder)
    analyse(sample)
    told(sample)


def test_a_run_that_cannot_be_read_is_told_beside_what_else_there_is(study):
    folders = [study.folder(run.run_id, 1) for run in study.plan.runs[:2]]
    (folders[0] / "run.json").write_text("")
    (folders[1] / "more").touch()
    told(study)


def test_a_run_that_the_plan_does_not_have_is_told(study, make_record):
    run = dataclasses.replace(study.plan.runs[0], run_id="98-1-none")
    study.finish(study.begin(run.run_id, 1), make_record(study.plan, run, {"latency_p50_s": 0.1}), None)
    told(study)


def again(folder, **changed) -> None:
    """Change a record and recompute its sums."""
    write_json(folder / "run.json", read_json(folder / "run.json") | changed)
    write_checksums(folder)


@pytest.mark.parametrize(
    "changed", [{"treatment": "node-proxy"}, {"repetition": 2}, {"reasons": ["it was slow"]}, {"valid": False}]
)
def test_a_record_that_is_at_odds_with_its_plan_or_itself_is_told(study, changed):
    run = next(run for run in study.plan.runs if run.treatment == "none" and run.repetition == 1)
    folder = study.folder(run.run_id, 1)
    again(folder, **changed)
    analyse(study)
    told(study)


def test_cpu_that_the_components_did_not_use_is_told(sample):
    folder = sample.folder(sample.plan.runs[0].run_id, 1)
    responses = read_json(folder / "run.json")["responses"]
    used = responses["path_cpu_s_per_request"]
    again(folder, responses=responses | {"path_cpu_s_per_request": 5 * used})
    analyse(sample)
    told(sample)


def test_a_file_that_went_with_its_digest_is_told(sample):
    folder = sample.folder(sample.plan.runs[0].run_id, 1)
    (folder / "latency.parquet").unlink()
    write_checksums(folder)
    told(sample)


def test_requests_that_give_no_latency_are_told(sample):
    folder = sample.folder(sample.plan.runs[0].run_id, 1)
    pl.read_parquet(folder / "latency.parquet").clear().write_parquet(folder / "latency.parquet")
    write_checksums(folder)
    told(sample)


def test_a_digest_that_is_gone_is_missed_where_the_environment_names_it(tmp_path, small_plan, make_record):
    study = StudyStore.create(tmp_path, small_plan, {"sealed_in": "SHA256SUMS", "plan_sha256": small_plan.sha256})
    run = small_plan.runs[0]
    study.finish(study.begin(run.run_id, 1), make_record(small_plan, run, {"latency_p50_s": 0.1}), None)
    analyse(study)
    assert verify(study) == (0, "")
    for damaged in (b"\xff\xfe", b""):
        (study.path / "SHA256SUMS").write_bytes(damaged)
        told(study)


def test_an_environment_of_another_study_is_told(study):
    path = study.path / "environment.json"
    write_json(path, {"plan_sha256": "0" * 64})
    seal(study.path)
    told(study)


def test_a_mechanism_that_was_altered_is_told(study):
    write_mechanism(study.path, ())
    assert verify(study) == (0, "")
    path = study.path / "mechanism.json"
    path.write_text(path.read_text().replace("[]", "[ ]"))
    told(study)
