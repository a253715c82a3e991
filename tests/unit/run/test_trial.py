"""A study's first lines, and the report of an interrupted study."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commandline import SAMPLE
from refused import refused
from unit import pretended

from meshtrial.design.foreseen import foreseen
from meshtrial.design.plan import make_plan
from meshtrial.design.study import Gates
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.records import packed
from meshtrial.records.store import StudyStore
from meshtrial.run import trial
from meshtrial.run.quiet import PATIENCE
from meshtrial.run.trial import MACHINE_USE_FILE, STUDY_DIR_FILE_ENV, Trial, recorded_so_far, resume_command


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


def test_what_a_plan_cannot_answer_is_told_before_its_first_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    study, told = Trial("ambient_vs_no_mesh", {"rps": 1000, "blocks": 4}), list[str]()
    monkeypatch.setattr(trial, "make_testbed", lambda *_: Watched())
    monkeypatch.setattr(trial, "environment", lambda *_: {"testbed": {}})

    def execute(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "execute", execute)
    monkeypatch.setattr(Watched, "problems", ())
    with pytest.raises(KeyboardInterrupt):
        study.run(told.append)
    limits = foreseen(study.plan.study)
    assert [limit.kind for limit in limits] == ["percentile", "difference", "equivalence"]
    assert told[1:4] == [limit.sentence for limit in limits]
    assert told[0].startswith("study ")
    assert told[4].startswith("0 of 16 runs are recorded")


def test_a_former_setting_agrees_with_what_was_in_force():
    Trial("ambient_vs_no_mesh", {"study_dir": str(SAMPLE), "measure": False, "standing": "run"})
    with refused(UsageError, names=["deployment_mode", "concurrent", "sequential"]):
        Trial("ambient_vs_no_mesh", {"study_dir": str(SAMPLE), "measure": False, "standing": "block"})


@pytest.mark.parametrize("given", [{"study_dir": str(SAMPLE)}, {"study_dir": str(SAMPLE), "measure": False}])
def test_where_nothing_is_measured_nothing_is_announced(given):
    assert Trial("ambient_vs_no_mesh", given).announced() == ""


class Watched(pretended.Testbed):
    """A testbed that should watch the machine and cannot start."""

    problems = ("no fortio",)

    def __init__(self) -> None:
        self.asked: list[Path | None] = []
        self.recover = self.close = self.nothing

    def watch(self, begun: Path | None = None) -> None:
        self.asked.append(begun)

    def preflight(self, _: object) -> tuple[str, ...]:
        return self.problems


def test_the_machine_is_watched_from_the_beginning_where_a_check_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))

    def asked(**environment: str) -> list[Path | None]:
        bed = Watched()
        monkeypatch.setattr(trial, "make_testbed", lambda *_: bed)
        with monkeypatch.context() as changed, refused(MissingToolError):
            for name, value in environment.items():
                changed.setenv(name, value)
            study.run(lambda _: None)
        return bed.asked

    study = Trial("ambient_vs_no_mesh", {"blocks": 2})
    assert asked() == [None]
    # The command passes on what it saw before the kernel started.
    assert asked(**{STUDY_DIR_FILE_ENV: str(tmp_path / "handoff.json")}) == [tmp_path / MACHINE_USE_FILE]
    assert asked(**{PATIENCE: "0"}) == []
    study.plan = make_plan(replace(study.plan.study, gates=Gates(foreign_load=None)))
    assert asked() == []


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
    assert told == [f"{recorded_so_far(store)}; resume with {resume_command(store)}"]


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
    assert f"{broken_off}/damaged/{name}" in aside


def test_a_session_finds_its_files_again_and_no_record_names_where_they_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "my data"))
    file = tmp_path / "alice" / "cluster.yaml"
    file.parent.mkdir()
    file.write_text("app_cpu: 500m")
    seen: list[dict[str, object]] = []

    def cluster(plan, recorded):
        seen.append(dict(plan.study.options))
        return Waiting()

    monkeypatch.setattr(trial, "make_testbed", cluster)
    monkeypatch.chdir(file.parent)
    given = {"backend": "kubernetes", "cluster_file": "cluster.yaml", "treatments": "none", "blocks": 2}
    with pytest.raises(KeyboardInterrupt):
        Trial("ambient_vs_no_mesh", given).run(lambda _: None)
    (study,) = (tmp_path / "my data" / "ambient_vs_no_mesh").iterdir()
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        Trial("ambient_vs_no_mesh", {"study_dir": str(study)}).run(told.append)
    assert told[-1].endswith(
        f" meshtrial run ambient_vs_no_mesh -p study_dir='my data/ambient_vs_no_mesh/{study.name}'"
    )
    assert [options["parameters"]["cluster_file"] for options in seen] == [str(file)] * 2
    assert [options["cluster"] for options in seen] == [{"app_cpu": "500m"}] * 2
    assert [path.name for path in packed.files(study) if "alice" in path.read_text()] == []
    # Moved: the next session needs the new place, and recorded_so_far.
    moved = file.rename(tmp_path / "moved.yaml")
    with pytest.raises(KeyboardInterrupt):
        Trial("ambient_vs_no_mesh", {"study_dir": str(study), "cluster_file": str(moved)}).run(lambda _: None)
    assert StudyStore.open(study).here == {"cluster_file": str(moved)}
    # Another cluster is another study.
    with refused(UsageError, names=["context", "elsewhere", "here", "study_dir"]):
        Trial("ambient_vs_no_mesh", {"study_dir": str(study), "context": "elsewhere"})
    Trial("ambient_vs_no_mesh", {"study_dir": str(study), "context": "here"})
    moved.write_text("app_cpu: 1")
    with refused(UsageError, names=["cluster_file", moved, "app_cpu", "study_dir"]):
        Trial("ambient_vs_no_mesh", {"study_dir": str(study)}).run(lambda _: None)


class Waiting(pretended.Testbed):
    """A cluster that is interrupted in its first block."""

    name = "kubernetes"

    def preflight(self, study):
        return ()

    def environment(self):
        return {"context": "here"}

    def deploy(self, treatment, load, app):
        raise KeyboardInterrupt

    recover = close = pretended.Testbed.nothing

    def watch(self, begun=None):
        return None
