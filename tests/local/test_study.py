"""Whole studies on real processes: a notebook by papermill, an interrupted study, and one whose kernel is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from commandline import meshtrial
from faults.session import Session
from local.studies import PATIENCE_S, SHORT, only, short

from meshtrial import paths
from meshtrial.errors import Exit
from meshtrial.records.store import StudyStore


def started(folder: Path, *given: str) -> Session:
    """Run a study by its command in the test's folders."""
    session = Session(folder, (sys.executable, "-m", "meshtrial", "run", "ambient_vs_no_mesh", *given))
    session.start()
    return session


def firsts(folder: Path) -> dict[str, float]:
    """Return when each recorded run started first."""
    return {run.run_id: run.start_unix_s for run in StudyStore.open(folder).records() if run.attempt == 1}


def test_an_interrupted_study_keeps_its_blocks_and_goes_on(tmp_path):
    given, kept = short(blocks=4, treatments="none"), {}
    for number, done in ((signal.SIGINT, 2), (signal.SIGTERM, 5)):
        session = started(tmp_path, *given)
        session.reach(lambda session, done=done: f"[{done}/8]" in session.log.read_text())
        os.kill(session.pid, number)
        code, said = session.ended(), session.log.read_text()
        assert code == Exit.INTERRUPTED, said
        assert "resume with:" in said
        assert " left, until about " in said.splitlines()[0]  # the duration is printed at once
        assert "\r" not in said
        page = max(Path(os.environ["MESHTRIAL_REPORTS"]).glob("ambient*.html")).read_text()
        banner = page[page.index('<section class="banner"') : page.index("<h1")]
        assert "This study is unfinished." in banner
        assert "of 8 runs are recorded" in banner
        assert "-p study_dir=" in banner
        folder = only(Path(os.environ["MESHTRIAL_DATA"]), "ambient_vs_no_mesh/*")
        now = firsts(folder)
        assert done <= len(now) < 8
        assert {run: now[run] for run in kept} == kept
        given, kept = ["-p", f"study_dir={folder}"], now

    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *given)
    assert code in (0, Exit.EXCLUDED), err
    assert "[2/8]" not in out  # no run of the first block is repeated
    assert "[8/8]" in out
    whole = firsts(folder)
    assert len(whole) == 8
    assert {run: whole[run] for run in kept} == kept


def test_a_study_whose_kernel_is_killed_says_so_at_its_top_and_ends_with_it(tmp_path):
    session = started(tmp_path, *short(blocks=3))
    session.reach(lambda session: "[2/12]" in session.log.read_text())
    os.kill(session.component("ipykernel"), signal.SIGKILL)
    code, said = session.ended(), session.log.read_text()
    assert code == 1, said
    assert "meshtrial run: the notebook's kernel died" in said
    first = json.loads(only(Path(os.environ["MESHTRIAL_REPORTS"]), "ambient*.ipynb").read_text())["cells"][0]
    said = "".join(first["source"])
    assert "the notebook's kernel died" in said
    assert "of 12 runs are recorded" in said
    assert "-p study_dir=" in said


def papermill(out: Path, *parameters: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "papermill", paths.NOTEBOOKS / "ambient_vs_no_mesh.ipynb", out, *parameters)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=out.parent, check=False)


def test_papermill_alone_runs_the_notebook(tmp_path):
    given = SHORT | {"blocks": 2, "treatments": "none", "slices": 0}  # as many as the profile says
    out = tmp_path / "out.ipynb"
    done = papermill(out, *(part for name, value in given.items() for part in ("-p", name, str(value))))
    assert done.returncode == 0, done.stderr[-2000:]
    assert out.exists()


def test_the_notebook_itself_refuses_a_misspelt_parameter(tmp_path):
    done = papermill(tmp_path / "out.ipynb", "-p", "blcoks", "3")
    assert done.returncode != 0
    assert "did you mean blocks?" in done.stderr


def test_a_missing_binary_is_said_before_anything_is_written(monkeypatch):
    monkeypatch.setenv("MESHTRIAL_ENVOY", "/nonexistent/envoy")
    code, _, err = meshtrial("run", "ambient_vs_no_mesh", *short(blocks=2))
    assert code == 1
    assert "MESHTRIAL_ENVOY" in err
    assert not Path(os.environ["MESHTRIAL_DATA"]).exists()
    # The notebook has its failure as text, which messages, pages and logs show.
    notebook = only(Path(os.environ["MESHTRIAL_REPORTS"]), "ambient*.ipynb").read_text()
    assert "MissingToolError" in notebook
    assert "\\u001b" not in notebook
