"""A study run by its command: its records, its report, and the commands that refuse to change it."""

import json
import os
from pathlib import Path

import polars as pl
import pytest
from browser import opening
from commandline import meshtrial
from local.studies import only, short

from meshtrial import paths
from meshtrial.errors import Exit
from meshtrial.records.store import StudyStore, check_checksums


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Path, Path, str]:
    """Run a short study once per module; return its folder, the reports' folder and the output."""
    root = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHTRIAL_DATA", str(root / "studies"))
        patch.setenv("MESHTRIAL_REPORTS", str(root / "reports"))
        code, out, err = meshtrial("run", "ambient_vs_no_mesh", *short(blocks=3, treatments="none,node-proxy"))
        assert code in (0, Exit.EXCLUDED), err
    return only(root / "studies", "ambient_vs_no_mesh/*"), root / "reports", out


@pytest.mark.skipif(opening.CHROMIUM is None, reason="no Chromium on PATH; apt install chromium")
def test_its_report_opens_clean_in_a_browser(recorded):
    page = only(recorded[1], "ambient_vs_no_mesh-*.html")
    checker = opening.checker()
    with opening.browser() as chromium:
        # Browser tests check reports in all settings.
        for name in ("1280", "phone"):
            assert opening.look(chromium, page, opening.SETTINGS[name], checker).wrong() == [], name
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
    wanted = "study load response treatment baseline n_blocks ratio ci_low ci_high confidence difference p"
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
    """No path or name of this machine is recorded, and no access log besides the parquet."""
    folder, _, _ = recorded
    secrets = [str(paths.CHECKOUT), str(folder.parent), str(Path.home()), os.uname().nodename]
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".parquet":
            text = file.read_text(errors="replace")
            assert [s for s in secrets if len(s) > 3 and s in text] == [], file


def test_what_is_derived_can_be_deleted_and_comes_back_identical_by_a_relative_path(recorded, monkeypatch):
    """The study's path is relative to the folder of the user, who resumes a study that is whole."""
    folder, _, _ = recorded
    names = ("runs.parquet", "verdicts.json", "verdicts.parquet")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    monkeypatch.chdir(folder.parent)
    code, out, err = meshtrial("run", "ambient_vs_no_mesh", "-p", f"study_dir={folder.name}")
    assert code in (0, Exit.EXCLUDED), err
    assert "nothing to measure" in out
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


def test_parameters_that_contradict_a_sealed_plan_are_refused(recorded):
    folder, _, _ = recorded
    code, _, err = meshtrial("run", "ambient_vs_no_mesh", "-p", f"study_dir={folder}", "-p", "rps=999")
    assert code == 2
    assert "was sealed with" in err
