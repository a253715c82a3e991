"""What a study says before it begins, and what is said of one that broke off."""

import shutil

import pytest
from commandline import SAMPLE
from refused import refused

from meshtrial.errors import MissingToolError
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial, go_on, kept


@pytest.fixture
def broken_off(tmp_path, monkeypatch):
    """The sample without its last ten runs: 14 of 24, four whole blocks of three."""
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    folder = tmp_path / "ambient_vs_no_mesh" / SAMPLE.name
    shutil.copytree(SAMPLE, folder)
    for planned in StudyStore.open(folder).plan.runs[14:]:
        shutil.rmtree(folder / "runs" / planned.run_id)
    return folder


def test_a_new_study_says_how_long_it_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    said = Trial("ambient_vs_no_mesh", {}).announced()
    # 40 runs of 6.7 s of load, a second of which is discarded, and 1.1 s besides.
    assert said.startswith("ambient_vs_no_mesh: 40 runs, 4 treatments in 10 blocks; 5 min 12 s left, until about ")


def test_one_that_goes_on_says_it_of_what_is_missing(broken_off):
    said = Trial("ambient_vs_no_mesh", {"study_dir": str(broken_off)}).announced()
    assert said.startswith("ambient_vs_no_mesh: 10 of 24 runs, 3 treatments in 8 blocks; ")


@pytest.mark.parametrize("given", [{"study_dir": str(SAMPLE)}, {"study_dir": str(SAMPLE), "run_missing": False}])
def test_where_nothing_is_measured_nothing_is_announced(given):
    assert Trial("ambient_vs_no_mesh", given).announced() == ""


def test_of_one_that_broke_off_it_is_said_what_is_kept_and_what_goes_on(broken_off):
    store = StudyStore.open(broken_off)
    assert kept(store) == f"14 of 24 runs are recorded, 4 of 8 blocks, in {broken_off}"
    assert go_on(store) == f"meshtrial run ambient_vs_no_mesh -p study_dir={broken_off}"


@pytest.mark.linux
def test_an_error_on_the_way_tells_it_too(broken_off, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_ENVOY", "/nonexistent/envoy")
    told: list[str] = []
    with refused(
        MissingToolError,
        names=["MESHTRIAL_ENVOY=/nonexistent/envoy"],
    ):
        Trial("ambient_vs_no_mesh", {"study_dir": str(broken_off)}).run(told.append)
    store = StudyStore.open(broken_off)
    assert told == [f"{kept(store)}; {go_on(store)} goes on"]


@pytest.mark.linux
def test_a_damaged_run_of_one_that_goes_on_is_set_aside_and_made_again(broken_off, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_ENVOY", "/nonexistent/envoy")
    store = StudyStore.open(broken_off)
    name = store.plan.runs[0].run_id
    (broken_off / "runs" / name / "run.json").write_text("")
    trial, told = Trial("ambient_vs_no_mesh", {"study_dir": str(broken_off)}), list[str]()
    aside, announced = trial.announced().splitlines()
    assert announced.startswith("ambient_vs_no_mesh: 11 of 24 runs, ")
    with refused(MissingToolError, names=["MESHTRIAL_ENVOY=/nonexistent/envoy"]):
        trial.run(told.append)
    assert told[0] == aside
    assert aside.startswith(f"{broken_off}/runs/{name}/run.json: cannot be read (")
    assert aside.endswith(f"): set aside as {broken_off}/damaged/{name}, and made again")
