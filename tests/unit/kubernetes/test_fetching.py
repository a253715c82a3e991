"""A container's own programs (sh, find, sha256sum, tar) make the copy; here they run locally."""

import io
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
import yaml
from refused import refused
from unit.kubernetes.fakeapi import FakeApi, pod

from meshtrial import paths
from meshtrial.errors import RecordError, TestbedError
from meshtrial.records.store import StudyStore
from meshtrial.testbed.kubernetes import fetching
from meshtrial.testbed.kubernetes.fetching import Volume, fetch, volume_of
from meshtrial.testbed.kubernetes.pods import Exited, PodRef

REQUESTS = pl.DataFrame({"latency_s": [0.1, 0.2], "corrected_latency_s": [0.1, 0.2], "ok": [True, False]})
JOB = "/apis/batch/v1/namespaces/meshtrial/jobs/meshtrial-study"
PODS = "/api/v1/namespaces/meshtrial/pods"

Change = Callable[[Sequence[str], bytes], bytes]


class Way:
    """Replace a container's shell: commands run on this machine, and their output may be changed."""

    def __init__(self) -> None:
        self.change: Change = lambda command, out: out

    def run(self, _cluster: object, _pod: object, command: Sequence[str], *, timeout_s: float) -> Exited:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
        return Exited(done.returncode, self.change(command, done.stdout), done.stderr)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    made = Way()
    monkeypatch.setattr(fetching, "run", made.run)
    return made


@pytest.fixture
def there(tmp_path: Path, small_plan) -> StudyStore:
    return StudyStore.create(tmp_path / "volume", small_plan, {"testbed": {}})


def record(store: StudyStore, make_record, *places: int) -> None:
    for place in places:
        run = store.plan.runs[place]
        folder = store.begin(run.run_id, 1)
        (folder / "logs" / "app.txt").write_text("a line\n")
        store.finish(folder, make_record(store.plan, run, {"latency_p50_s": 0.1}), REQUESTS)


def volume(store: StudyStore) -> Volume:
    return Volume(FakeApi(), PodRef("meshtrial", "study-1", "study"), str(store.path.parent.parent))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_copy_that_was_cut_short_is_no_run_and_is_mended_by_the_next(tmp_path, way, there, make_record, share):
    record(there, make_record, 0, 1)
    last = there.plan.runs[1].run_id
    way.change = lambda command, out: out[: int(share * len(out))] if command[-1].endswith(last) else out
    with refused(RecordError, names=["meshtrial/study-1", f"{there.path.parent.name}/{there.path.name}/runs/{last}"]):
        fetch(volume(there), tmp_path / "here")
    (home,) = (tmp_path / "here").glob("*/*")
    assert {one.run_id for one in StudyStore.open(home).records()} <= {there.plan.runs[0].run_id}
    way.change = lambda command, out: out
    assert fetch(volume(there), tmp_path / "here")[0].runs == 2
    assert sorted(path.name for path in (home / "runs").iterdir()) == sorted(r.run_id for r in there.plan.runs[:2])


def test_a_plan_that_was_cut_short_leaves_no_study(tmp_path, way, there):
    way.change = lambda command, out: out[:600] if command[0] == "tar" else out
    with refused(RecordError):
        fetch(volume(there), tmp_path / "here")
    assert list((tmp_path / "here").glob("*/*")) == []


def test_whatever_comes_is_a_study_or_one_clear_sentence(tmp_path, way, there, make_record):
    record(there, make_record, 0)
    rng, refused = random.Random(1), 0

    def damage(command: Sequence[str], out: bytes) -> bytes:
        place = rng.randrange(len(out))
        return rng.choice((out[:place], out[:place] + bytes([out[place] ^ (1 << rng.randrange(8))]) + out[place + 1 :]))

    way.change = damage
    for number in range(60):
        home = tmp_path / f"here-{number}"
        try:
            fetch(volume(there), home)
        except (RecordError, TestbedError):
            refused += 1
        for found in home.glob("*/[!.]*"):
            assert all(one.plan_sha256 == there.plan.sha256 for one in StudyStore.open(found).records())
    assert refused > 20


def test_files_that_were_not_asked_for_are_refused(tmp_path, way, there):
    def strange(command: Sequence[str], out: bytes) -> bytes:
        if command[0] != "tar":
            return out
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("../../outside"))
        return made.getvalue()

    way.change = strange
    with refused(RecordError):
        fetch(volume(there), tmp_path / "here")


def test_a_copy_that_somebody_went_on_with_is_left_alone(tmp_path, way, there, make_record):
    record(there, make_record, 0)
    (one,) = fetch(volume(there), tmp_path / "here")
    record(StudyStore.open(one.path), make_record, 1)
    with refused(RecordError):
        fetch(volume(there), tmp_path / "here")
    shutil.rmtree(one.path / "runs" / there.plan.runs[1].run_id)
    (one.path / "environment.json").write_text("{}")
    with refused(RecordError):
        fetch(volume(there), tmp_path / "here")


def test_a_folder_that_is_not_there_yet_is_said(tmp_path, way, there):
    lost = Volume(FakeApi(), PodRef("meshtrial", "study-1", "study"), str(tmp_path / "nowhere"))
    with refused(TestbedError, names=["meshtrial/study-1", tmp_path / "nowhere"]):
        fetch(lost, tmp_path / "here")


@pytest.fixture
def api(tmp_path: Path) -> FakeApi:
    """A cluster with the Job of our own manifest."""
    made = FakeApi()
    objects = list(yaml.safe_load_all((paths.MANIFESTS / "runner" / "runner.yaml").read_text()))
    (job,) = [item for item in objects if item["kind"] == "Job"]
    made.add(JOB, job)
    return made


def runner(api: FakeApi, **state: object) -> None:
    statuses = [{"name": "study", "state": state}]
    body = pod("meshtrial", "meshtrial-study-x1", containerStatuses=statuses)
    body["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "meshtrial-study"}
    api.add(f"{PODS}/meshtrial-study-x1", body)


def test_a_cronjob_is_reached_through_its_active_job(api: FakeApi):
    batch, _, name = JOB.rpartition("/jobs/")
    job = api.objects.pop(JOB)
    cron = {"spec": {"jobTemplate": {"spec": job["spec"]}}, "status": {"active": [{"name": f"{name}-1"}]}}
    api.add(f"{batch}/cronjobs/{name}", cron)
    body = pod("meshtrial", f"{name}-1-x", containerStatuses=[{"name": "study", "state": {"running": {}}}])
    body["metadata"]["labels"] = {"batch.kubernetes.io/job-name": f"{name}-1"}
    api.add(f"{PODS}/{name}-1-x", body)
    with volume_of(api, "meshtrial", name) as volume:
        assert (volume.pod.name, volume.root) == (f"{name}-1-x", "/records/studies")


def test_a_job_that_is_not_there_or_not_ours_is_said(api: FakeApi):
    with (
        refused(TestbedError),
        volume_of(api, "meshtrial", "other"),
    ):
        pass
    del api.objects[JOB]["spec"]["template"]["spec"]["containers"][0]["env"]
    with (
        refused(TestbedError),
        volume_of(api, "meshtrial", "meshtrial-study"),
    ):
        pass
