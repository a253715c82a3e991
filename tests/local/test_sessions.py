"""A study of several sessions on real processes: interrupted in a gap and in a session, and started by cron."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from local.studies import PATIENCE_S, SHORT, only, short

from meshtrial import paths, waiting
from meshtrial.errors import Exit
from meshtrial.records.store import StudyStore
from meshtrial.run.sessions import next_session
from meshtrial.run.trial import Trial

ENDED = (0, Exit.EXCLUDED)
TWO_OF_TWO = SHORT | {
    "blocks": 4,
    "treatments": "none",
    "seed": 4711,
    "sessions": 2,
    "session_gap": "1h",
    "deployment_mode": "sequential",
}
THREE = SHORT | {"blocks": 3, "treatments": "none", "seed": 4711, "sessions": 3}


def blocks_recorded(root: Path) -> list[int]:
    """Return the blocks with a recorded run, in order."""
    store = StudyStore.open(only(root, "ambient_vs_no_mesh/*"))
    return sorted({record.repetition for record in store.records()})


def test_sessions_follow_each_other_after_their_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    lines: list[str] = []
    data = Trial("ambient_vs_no_mesh", THREE | {"session_gap": "3s"}).run(lines.append)
    assert data.plan.study.sessions == 3
    starts = {run.repetition: run.start_unix_s for run in data.runs if run.attempt == 1}
    assert starts[2] - starts[1] > 3
    assert starts[3] - starts[2] > 3
    assert sum("session" in line and "begins at" in line for line in lines) == 2


def test_a_study_that_is_interrupted_in_a_gap_resumes_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))

    def interrupt(line: str) -> None:
        if "session 2 of 3 begins at" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trial("ambient_vs_no_mesh", THREE | {"session_gap": "2s"}).run(interrupt)
    assert blocks_recorded(tmp_path) == [1]
    folder = only(tmp_path, "ambient_vs_no_mesh/*")
    data = Trial("ambient_vs_no_mesh", {"study_dir": str(folder)}).run(lambda _: None)
    ends = {run.repetition: run.start_unix_s for run in data.runs if run.attempt == 1}
    assert sorted(ends) == [1, 2, 3]
    assert ends[2] - ends[1] > 2


def test_a_study_that_is_interrupted_in_a_session_continues_it_at_once(tmp_path: Path):
    command = [paths.CHECKOUT / ".venv/bin/meshtrial", "run", "ambient_vs_no_mesh", "--next-session"]
    command += [*short(**TWO_OF_TWO), "--allow-excluded"]
    environment = os.environ | {
        "MESHTRIAL_DATA": str(tmp_path / "data"),
        "MESHTRIAL_REPORTS": str(tmp_path / "reports"),
        "MESHTRIAL_PATIENCE_S": "0",
    }

    def incomplete() -> list[Path]:
        return [path for path in (tmp_path / "data").glob("*/*/runs/.incomplete-*") if "02-" in path.name]

    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert waiting.until(lambda: bool(incomplete()) or child.poll() is not None, PATIENCE_S, 0.02)
    child.send_signal(signal.SIGINT)
    told, _ = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == Exit.INTERRUPTED, told
    store = StudyStore.open(only(tmp_path / "data", "ambient_vs_no_mesh/*"))
    before = {record.run_id: record.finished_at for record in store.records()}
    assert {run.repetition for run in store.plan.runs if run.run_id in before} == {1}
    interrupted = next_session(store)
    assert interrupted is not None
    assert (interrupted.number, interrupted.due_unix_s) == (1, 0.0)

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    records = store.records()
    assert before.items() <= {record.run_id: record.finished_at for record in records}.items()
    assert {record.repetition for record in records} == {1, 2}
    # The gap begins at the end of the resumed session.
    following = next_session(store)
    assert following is not None
    assert following.number == 2
    assert following.due_unix_s == max(record.finished_unix_s for record in records) + 3600


def test_cron_runs_the_session_that_is_due(tmp_path: Path):
    command = [paths.CHECKOUT / ".venv/bin/meshtrial", "run", "ambient_vs_no_mesh", "--next-session"]
    command += [*short(**THREE, session_gap="1h"), "--allow-excluded"]
    # Cron's environment: no HOME, a short PATH, no terminal.
    environment = {
        "PATH": "/usr/bin:/bin",
        "MESHTRIAL_DATA": str(tmp_path / "data"),
        "MESHTRIAL_REPORTS": str(tmp_path / "reports"),
        "MESHTRIAL_PATIENCE_S": "0",
    }

    def by_cron() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    first = by_cron()
    assert first.returncode == 0, first.stderr
    assert "session 2 of 3 begins at" in first.stdout
    assert blocks_recorded(tmp_path / "data") == [1]
    second = by_cron()
    assert second.returncode == 0, second.stderr
    assert "session 2 of 3 begins at" in second.stdout
    assert blocks_recorded(tmp_path / "data") == [1]
    assert len(list((tmp_path / "reports").glob("ambient*.html"))) == 1


def test_a_command_that_is_ended_in_a_gap_leaves_a_study_to_resume(tmp_path: Path):
    command = [paths.CHECKOUT / ".venv/bin/meshtrial", "run", "ambient_vs_no_mesh", *short(**THREE, session_gap="1h")]
    environment = os.environ | {
        "MESHTRIAL_DATA": str(tmp_path / "data"),
        "MESHTRIAL_REPORTS": str(tmp_path / "reports"),
    }
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    for line in child.stdout:
        if "session 2 of 3 begins at" in line:
            break
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    rest = child.stdout.read()
    assert child.wait(timeout=PATIENCE_S) == Exit.INTERRUPTED
    assert time.monotonic() - began < PATIENCE_S
    assert "meshtrial run ambient_vs_no_mesh -p study_dir=" in rest
    assert blocks_recorded(tmp_path / "data") == [1]
