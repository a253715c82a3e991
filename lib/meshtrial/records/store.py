"""A study's folder on disk: its sealed plan, and run folders that are either complete or absent.

A run is written under a temporary name, and renamed when it is complete and on the disk. Nothing is ever written into a
complete folder again, and one that has become unreadable is set aside. Derived files (``runs.parquet``, ``verdicts.*``)
can be deleted and made again.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from meshtrial.design.plan import Plan, PlannedRun
from meshtrial.errors import RecordError, UsageError, writing
from meshtrial.lazy import pl
from meshtrial.records import packed, parts, series
from meshtrial.records.columns import kinds_of, write_requests
from meshtrial.records.schema import TEMPORARY, ComponentUsage, RunRecord, run_folder

PLAN, ENVIRONMENT, MECHANISM, CHECKSUMS = "plan.json", "environment.json", "mechanism.json", "SHA256SUMS"
PART_ENDING = "-part-"
_ASIDE = "damaged"


class StudyStore:
    """One study's folder, opened to run it or to analyse it."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    @classmethod
    def create(cls, root: Path, plan: Plan, environment: Mapping[str, Any]) -> StudyStore:
        """Create ``root/<study>/<UTC>-<hash>/`` and seal the plan in it before anything runs."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        part = parts.part_of(plan, environment)
        # Parts may start at the same moment in several clusters, and are later fetched to one place.
        ending = f"{PART_ENDING}{part.number}-of-{part.of}" if part else ""
        path = root / plan.study.name / f"{stamp}-{plan.sha256[:8]}{ending}"
        try:
            (path / "runs").mkdir(parents=True)
        except FileExistsError:
            raise RecordError(f"{path}: already exists; wait a second and start again") from None
        except OSError as error:
            raise RecordError(
                f"{path}: cannot be created ({error.strerror}); check permissions and free space"
            ) from None
        sealed = plan.to_dict()
        write_json(path / PLAN, sealed)
        write_json(path / ENVIRONMENT, environment)
        seal(path)
        return cls(path, Plan.from_dict(sealed))

    @classmethod
    def open(cls, path: Path, root: Path | None = None) -> StudyStore:
        """Open a recorded or interrupted study with an intact plan; a packed one is first unpacked under ``root``."""
        if packed.is_packed(path) and not path.is_dir():
            path = packed.unpack(path, root, check_checksums)
        if not path.is_dir():
            raise UsageError(f"{path}: no such study folder; `meshtrial status` lists all studies")
        return cls(path, Plan.from_dict(read_json(path / PLAN), str(path / PLAN)))

    @property
    def environment(self) -> dict[str, Any]:
        """``environment.json``."""
        return read_json(self.path / ENVIRONMENT)

    @property
    def here(self) -> dict[str, str]:
        """Paths on this machine of the files that the plan names, by parameter; empty if they are not known."""
        return read_json(self.path / packed.HERE) if (self.path / packed.HERE).is_file() else {}

    def write_here(self, local: Mapping[str, str]) -> None:
        """Keep these paths for the next session; they are not a record, and are never packed."""
        if local:
            write_json(self.path / packed.HERE, local)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks of the plan that are run in this folder: all, unless it is a part of a divided study."""
        return parts.blocks_here(self.plan, self.environment)

    def runs_here(self) -> list[PlannedRun]:
        """Return the planned runs of the blocks that are run in this folder."""
        blocks = self.blocks
        return [run for run in self.plan.runs if run.repetition in blocks]

    @classmethod
    def begun(
        cls, root: Path, name: str, plan_of: Callable[[int], Plan], part: parts.Part | None = None
    ) -> StudyStore | None:
        """Return the newest study under a root with the plan that `plan_of` returns for its seed.

        With a part it must be this part, otherwise the whole. None if there is no such study.
        """
        # environment.json is written last, so a folder without it is from a crash before the first run.
        for path in sorted(root.glob(f"{name}/*/{ENVIRONMENT}"), reverse=True):
            with contextlib.suppress(RecordError):  # a damaged study cannot be continued
                store = cls.open(path.parent)
                plan, environment = store.plan, store.environment
                merged = bool(parts.places(plan, environment))
                same = plan.sha256 == plan_of(plan.study.seed).sha256
                if same and not merged and parts.part_of(plan, environment) == part:
                    return store
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from running the same study; the lock ends with the process.

        Its file is never removed: otherwise a process that waits for the old file and one that creates a new file could
        both hold a lock.
        """
        with writing(self.path):
            handle = (self.path / packed.LOCK).open("w")
        with handle:
            if not _lock(handle, fcntl.LOCK_EX):
                time.sleep(0.1)  # a process that asks `running` holds the lock for a moment
                if not _lock(handle, fcntl.LOCK_EX):
                    raise RecordError(f"{self.path}: another process is running this study; wait for it")
            yield

    @property
    def running(self) -> bool:
        """Whether a process of this machine is running the study."""
        try:
            with (self.path / packed.LOCK).open() as handle:
                return not _lock(handle, fcntl.LOCK_SH)
        except OSError:
            return False

    def folder(self, run_id: str, attempt: int) -> Path:
        """Where a run's attempt lies once it is whole."""
        return run_folder(self.path, run_id, attempt)

    def begin(self, run_id: str, attempt: int) -> Path:
        """Return a temporary folder for a run that starts now, without leftovers of an earlier crash.

        RecordError if the plan was removed while the study runs, because a new run would belong to no plan.
        """
        if not (self.path / PLAN).is_file():
            raise RecordError(f"{self.path / PLAN}: was removed during the study; put the folder back and resume")
        path = self.path / "runs" / (TEMPORARY + self.folder(run_id, attempt).name)
        shutil.rmtree(path, ignore_errors=True)
        (path / "logs").mkdir(parents=True)
        return path

    def finish(
        self, temporary: Path, record: RunRecord, requests: pl.DataFrame | None, course: pl.DataFrame | None = None
    ) -> Path:
        """Write the record and the measurements, add checksums, rename the folder and return it.

        Files are flushed first: a name may reach the disk before its content, and a loss of power would leave an empty
        run.
        """
        if requests is not None:
            write_requests(requests, temporary / "latency.parquet")
        if course is not None:
            course.write_parquet(temporary / series.FILE, compression="zstd")
        usage = pl.DataFrame([asdict(used) for used in record.usage], schema=kinds_of(ComponentUsage))
        usage.rename({"throttled_s": "throttled"}).write_parquet(temporary / "resources.parquet")
        write_json(temporary / "run.json", record.to_dict())
        write_checksums(temporary)
        final = self.folder(record.run_id, record.attempt)
        for path in (*temporary.rglob("*"), temporary):
            _to_disk(path)
        # rename() of a directory is atomic and refuses an existing target, so that records are written only once.
        temporary.rename(final)
        _to_disk(final.parent)
        return final

    def discard_incomplete(self) -> list[str]:
        """Remove runs that a crash left incomplete, and return their names."""
        incomplete = [path for path in self._runs().iterdir() if path.name.startswith(TEMPORARY)]
        for path in incomplete:
            shutil.rmtree(path, ignore_errors=True)
        return [path.name.removeprefix(TEMPORARY) for path in incomplete]

    @contextmanager
    def written(self) -> Iterator[None]:
        """Raise RecordError if writing fails, whatever exception the writer raises."""
        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as error:
            # Polars reports a full disk as "parquet: File out of specification: underlying IO error: No space
            # left on device (os error 28)".
            match = re.search(r"([^:]+) \(os error", str(error))
            why = match[1].strip() if match else ""
            if isinstance(error, OSError):
                why = error.strerror or why or str(error)[:200]  # polars raises some without a number
            if not why:
                raise
            # Not every file of a run is in the study: keys and logs have a temporary folder.
            file = error.filename if isinstance(error, OSError) else None
            elsewhere = isinstance(file, str) and not Path(file).is_relative_to(self.path)
            where = file if elsewhere else self.path
            raise RecordError(f"{where}: cannot be written ({why}); complete runs are kept") from None

    def run_folders(self) -> list[Path]:
        """Return all entries among the runs except incomplete ones, which the next session removes."""
        return sorted(path for path in self._runs().iterdir() if not path.name.startswith("."))

    def _runs(self) -> Path:
        runs = self.path / "runs"
        if not runs.is_dir():
            raise RecordError(f"{runs}: is missing; restore it from a backup, or start a new study")
        return runs

    def records(self, damaged: dict[Path, str] | None = None) -> tuple[RunRecord, ...]:
        """Return all complete runs in the order of the plan, a repeat after the run that it repeats.

        A run that cannot be read is a RecordError, or is put into `damaged` with the reason.
        """
        records = []
        for path in self.run_folders():
            if path.is_dir():
                try:
                    record = RunRecord.from_dict(read_json(path / "run.json"), str(path / "run.json"))
                except RecordError as error:
                    if damaged is None:
                        raise
                    damaged[path] = str(error)
                    continue
                if record.plan_sha256 != self.plan.sha256:
                    raise RecordError(f"{path}: belongs to another plan ({record.plan_sha256[:8]}); move it away")
                records.append(record)
        return tuple(sorted(records, key=lambda record: (record.sequence, record.attempt)))

    def set_aside(self) -> dict[Path, str]:
        """Move unreadable runs away, so that they are run again; return their new folders with the reasons."""
        damaged: dict[Path, str] = {}
        self.records(damaged)
        if not damaged:
            return {}
        moved = {}
        with self.locked():
            for path, why in damaged.items():
                names = (path.name, *(f"{path.name}-{number}" for number in range(2, 1000)))
                target = next(place for name in names if not (place := self.path / _ASIDE / name).exists())
                target.parent.mkdir(exist_ok=True)
                path.rename(target)
                moved[target] = why
        return moved


def _lock(handle: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_json(path: Path, data: Any) -> None:
    """Write JSON so that the file is complete or absent; ValueError for NaN."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is complete or absent."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        _to_disk(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object.

    RecordError names the file and the reason if it cannot be read.
    """
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise RecordError(f"{path}: is missing; this is not a complete study folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); restore it from a backup") from None
    if not isinstance(data, dict):
        raise RecordError(f"{path}: does not hold a JSON object; restore it from a backup")
    return data


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS with every file below the folder, in the format of ``sha256sum``."""
    lines = [f"{file_sha256(path)}  {path.relative_to(folder)}" for path in _files(folder)]
    (folder / CHECKSUMS).write_text("\n".join(lines) + "\n")


def check_checksums(folder: Path) -> list[str]:
    """Return one line for each file of a run's folder that does not match SHA256SUMS: altered, missing or added.

    Files that were left out when the study was packed are not missing.
    """
    expected = listed(folder)
    if expected is None:
        return [f"{folder / CHECKSUMS}: is missing"]
    foreign = {str(path.relative_to(folder)) for path in _files(folder)} - set(expected)
    added = [f"{folder / name}: was not there when the run was recorded" for name in sorted(foreign)]
    return [*_altered(folder, expected, packed.left_out(folder.parent.parent)), *added]


def seal(study: Path, name: str = ENVIRONMENT) -> None:
    """Record the digest of a file in a study's folder that belongs to no run."""
    digests = (listed(study) or {}) | {name: file_sha256(study / name)}
    write_text(study / CHECKSUMS, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))


def check_sealed(study: Path) -> list[str]:
    """Return one line for each altered file that belongs to no run; empty if no digests were recorded."""
    expected = listed(study) or {}
    problems = _altered(study, expected, ())
    if not problems and read_json(study / ENVIRONMENT).get("sealed_in") == CHECKSUMS:
        unlisted = [name for name in (ENVIRONMENT, MECHANISM) if name not in expected and _is_file(study / name)]
        problems += [f"{study / CHECKSUMS}: has no digest of {name}" for name in unlisted]
    return problems


def listed(folder: Path) -> dict[str, str] | None:
    """Return the digests in a folder's SHA256SUMS by file; None if it cannot be read."""
    try:
        lines = (folder / CHECKSUMS).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _altered(folder: Path, expected: Mapping[str, str], absent: Sequence[str]) -> list[str]:
    problems = []
    for name, digest in expected.items():
        path = folder / name
        if not _is_file(path):
            if not packed.is_left_out(name, absent):
                problems.append(f"{path}: is missing")
        elif file_sha256(path) != digest:
            problems.append(f"{path}: was altered after it was recorded")
    return problems


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a name that no file can have
        return path.is_file()
    return False


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
