"""Status lists the recorded studies, and the running study with its remaining time."""

import fcntl
import re
import threading

import pytest
from commandline import meshtrial
from refused import refused

from meshtrial.errors import RecordError
from meshtrial.records.store import StudyStore


def status() -> str:
    code, out, _ = meshtrial("status")
    assert code == 0
    return out


@pytest.fixture
def store(small_plan, make_record, tmp_path, monkeypatch) -> StudyStore:
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    made = StudyStore.create(tmp_path, small_plan, {})
    for run in small_plan.runs[:3]:
        made.finish(made.begin(run.run_id, 1), make_record(small_plan, run, {}), None)
    return made


def test_a_study_that_runs_says_so_and_until_when(store):
    with store.locked():
        # It names the day if the study would end after midnight.
        left = re.escape(str(store.path)) + r"  running, 1 of 6 blocks, .+ left, until about (\w+ )?\d\d:\d\d  "
        assert re.fullmatch(left + "3/18 runs, 0 attempts failed\n", status())
    assert status() == f"{store.path}  provisional, 1 of 6 blocks  3/18 runs, 0 attempts failed\n"


def test_a_damaged_run_is_told_with_what_makes_it_again_and_hides_nothing_else(store):
    folder = store.folder(store.plan.runs[0].run_id, 1)
    (folder / "run.json").write_text("")
    again = f"meshtrial run {store.plan.study.name} -p study_dir={store.path}"
    line = status()
    assert line.startswith(f"{store.path}  provisional, 0 of 6 blocks, 1 damaged ({folder.name}); ")
    assert line.endswith(f"{again}  2/18 runs, 0 attempts failed\n")


def test_a_running_study_is_not_run_twice_but_one_that_is_only_asked_about_is(store):
    with store.locked():
        assert store.running
        with refused(RecordError, names=[store.path]), store.locked():
            pass
    (store.path / ".lock").touch()
    assert not store.running  # a killed process left it
    with (store.path / ".lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.02, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with store.locked():
            assert store.running


def test_runs_whose_plan_is_gone_are_told(store):
    (store.path / "plan.json").unlink()
    assert status().startswith(f"{store.path}  unreadable: {store.path / 'plan.json'}: is missing")
