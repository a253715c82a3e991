"""``meshtrial verify DIR``: verify that records are unchanged and still give the same verdicts."""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from polars.exceptions import PolarsError

from meshtrial import inference, paths
from meshtrial.design.load import ChangesUnderLoad
from meshtrial.errors import RecordError, TestbedError, UsageError
from meshtrial.load import propagation
from meshtrial.load.ingest import latencies
from meshtrial.records import packed
from meshtrial.records.columns import read_frame, verdict_frame
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.records.store import ENVIRONMENT, StudyStore, check_checksums, check_sealed, listed, read_json
from meshtrial.run.stage import usage_responses
from meshtrial.typed import shortened


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "path", type=Path, metavar="DIR|FILE.tar.xz|report.html", help="folder of a study, packed study, or report"
    )


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, up to the last digits of floats, which vary between processors."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; raise RecordError with one line per problem."""
    path = arguments.path.resolve()
    if packed.is_packed(path):
        # An earlier unpacked copy would not verify this file.
        with tempfile.TemporaryDirectory(prefix="meshtrial-verify-") as private:
            return _verify(packed.unpack(path, Path(private)), [], paths.display_path(path), out)
    folder, problems = _folder_of(path)
    return _verify(folder, problems, str(folder), out)


def _verify(path: Path, problems: list[str], label: str, out: TextIO) -> int:
    store = StudyStore.open(path)
    folders, damaged = store.run_folders(), dict[Path, str]()
    problems += check_sealed(path)
    if store.environment.get("plan_sha256", store.plan.sha256) != store.plan.sha256:
        problems.append(f"{path / ENVIRONMENT}: belongs to another plan")
    problems += [line for folder in folders for line in check_checksums(folder)]
    records = store.records(damaged)
    problems += [
        *damaged.values(),
        *_misplaced(store, records, [folder for folder in folders if folder not in damaged]),
    ]
    for record in records:
        folder = store.folder(record.run_id, record.attempt)
        problems += _unlisted(folder, record)
        problems += [f"{folder / 'run.json'}: {problem}" for problem in _contradictions(store, record)]
        problems += _other_latencies(store, record)
    if not same(read_json(path / inference.STOPPING), inference.stopping_of(store.plan, records)):
        problems.append(f"{path / inference.STOPPING}: differs from what the rule and the records give")
    try:
        table, rows = inference.infer(store.plan, records, store.environment)
    except UsageError as error:  # the records contradict their plan, as listed in problems
        raise RecordError("\n".join([*problems, f"{path}: cannot be analysed ({error})"])) from None
    computed = [row.to_dict() for row in rows]
    try:
        recorded = [VerdictRow.from_dict(row).to_dict() for row in inference.read_verdicts(store)]
    except UsageError:  # the file holds other JSON
        recorded = []
    in_parquet = inference.read_table(store, "verdicts").to_dicts(), verdict_frame(rows).to_dicts()
    for name, (was, now) in {"verdicts.json": (recorded, computed), "verdicts.parquet": in_parquet}.items():
        if not same([*map(inference.claim, was)], [*map(inference.claim, now)]):
            problems.append(f"{path / name}: re-analysis of the records gives different verdicts")
    order = ("sequence", "attempt", "response")  # the clock may have been set back between runs
    if not inference.read_table(store, "runs").sort(order).equals(table.sort(order)):
        problems.append(f"{path / 'runs.parquet'}: re-analysis of the records gives a different table")
    if problems:
        raise RecordError("\n".join(problems))
    absent = " and ".join(packed.left_out(path))
    note = f"; {absent} left out when it was packed" if absent else ""
    note += "" if same(recorded, computed) else "; warnings and advice in verdicts.json are worded by another version"
    print(f"{label}: plan sealed, {len(records)} runs intact, {len(rows)} verdicts reproduced{note}", file=out)
    return 0


def _other_latencies(store: StudyStore, record: RunRecord) -> list[str]:
    """Compare the latencies of a record with its own requests, unless these were left out of a packed study."""
    folder = store.folder(record.run_id, record.attempt)
    if not (folder / "latency.parquet").is_file():
        return []
    try:
        requests = read_frame(folder / "latency.parquet")
        computed, _ = latencies(requests, store.plan.study.gates.sample_floor)
        load = store.plan.study.load(record.load)
        if (changes := record.extra.get("changes")) and isinstance(load, ChangesUnderLoad):
            computed |= propagation.medians(propagation.from_record(requests, changes, load), load)
    except (RecordError, TestbedError, PolarsError, KeyError, TypeError) as error:
        return [f"{folder}: its requests cannot be read ({shortened(str(error), 120)})"]
    problems = []
    for name, value in record.responses.items():
        expected = computed.get(name)
        if (name in computed or name in record.bounds) and not same(value, expected):
            text = "none" if expected is None else f"{expected:.6g}"
            problems.append(f"{folder / 'run.json'}: {name} is {value:.6g}, but its requests give {text}")
    return problems


def _unlisted(folder: Path, record: RunRecord) -> list[str]:
    """List required files without a checksum: removing its line would hide that a file was altered or removed."""
    names = listed(folder) or {}
    needed = ("run.json", "resources.parquet", *(["latency.parquet"] if record.generators else []))
    return [f"{folder / name}: its checksum is missing" for name in needed if name not in names]


def _contradictions(store: StudyStore, record: RunRecord) -> list[str]:
    """List contradictions between a record and its plan, and within the record."""
    planned = next((asdict(run) for run in store.plan.runs if run.run_id == record.run_id), {})
    problems = [
        f"{name} is {getattr(record, name)!r}, but {value!r} in the plan"
        for name, value in planned.items()
        if getattr(record, name) != value
    ]
    failed = [gate.name for gate in record.failed_gates]
    failed += [proof.name for proof in record.proofs if not proof.passed]
    if record.valid and (failed or record.reasons):
        problems.append(f"is marked valid, but failed {', '.join(failed) or record.reasons[0]}")
    if not record.valid and not record.reasons:
        problems.append("is marked invalid but records no reason")
    used = usage_responses(record.usage, record.responses.get("requests", 0.0))
    return problems + [
        f"{name} is {value:.6g}, but its components used {used[name]:.6g}"
        for name, value in record.responses.items()
        if name.endswith("_cpu_s_per_request") and name in used and not same(value, used[name])
    ]


def _misplaced(store: StudyStore, records: Sequence[RunRecord], folders: Sequence[Path]) -> list[str]:
    """List runs that are not in the plan, and folders that do not belong to their run, such as copies."""
    planned = {run.run_id for run in store.plan.runs}
    problems = [
        f"{store.folder(record.run_id, record.attempt)}: its run is not in the plan"
        for record in records
        if record.run_id not in planned
    ]
    expected = {store.folder(record.run_id, record.attempt).name for record in records}
    others = [folder for folder in folders if folder.name not in expected]
    return problems + [f"{folder}: holds a run that belongs in another folder" for folder in others]


def _folder_of(path: Path) -> tuple[Path, list[str]]:
    """Return the folder of a study, or of a report's study, and mismatches between the report and its records."""
    if path.suffix != ".html":
        return path, []
    from meshtrial.report import report_seal, tables

    seal = report_seal(path)
    if not seal.get("records"):
        raise UsageError(f"{path}: does not name the records it was made from; give the study's folder instead")
    recorded = Path(seal["records"])
    # A report names its records relative to `data`, which may be elsewhere on this machine.
    places = (paths.CHECKOUT / recorded, paths.studies_root().joinpath(*recorded.parts[-2:]))
    folder = next((place for place in places if place.is_dir()), places[0])
    data = inference.read_study(StudyStore.open(folder))
    problems = []
    if seal.get("plan") != data.plan.sha256:
        problems.append(f"{path}: was made from another plan than the one in {folder}")
    if seal.get("verdicts") != tables.verdicts_sha256(data):
        problems.append(f"{path}: was made from other verdicts than those in {folder}")
    return folder, problems
