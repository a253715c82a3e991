import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from refused import refused

from meshtrial.errors import RecordError, UsageError
from meshtrial.records.columns import read_frame
from meshtrial.records.store import StudyStore, check_checksums, read_json, write_json, write_text

REQUESTS = pl.DataFrame({"latency_s": [0.1, 0.2], "ok": [True, False]})


@pytest.fixture
def store(tmp_path, small_plan):
    return StudyStore.create(tmp_path, small_plan, {"testbed": {}})


def finish(store, make_record, index=0, attempt=1, **more):
    run = store.plan.runs[index]
    folder = store.begin(run.run_id, attempt)
    record = make_record(store.plan, run, {"latency_p50_s": 0.1}, attempt=attempt, **more)
    return store.finish(folder, record, REQUESTS)


def test_the_plan_is_on_disk_before_any_run_and_is_the_same(store, small_plan):
    assert StudyStore.open(store.path).plan == small_plan
    assert store.records() == ()


def test_a_whole_run_is_read_back_and_verified(store, make_record):
    folder = finish(store, make_record)
    assert [r.run_id for r in store.records()] == [store.plan.runs[0].run_id]
    assert pl.read_parquet(folder / "latency.parquet").equals(REQUESTS)
    assert check_checksums(folder) == []


def test_a_table_is_read_from_a_folder_whose_name_looks_like_a_pattern(tmp_path):
    folder = tmp_path / "studies [1] {x} *?" / "mode=a"
    folder.mkdir(parents=True)
    REQUESTS.write_parquet(folder / "latency.parquet")
    assert read_frame(folder / "latency.parquet").equals(REQUESTS)


def test_a_run_is_written_once(store, make_record):
    finish(store, make_record)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOTEMPTY):
        finish(store, make_record)


def test_a_run_that_was_not_finished_is_not_there(store, make_record):
    finish(store, make_record)
    store.begin(store.plan.runs[1].run_id, 1)
    assert len(store.records()) == 1
    assert store.discard_incomplete() == [store.plan.runs[1].run_id]
    assert len(list((store.path / "runs").iterdir())) == 1


def test_checksums_find_what_was_altered_removed_and_added(store, make_record):
    folder = finish(store, make_record)
    (folder / "run.json").write_text("{}")
    (folder / "resources.parquet").unlink()
    (folder / "new").write_text("x")
    assert set(check_checksums(folder)) == {
        f"{folder}/run.json: was altered after it was recorded",
        f"{folder}/resources.parquet: is missing",
        f"{folder}/new: was not there when the run was recorded",
    }


def test_a_truncated_record_names_its_file(store, make_record):
    folder = finish(store, make_record)
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text[: len(text) // 2])
    with refused(RecordError, names=[folder / "run.json"]):
        store.records()


def test_what_cannot_be_read_is_set_aside_and_made_again(store, make_record):
    for times in (1, 2):
        folder = finish(store, make_record)
        (folder / "run.json").write_text("")
        moved = store.set_aside()
        where = store.path / "damaged" / (folder.name if times == 1 else f"{folder.name}-2")
        assert moved.keys() == {where}
        assert moved[where].startswith(f"{folder / 'run.json'}: cannot be read (")
        assert (where / "latency.parquet").exists()
    finish(store, make_record)
    assert store.set_aside() == {}
    assert len(store.records()) == 1


def test_runs_are_in_the_order_of_the_plan_whatever_the_clock_said(store, make_record, monkeypatch):
    for index, attempt in ((0, 1), (1, 1), (0, 2), (2, 1)):
        run = store.plan.runs[index]
        record = make_record(store.plan, run, {"latency_p50_s": 0.1}, attempt=attempt)
        back = replace(record, start_unix_s=1e9 - 3600 * index)  # an hour earlier, run by run
        store.finish(store.begin(run.run_id, attempt), back, REQUESTS)
    assert [(record.sequence, record.attempt) for record in store.records()] == [(0, 1), (0, 2), (1, 1), (2, 1)]


@pytest.mark.linux
def test_a_run_is_on_the_disk_before_it_has_its_name(store, make_record, monkeypatch):
    written, real = [], os.fsync

    def fsync(handle: int) -> None:
        written.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = finish(store, make_record)
    before = written[: written.index(str(folder.parent))]
    names = {path.name for path in folder.rglob("*")}
    assert {"run.json", "latency.parquet", "SHA256SUMS"} <= names
    assert {Path(path).name for path in before} >= names | {f".incomplete-{folder.name}"}


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "page.html", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_plan_is_refused(store, make_record, make_study, tmp_path):
    from meshtrial.design.plan import make_plan

    other = StudyStore.create(tmp_path / "other", make_plan(make_study(seed=99)), {})
    folder = finish(other, make_record)
    folder.rename(store.path / "runs" / folder.name)
    with refused(RecordError):
        store.records()


def test_two_processes_do_not_run_one_study(store):
    with store.locked(), refused(RecordError), store.locked():
        pass
    with store.locked():
        pass


def test_whoever_waited_with_the_lock_in_hand_keeps_everybody_else_out(store):
    with store.locked():
        waiting = (store.path / ".lock").open("w")
    with waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert store.running
        with refused(RecordError), store.locked():
            pass
    assert not store.running


def test_a_folder_that_cannot_be_written_is_not_called_locked(store):
    (store.path / ".lock").mkdir()
    with refused(RecordError), store.locked():
        pass


def test_nothing_is_measured_for_a_plan_that_went(store):
    (store.path / "plan.json").unlink()
    with refused(RecordError):
        store.begin(store.plan.runs[0].run_id, 1)
    assert list((store.path / "runs").iterdir()) == []


def test_what_is_no_study_folder_is_said(tmp_path):
    with refused(UsageError):
        StudyStore.open(tmp_path / "nowhere")
    with refused(RecordError):
        StudyStore.open(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with refused(RecordError):
        read_json(tmp_path / "plan.json")


def test_json_is_whole_and_has_no_nan(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with refused(ValueError):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    "error",
    [
        OSError(30, "Read-only file system"),
        FileNotFoundError("No such file or directory (os error 2): runs/x"),
        pl.exceptions.ComputeError(
            "parquet: File out of specification: underlying IO error: No space left on device (os error 28)"
        ),
    ],
)
def test_what_the_machine_does_not_let_be_written_is_said_in_its_own_words(store, error):
    with refused(RecordError), store.written():
        raise error
    with pytest.raises(pl.exceptions.ComputeError, match="another"), store.written():
        raise pl.exceptions.ComputeError("another")


def test_what_cannot_be_written_elsewhere_is_said_with_its_place(store, tmp_path):
    key = str(tmp_path / "temporary" / "ca.key")
    with refused(RecordError), store.written():
        raise OSError(errno.ENOSPC, "No space left on device", key)


def test_a_study_without_its_runs_says_so_wherever_it_is_asked(store):
    (store.path / "runs").rmdir()
    for ask in (store.records, store.run_folders, store.discard_incomplete):
        with refused(RecordError):
            ask()
