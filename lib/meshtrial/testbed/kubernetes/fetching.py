"""Copy records of studies that a Job runs in its cluster, through the API server.

Only what is written once is copied: the plan, the environment, and complete runs, each checked against its own
checksums before it gets its name here. So an interrupted copy is a study with fewer runs, never a damaged one. Fetching
again copies what is missing, and a study may be fetched while it runs. What is computed from the records is not copied:
it is computed again.
"""

import contextlib
import io
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from meshtrial.errors import RecordError, TestbedError, writing
from meshtrial.records.store import (
    CHECKSUMS,
    ENVIRONMENT,
    PLAN,
    StudyStore,
    check_checksums,
    file_sha256,
    seal,
)
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.client import Cluster, Json, NotFoundError
from meshtrial.testbed.kubernetes.pods import Exited, PodRef, live_pods, pod_ref, run

# Digests of everything that is written once; incomplete runs have names that are skipped.
_LIST = (
    'cd "$1" && exec find . -name ".incomplete-*" -prune -o -type f '
    f'"(" -name {PLAN} -o -name {ENVIRONMENT} -o -name {CHECKSUMS} ")" -exec sha256sum "{{}}" +'
)
_LINE = re.compile(r"([0-9a-f]{64})  \./(.+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+,=:-]*", re.ASCII)
_LIST_S, _COPY_S = 120.0, 900.0
# The reader ends after this time, in case it could not be removed.
_READER_S = 3600


@dataclass
class RemoteStudy:
    """A study on the volume: digests of what is written once."""

    plan: str = ""  # digest of the plan's file; empty if it does not exist yet
    environment: str = ""
    runs: dict[str, str] = field(default_factory=dict)  # by folder of a complete run: digest of its list of checksums


@dataclass(frozen=True)
class Fetched:
    """A study that was copied: its folder, the number of runs that are new, and of all runs."""

    path: Path
    new: int
    runs: int


@dataclass(frozen=True)
class Volume:
    """The folder of the records in a running container."""

    cluster: Cluster
    pod: PodRef
    root: str

    def studies(self) -> dict[PurePosixPath, RemoteStudy]:
        """Return the studies that have a plan and an environment, by ``<study>/<UTC>-<hash>``."""
        exited = self._run(["sh", "-c", _LIST, "sh", self.root], _LIST_S, "list the records")
        studies: dict[PurePosixPath, RemoteStudy] = {}
        for line in exited.text.splitlines():
            digest, parts = _listed(line)
            study = studies.setdefault(PurePosixPath(*parts[:2]), RemoteStudy())
            match parts[2:]:
                case (name,) if name == PLAN:
                    study.plan = digest
                case (name,) if name == ENVIRONMENT:
                    study.environment = digest
                case ("runs", run_name, name) if name == CHECKSUMS:
                    study.runs[run_name] = digest
        return {path: study for path, study in sorted(studies.items()) if study.plan and study.environment}

    def copy(self, paths: Sequence[PurePosixPath], into: Path) -> None:
        """Copy files or folders into a local folder, at the same relative paths."""
        command = ["tar", "-C", self.root, "-cf", "-", *map(str, paths)]
        exited = self._run(command, _COPY_S, f"copy {paths[0]}")
        try:
            with writing(into), tarfile.open(fileobj=io.BytesIO(exited.out)) as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    if not (member.isreg() or member.isdir()) or not any(inside.is_relative_to(path) for path in paths):
                        raise RecordError(f"{self.pod}: sent {member.name!r}, which was not requested")
                    archive.extract(member, into, filter="data")
        except (tarfile.TarError, EOFError, ValueError) as error:
            why = " ".join(str(error).split())
            raise RecordError(f"{self.pod}: its copy of {paths[0]} is incomplete ({why}); fetch again") from None

    def _run(self, command: Sequence[str], timeout_s: float, task: str) -> Exited:
        exited = run(self.cluster, self.pod, command, timeout_s=timeout_s)
        if exited.code:
            reason = " ".join(exited.err.decode(errors="replace").split())[:200]
            raise TestbedError(f"{self.pod}: cannot {task} in {self.root} ({reason or f'exit {exited.code}'})")
        return exited


def _listed(line: str) -> tuple[str, tuple[str, ...]]:
    """Return digest and path of a line of ``sha256sum``; RecordError for a name that no study has."""
    match = _LINE.fullmatch(line)
    parts = PurePosixPath(match[2]).parts if match else ()
    if match is None or len(parts) not in (3, 5) or not all(_NAME.fullmatch(part) for part in parts):
        raise RecordError(f"the records' volume has {line[-80:]!r}, which belongs to no study; remove it")
    return match[1], parts


def fetch(volume: Volume, root: Path) -> list[Fetched]:
    """Copy every study of a volume, or its missing runs, into folders below ``root``.

    RecordError where a copy is damaged, or the local folder has another study or other runs of that name.
    """
    return [_fetch_study(volume, path, study, root / path) for path, study in volume.studies().items()]


def _fetch_study(volume: Volume, path: PurePosixPath, study: RemoteStudy, target: Path) -> Fetched:
    if not target.exists():
        _begin(volume, path, study, target)
    elif not _same(target, study):
        raise RecordError(f"{target}: is another study than that of the cluster; move it away")
    store = StudyStore.open(target)
    with store.locked():
        local = {folder.name for folder in (target / "runs").iterdir() if not folder.name.startswith(".")}
        foreign = local - set(study.runs)
        for name in local - foreign:
            listed = target / "runs" / name / CHECKSUMS
            if not listed.is_file() or file_sha256(listed) != study.runs[name]:
                foreign.add(name)
        if foreign:
            raise RecordError(
                f"{target}: has runs that the cluster does not have ({', '.join(sorted(foreign)[:3])}), because "
                "this copy was resumed; move it away and fetch again"
            )
        store.discard_incomplete()
        missing = sorted(set(study.runs) - local)
        for name in missing:
            _fetch_run(volume, path / "runs" / name, study.runs[name], store.begin(name, 1))
    return Fetched(target, len(missing), len(study.runs))


def _same(folder: Path, study: RemoteStudy) -> bool:
    digests = {PLAN: study.plan, ENVIRONMENT: study.environment}
    return all((folder / name).is_file() and file_sha256(folder / name) == digest for name, digest in digests.items())


def _begin(volume: Volume, path: PurePosixPath, study: RemoteStudy, target: Path) -> None:
    """Create the study's folder with its plan and environment and without runs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as private:
        volume.copy([path / PLAN, path / ENVIRONMENT], Path(private))
        folder = Path(private, *path.parts)
        if not _same(folder, study):
            raise RecordError(f"{path}: arrived damaged; fetch again")
        seal(folder)
        (folder / "runs").mkdir()
        folder.rename(target)


def _fetch_run(volume: Volume, path: PurePosixPath, digest: str, temporary: Path) -> None:
    """Copy one run under a temporary name, and rename it when its checksums match."""
    with tempfile.TemporaryDirectory(dir=temporary.parent, prefix=".incomplete-fetching-") as private:
        volume.copy([path], Path(private))
        shutil.rmtree(temporary)
        Path(private, *path.parts).rename(temporary)
    problems = check_checksums(temporary)
    if problems or file_sha256(temporary / CHECKSUMS) != digest:
        raise RecordError(f"{path}: arrived damaged ({(problems or [CHECKSUMS])[0]}); fetch again")
    temporary.rename(temporary.with_name(path.name))


# --- the container that has the volume --------------------------------------------------------------------------------


@contextlib.contextmanager
def volume_of(cluster: Cluster, namespace: str, job: str) -> Iterator[Volume]:
    """Give the volume of the records of a Job or CronJob, through its running pod or a temporary reader.

    TestbedError if no Job or CronJob has this name, or the reader does not become ready.
    """
    running_job, template = _pod_template(cluster, namespace, job)
    container = template["spec"]["containers"][0]
    root = next((one.get("value", "") for one in container.get("env") or [] if one["name"] == "MESHTRIAL_DATA"), "")
    if not root:
        raise TestbedError(
            f"Job {job} in namespace {namespace}: is no meshtrial Job, because it does not set MESHTRIAL_DATA"
        )
    pods = live_pods(cluster, namespace, f"batch.kubernetes.io/job-name={running_job}")
    running = next((pod for pod in pods if _runs(pod, container["name"])), None)
    if running is not None:
        yield Volume(cluster, pod_ref(running, container["name"]), root)
        return
    reader = _reader(namespace, job, template["spec"])
    name = reader["metadata"]["name"]
    cluster.post(f"/api/v1/namespaces/{namespace}/pods", reader)
    try:
        (pod,) = wait.pods_ready(cluster, namespace, f"{_READER}={name}", 1, 180.0)
        yield Volume(cluster, pod_ref(pod, container["name"]), root)
    finally:
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", grace_s=0)


def _pod_template(cluster: Cluster, namespace: str, name: str) -> tuple[str, Json]:
    """Return the name of the Job (the active one of a CronJob) that may have a running pod, and its pod template."""
    batch = f"/apis/batch/v1/namespaces/{namespace}"
    with contextlib.suppress(NotFoundError):
        return name, cluster.get(f"{batch}/jobs/{name}")["spec"]["template"]
    try:
        cron = cluster.get(f"{batch}/cronjobs/{name}")
    except NotFoundError:
        raise TestbedError(
            f"no Job or CronJob {name} in namespace {namespace} of {cluster.where()}; name it with --job and "
            "--namespace, or apply its file again"
        ) from None
    active = cron.get("status", {}).get("active") or [{"name": name}]
    return active[0]["name"], cron["spec"]["jobTemplate"]["spec"]["template"]


_READER = "meshtrial.dev/reader"


def _runs(pod: Json, container: str) -> bool:
    states = pod.get("status", {}).get("containerStatuses") or []
    return any(one["name"] == container and "running" in (one.get("state") or {}) for one in states)


def _reader(namespace: str, job: str, template: Json) -> Json:
    """Return a pod with the Job's image and volumes that does nothing and has no rights."""
    kept = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "securityContext", "volumes")
    first: Json = template["containers"][0]
    of_container = ("name", "image", "imagePullPolicy", "env", "securityContext", "volumeMounts")
    container: dict[str, Any] = {key: first[key] for key in of_container if key in first}
    container["command"] = ["sleep", str(_READER_S)]
    name = f"{job[:40]}-reader-{secrets.token_hex(3)}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {_READER: name}},
        "spec": {key: template[key] for key in kept if key in template}
        | {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _READER_S,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
