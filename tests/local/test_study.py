"""The whole spine on real processes: a notebook by papermill, an interrupted study, the report again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from browser import opening
from local.studies import PATIENCE_S

from meshtrial import cli, paths
from meshtrial.commands.run import INVALID_RUNS
from meshtrial.records.store import StudyStore, check_checksums

SHORT = {"rps": 300, "connections": 4, "duration_s": 0.8, "warmup_s": 0.2}


def meshtrial(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return cli.main(argv, out, err), out.getvalue(), err.getvalue()


def short(**more: object) -> list[str]:
    return [part for name, value in (SHORT | more).items() for part in ("-p", f"{name}={value}")]


def only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    assert len(found) == 1, (folder, pattern, found)
    return found[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Path, Path, str]:
    """A short study, run once for this module: its folder, the reports' folder, what was printed."""
    root = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHTRIAL_DATA", str(root / "studies"))
        patch.setenv("MESHTRIAL_REPORTS", str(root / "reports"))
        code, out, err = meshtrial("run", "ambient_vs_no_mesh", *short(blocks=3))
        assert code in (0, INVALID_RUNS), err
    return only(root / "studies", "ambient_vs_no_mesh/*"), root / "reports", out


@pytest.mark.skipif(opening.CHROMIUM is None, reason="no Chromium on PATH; apt install chromium")
def test_its_report_opens_clean_in_a_browser(recorded):
    page = only(recorded[1], "ambient_vs_no_mesh-*.html")
    checker = opening.checker()
    with opening.browser() as chromium:
        for name, setting in opening.SETTINGS.items():
            assert opening.look(chromium, page, setting, checker).wrong() == [], name
    if not checker:
        pytest.skip("everything but accessibility was looked at: axe-core could not be had from npm")


def test_a_study_leaves_everything_the_design_lists(recorded):
    folder, reports, out = recorded
    store = StudyStore.open(folder)
    assert {p.name for p in folder.iterdir()} >= {
        "plan.json",
        "environment.json",
        "runs",
        "runs.parquet",
        "verdicts.json",
        "verdicts.parquet",
    }
    firsts = [r for r in store.records() if r.attempt == 1]
    assert [r.run_id for r in firsts] == [r.run_id for r in store.plan.runs]
    for record in store.records():
        run = store.folder(record.run_id, record.attempt)
        assert {p.name for p in run.iterdir()} >= {
            "run.json",
            "fortio.json",
            "latency.parquet",
            "series.parquet",
            "resources.parquet",
            "logs",
        }
        assert check_checksums(run) == []
        columns = set(pl.read_parquet(run / "latency.parquet").columns)
        assert {"scheduled_start_s", "actual_start_s", "latency_s", "ok", "code"} <= columns
    rows = json.loads((folder / "verdicts.json").read_text())
    wanted = "study load response treatment baseline n_blocks ratio ci_low ci_high confidence difference_ms p"
    assert all({*wanted.split(), "p_adjusted", "verdict", "warnings"} <= set(row) for row in rows)
    assert "report" in out
    page = only(reports, "ambient*.html").read_text()
    assert "no difference" not in page.lower()
    assert (reports / "index.html").exists()


def test_quantiles_in_the_record_are_those_of_the_requests(recorded):
    import numpy as np

    store = StudyStore.open(recorded[0])
    record = store.records()[0]
    requests = pl.read_parquet(store.folder(record.run_id, record.attempt) / "latency.parquet")
    ok = requests.filter(pl.col("ok"))["latency_s"].to_numpy()
    assert record.responses["latency_p50_s"] == float(np.quantile(ok, 0.5))


def test_a_record_can_be_published(recorded):
    """No path of this machine and no name of it, and no access log but the parquet."""
    folder, _, _ = recorded
    secrets = [str(paths.CHECKOUT), str(folder.parent), str(Path.home()), os.uname().nodename]
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".parquet":
            text = file.read_text(errors="replace")
            assert [s for s in secrets if len(s) > 3 and s in text] == [], file


def test_what_is_derived_can_be_deleted_and_comes_back_identical(recorded, monkeypatch):
    folder, _, _ = recorded
    names = ("runs.parquet", "verdicts.json", "verdicts.parquet")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    code, _, err = meshtrial("report", str(folder))
    assert code in (0, INVALID_RUNS), err
    assert {name: (folder / name).read_bytes() for name in names} == before
    code, out, err = meshtrial("verify", str(folder))
    assert code == 0, err
    assert "intact" in out


def test_an_altered_record_is_found(recorded):
    folder, _, _ = recorded
    victim = next(folder.glob("runs/*/fortio.json"))
    kept = victim.read_bytes()
    try:
        victim.write_bytes(kept[:-10])
        code, _, err = meshtrial("verify", str(folder))
        assert code == 1
        assert "was altered after it was recorded" in err
    finally:
        victim.write_bytes(kept)


def started(log: Path, *given: str) -> subprocess.Popen[bytes]:
    """A study in a process group of its own, which says what it does in ``log``."""
    command = [sys.executable, "-m", "meshtrial", "run", "ambient_vs_no_mesh", *given]
    with log.open("w") as out:
        # A test runner in the background has SIGINT ignored, which children inherit.
        return subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def wait_until_said(words: str, log: Path, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while words not in log.read_text():
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def firsts(folder: Path) -> dict[str, float]:
    """When each run that is recorded began first."""
    return {run.run_id: run.start_unix_s for run in StudyStore.open(folder).records() if run.attempt == 1}


def test_an_interrupted_study_keeps_its_blocks_and_goes_on(tmp_path):
    log, given, kept = tmp_path / "log", short(blocks=4, treatments="none"), {}
    for number, done in ((signal.SIGINT, 2), (signal.SIGTERM, 5)):
        child = started(log, *given)
        wait_until_said(f"[{done}/8]", log, child)
        os.kill(child.pid, number)
        assert child.wait(PATIENCE_S) == cli.INTERRUPTED, log.read_text()
        said = log.read_text()
        assert "to go on" in said
        assert " left, until about " in said.splitlines()[0]  # how long it takes, said at once
        assert "\r" not in said
        page = max(Path(os.environ["MESHTRIAL_REPORTS"]).glob("ambient*.html")).read_text()
        banner = page[page.index('<section class="banner"') : page.index("<h1")]
        assert "This study did not come to its end." in banner
        assert "of 8 runs are recorded" in banner
        assert "-p study_dir=" in banner
        folder = only(Path(os.environ["MESHTRIAL_DATA"]), "ambient_vs_no_mesh/*")
        now = firsts(folder)
        assert done <= len(now) < 8
        assert {run: now[run] for run in kept} == kept
        given, kept = ["-p", f"study_dir={folder}"], now

    code, out, err = meshtrial("run", "ambient_vs_no_mesh", *given)
    assert code in (0, INVALID_RUNS), err
    assert "[2/8]" not in out  # of the first block nothing is run again
    assert "[8/8]" in out
    whole = firsts(folder)
    assert len(whole) == 8
    assert {run: whole[run] for run in kept} == kept


def test_a_study_whose_kernel_is_killed_says_so_at_its_top_and_ends_with_it(tmp_path):
    log = tmp_path / "log"
    child = started(log, *short(blocks=3))
    wait_until_said("[2/12]", log, child)
    (kernel,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    os.kill(int(kernel), signal.SIGKILL)
    assert child.wait(PATIENCE_S) == 1, log.read_text()
    assert "meshtrial run: the notebook's kernel died" in log.read_text()
    first = json.loads(only(Path(os.environ["MESHTRIAL_REPORTS"]), "ambient*.ipynb").read_text())["cells"][0]
    said = "".join(first["source"])
    assert "the notebook's kernel died" in said
    assert "of 12 runs are recorded" in said
    assert "-p study_dir=" in said


def test_papermill_alone_runs_the_notebook(tmp_path):
    out = tmp_path / "out.ipynb"
    parameters = [
        part
        for name, value in (SHORT | {"blocks": 2, "treatments": "none"}).items()
        for part in ("-p", name, str(value))
    ]
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(paths.NOTEBOOKS / "ambient_vs_no_mesh.ipynb"),
        str(out),
        *parameters,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert out.exists()


def test_the_notebook_itself_refuses_a_misspelt_parameter(tmp_path):
    out = tmp_path / "out.ipynb"
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(paths.NOTEBOOKS / "ambient_vs_no_mesh.ipynb"),
        str(out),
        "-p",
        "blcoks",
        "3",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert "did you mean blocks?" in done.stderr


def test_parameters_that_contradict_a_sealed_plan_are_refused(recorded):
    folder, _, _ = recorded
    code, _, err = meshtrial("run", "ambient_vs_no_mesh", "-p", f"study_dir={folder}", "-p", "rps=999")
    assert code == 2
    assert "was sealed with" in err


def test_a_relative_path_is_meant_from_where_the_user_is(recorded, monkeypatch):
    folder, reports, _ = recorded
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(reports))
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", "-p", f"study_dir={folder.name}")
    assert code in (0, INVALID_RUNS), err
    assert "nothing is run" in out


def test_a_missing_binary_is_said_before_anything_is_written(monkeypatch):
    monkeypatch.setenv("MESHTRIAL_ENVOY", "/nonexistent/envoy")
    code, _, err = meshtrial("run", "ambient_vs_no_mesh", *short(blocks=2))
    assert code == 1
    assert "MESHTRIAL_ENVOY" in err
    assert not Path(os.environ["MESHTRIAL_DATA"]).exists()
