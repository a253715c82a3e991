"""Merging the parts of a divided study: one plan, all of its blocks, and the place where each block was run.

Records are copied unchanged. The parts must be complete, of one plan, and together hold every block exactly once;
otherwise the error names the problem.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtrial import paths
from meshtrial.design.plan import Plan
from meshtrial.errors import RecordError, UsageError, writing
from meshtrial.records.parts import Part, Site, part_of
from meshtrial.records.store import ENVIRONMENT, PLAN, StudyStore, check_checksums, seal, write_json
from meshtrial.records.tables import is_result


def merge(stores: Sequence[StudyStore], target: Path) -> StudyStore:
    """Write the whole study into a new folder, from its parts in any order.

    UsageError if these are not the parts of one study. RecordError if a part is damaged or lacks runs, or if the folder
    already exists.
    """
    parts = {store.path: _part(store) for store in stores}
    stores = sorted(stores, key=lambda store: store.blocks)
    if len(stores) < 2:
        raise UsageError("only one folder: name the folders of all parts of the study")
    first = stores[0]
    for store in stores[1:]:
        _must_be_same_plan(first, store)
    _must_be_all_blocks(first.plan, stores)
    if problems := [line for store in stores for line in _damage(store)]:
        raise RecordError("\n".join(problems))
    if target.exists():
        raise RecordError(f"{target}: already exists; move it away, or name another folder with --out")
    with writing(target), tempfile.TemporaryDirectory(dir=target.parent, prefix=".merging-") as private:
        made = Path(private, target.name)
        (made / "runs").mkdir(parents=True)
        shutil.copyfile(first.path / PLAN, made / PLAN)
        write_json(made / ENVIRONMENT, _environment([(parts[store.path], store) for store in stores]))
        seal(made)
        for store in stores:
            for folder in _whole_runs(store):
                shutil.copytree(folder, made / "runs" / folder.name)
        made.rename(target)
    return StudyStore.open(target)


def _part(store: StudyStore) -> Part:
    part = part_of(store.plan, store.environment)
    if part is None:
        raise UsageError(f"{store.path}: is not a part of a study; a part is run with -p part=1/3")
    return part


def _must_be_same_plan(one: StudyStore, other: StudyStore) -> None:
    if one.plan.sha256 == other.plan.sha256:
        return
    studies = one.plan.study, other.plan.study
    said = _differing(*(study.parameters for study in studies)) or _differing(*(vars(study) for study in studies))
    raise UsageError(
        f"{one.path} and {other.path}: belong to different plans, which differ in {said or 'the order of the runs'}; "
        "run all parts with the same parameters, except part"
    )


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name in {*one, *other} if one.get(name) != other.get(name)))


def _must_be_all_blocks(plan: Plan, stores: Sequence[StudyStore]) -> None:
    owner: dict[int, StudyStore] = {}
    for store in stores:
        for block in store.blocks:
            if block in owner:
                raise UsageError(f"block {block} is in {owner[block].path} and in {store.path}; leave one of them out")
            owner[block] = store
    if missing := [str(block) for block in range(1, plan.study.blocks + 1) if block not in owner]:
        raise UsageError(f"blocks {', '.join(missing)}: are in none of these folders; name the folders of all parts")


def _damage(store: StudyStore) -> list[str]:
    here, records = {run.run_id for run in store.runs_here()}, store.records()
    if foreign := sorted({record.run_id for record in records} - here):
        return [f"{store.path}: holds runs of blocks of another part: {', '.join(foreign[:3])}"]
    if missing := here - {record.run_id for record in records if is_result(store.plan, record) or record.attempt > 1}:
        return [
            f"{store.path}: {len(missing)} runs are missing; `meshtrial run {store.plan.study.name} -p "
            f"study_dir={paths.word(store.path)}` continues, `meshtrial fetch` copies what its cluster has"
        ]
    return [line for folder in _whole_runs(store) for line in check_checksums(folder)]


def _whole_runs(store: StudyStore) -> list[Path]:
    return [store.folder(record.run_id, record.attempt) for record in store.records()]


def _environment(parts: Sequence[tuple[Part, StudyStore]]) -> dict[str, Any]:
    """Return what all places have in common, and what differs for each place."""
    described = [store.environment for _, store in parts]
    shared = {key: value for key, value in described[0].items() if all(one.get(key) == value for one in described)}
    listed = [
        {"name": Site(part, store.blocks, one).name, "recorded_as": store.path.name}
        | {key: value for key, value in one.items() if key not in shared}
        for (part, store), one in zip(parts, described, strict=True)
    ]
    return {**shared, "parts": listed}
