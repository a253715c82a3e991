"""Running a notebook, and resuming without a folder, because the same parameters give the same plan."""

import dataclasses
import datetime
import io
import json
import os
import re
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import papermill
import pytest
from building import built
from commandline import meshtrial
from refused import refused

from meshtrial.commands import gating
from meshtrial.commands import run as command
from meshtrial.commands.run import begun, nothing_due
from meshtrial.design.foreseen import foreseen
from meshtrial.design.plan import Plan, make_plan
from meshtrial.errors import UsageError
from meshtrial.inference.gate import Rules
from meshtrial.records import parts
from meshtrial.records.parts import Part
from meshtrial.records.store import ENVIRONMENT, StudyStore
from meshtrial.run.trial import MACHINE_USE_FILE, STUDY_DIR_FILE_ENV, Trial
from meshtrial.temporary import PrivateFolder
from meshtrial.testbed.local.proc import LoadSnapshot

NAME, GIVEN = "ambient_vs_no_mesh", {"treatments": "none", "blocks": 6, "seed": 1}


def plan(**more: object) -> Plan:
    return make_plan(built(NAME, **GIVEN | more))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    return tmp_path


def test_the_newest_of_this_very_plan_is_gone_on_with(root):
    first = StudyStore.create(root, plan(), {})
    newest = first.path.with_name("29990101T000000Z-" + first.plan.sha256[:8])
    first.path.rename(newest)
    StudyStore.create(root, plan(), {})
    StudyStore.create(root, plan(seed=2), {})
    assert begun(NAME, GIVEN) == {"study_dir": str(newest)}
    assert begun(NAME, GIVEN | {"blocks": 7}) == {}
    # The found study is used unchanged: its parameters are the given ones.
    assert Trial(NAME, GIVEN | begun(NAME, GIVEN)).plan == first.plan


def test_a_drawn_seed_is_sealed_and_what_was_begun_with_it_is_gone_on_with(root):
    unsaid = {name: value for name, value in GIVEN.items() if name != "seed"}
    first, second = (Trial(NAME, unsaid).plan for _ in range(2))
    assert first.study.seed != second.study.seed
    assert first.study.parameters["seed"] == first.study.seed > 0
    assert begun(NAME, unsaid) == {}
    folder = StudyStore.create(root, first, {}).path
    assert begun(NAME, unsaid) == begun(NAME, unsaid | {"seed": first.study.seed}) == {"study_dir": str(folder)}
    assert begun(NAME, unsaid | {"seed": second.study.seed}) == begun(NAME, unsaid | {"blocks": 7}) == {}
    assert Trial(NAME, unsaid | begun(NAME, unsaid)).plan == first
    (folder / "plan.json").write_text("{")  # damaged, so it cannot be resumed and blocks no other study
    assert begun(NAME, unsaid) == {}


def test_parts_without_a_seed_are_refused_with_one_that_they_can_share(root):
    with refused(UsageError, names=["part", "1/3", "seed"]):
        Trial(NAME, {"treatments": "none", "blocks": 6, "part": "1/3"})


def test_a_folder_that_a_crash_left_before_the_first_run_is_passed_over(root):
    (StudyStore.create(root, plan(), {}).path / ENVIRONMENT).unlink()
    assert begun(NAME, GIVEN) == {}


def test_a_part_is_another_study_than_the_whole_and_than_another_part(root):
    sealed = plan()
    assert plan(part="1/3") == sealed
    folder = StudyStore.create(root, sealed, {"part": parts.described(Part(1, 3), sealed)}).path
    assert begun(NAME, GIVEN) == begun(NAME, GIVEN | {"part": "2/3"}) == {}
    assert begun(NAME, GIVEN | {"part": "1/3"}) == {"study_dir": str(folder)}
    assert folder.name.endswith(sealed.sha256[:8] + "-part-1-of-3")
    listed = [{"part": parts.described(Part(number, 3), sealed)} for number in (1, 2, 3)]
    (folder / ENVIRONMENT).write_text(json.dumps({"parts": listed}))
    assert begun(NAME, GIVEN) == begun(NAME, GIVEN | {"part": "1/3"}) == {}


def test_a_part_keeps_its_share(root):
    folder = StudyStore.create(root, plan(), {"part": parts.described(Part(1, 3), plan())}).path
    assert Trial(NAME, {"study_dir": str(folder), "part": "1/3"}).plan == plan()
    with refused(UsageError):
        Trial(NAME, {"study_dir": str(folder), "part": "2/3"})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"part": "1/7"}, ["1/7", 6, 7]),
        ({"part": "1/2", "stopping": "precision:0.05"}, ["1/2", "stopping"]),
        ({"part": "half"}, ["part", "half"]),
    ],
)
def test_what_cannot_be_divided_is_refused_before_anything_runs(root, given, names):
    with refused(UsageError, names=names):
        Trial(NAME, GIVEN | given)


def test_an_executed_notebook_never_takes_the_place_of_another(tmp_path):
    made = [command.new_notebook("rollout", tmp_path / "reports") for _ in range(4)]
    assert len(set(made)) == 4
    assert all(path.exists() and path.parent == tmp_path / "reports" for path in made)
    assert all(re.fullmatch(r"rollout-\d{8}T\d{6}Z(-[234])?\.ipynb", path.name) for path in made)


@pytest.mark.parametrize("given", [("-p", "rps=1000", "--help"), ("--help", "-p", "rps=1000")], ids=" ".join)
def test_help_says_how_long_a_plan_takes_and_what_it_cannot_answer(given, root):
    code, out, err = meshtrial("run", NAME, *given)
    assert (code, err) == (0, "")
    parameters, _, estimate = out.partition("\nWith these parameters\n")
    assert re.search(r"^  rps +0\.0 +requests ", parameters, re.M)
    assert parameters.count("profile") == 2  # the parameter, and the meaning of 0 once for all
    length, *limits = estimate.splitlines()
    assert length.startswith(f"{NAME}: 40 runs, 4 treatments in 10 blocks; ")
    assert limits == [limit.sentence for limit in foreseen(built(NAME, rps=1000))]
    assert len(limits) == 1
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--help",)], ids=str)
def test_what_no_machine_can_build_is_refused_before_a_notebook_begins(options, root, tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(tmp_path / "reports"))
    code, out, err = meshtrial("run", NAME, "-p", "treatments=none,nonne", *options)
    assert (code, out) == (2, "")
    assert "'nonne'" in err
    assert not (tmp_path / "reports").exists()


def test_help_of_a_recorded_study_touches_nothing(root):
    code, out, _ = meshtrial("run", NAME, "-p", "study_dir=nowhere", "--help")
    assert (code, "\nWith " in out) == (0, False)
    assert meshtrial("run", NAME, "--help")[1].count("\nWith default parameters\n") == 1
    assert meshtrial("run", NAME, "--help", "-p", "rps=x")[0] == 2


@pytest.mark.linux
def test_a_kernel_gets_what_the_machine_did_before_it_started(monkeypatch, tmp_path):
    seen: list[LoadSnapshot] = []

    def execute_notebook(*_: object, **__: object) -> None:
        seen.append(LoadSnapshot.read(Path(os.environ[STUDY_DIR_FILE_ENV]).with_name(MACHINE_USE_FILE)))
        raise KeyboardInterrupt

    monkeypatch.setattr(papermill, "execute_notebook", execute_notebook)
    with pytest.raises(KeyboardInterrupt):
        command.run_notebook(NAME, GIVEN, io.StringIO(), gating.Gate(Rules()), tmp_path)
    assert [look.own for look in seen] == [os.getpid()]


def test_a_kernel_is_reached_by_sockets_whose_names_fit(tmp_path, monkeypatch):
    """A port that was free a second ago may be taken: nine concurrent reports lost one to another's kernel."""
    deep = tmp_path / ("d" * command.LONGEST_SOCKET)
    deep.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as short, closing(PrivateFolder("p-", deep)) as private:
        monkeypatch.setattr(command, "SHORT_PARENT", Path(short))
        with command.kernel_connection(private) as connection:
            folder = Path(connection["connection_file"]).parent
            assert (folder.parent, connection["transport"]) == (Path(short), "ipc")
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()
        with closing(PrivateFolder("p-", Path(short))) as near, command.kernel_connection(near) as connection:
            assert (Path(connection["connection_file"]).parent, connection["transport"]) == (near.path, "ipc")
        monkeypatch.setattr(command, "SHORT_PARENT", Path(short) / "absent")
        with command.kernel_connection(private) as connection:
            assert (Path(connection["connection_file"]).parent, connection["transport"]) == (private.path, "tcp")


@pytest.fixture
def first_session(root, make_record):
    """Return a study after the first of two sessions, during the gap."""
    store = StudyStore.create(root, plan(sessions=2, session_gap="1h"), {})
    ended = datetime.datetime.now(datetime.UTC).isoformat()
    for run in store.plan.runs:
        if run.repetition in store.plan.sessions[0]:
            made = dataclasses.replace(make_record(store.plan, run, {}), finished_at=ended)
            store.finish(store.begin(run.run_id, 1), made, None)
    return store


def test_a_session_that_is_not_due_is_announced(first_session):
    assert nothing_due(NAME, {"study_dir": str(first_session.path)}).startswith("session 2 of 2 begins at")


@pytest.mark.parametrize(("name", "more"), [("scale_out", {}), (NAME, {"sessions": 3}), (NAME, {"session_gap": "2h"})])
def test_parameters_that_contradict_the_plan_are_refused_before_a_session_is_due(first_session, name, more):
    with refused(UsageError):
        nothing_due(name, {"study_dir": str(first_session.path), **more})


def test_a_damaged_run_is_due(first_session):
    (first_session.run_folders()[0] / "run.json").write_text("{")
    assert nothing_due(NAME, {"study_dir": str(first_session.path)}) is None


@pytest.mark.parametrize("probe", [False, True])
def test_counts_of_system_calls_are_due_after_the_last_session(root, make_record, probe):
    store = StudyStore.create(root, plan(sessions=2, session_gap="1h", probe=probe), {})
    for run in store.plan.runs:
        store.finish(store.begin(run.run_id, 1), make_record(store.plan, run, {}), None)
    assert (nothing_due(NAME, {"study_dir": str(store.path)}) is None) == probe


def test_the_time_that_one_session_takes_has_no_gap(root):
    given = GIVEN | {"sessions": 2, "session_gap": "30d"}
    assert "days" in Trial(NAME, given).announced()
    assert "days" not in Trial(NAME, given | {"next_session": True}).announced()
