"""``meshtrial verify DIR``: nothing was altered, and the records still give the same verdicts."""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from polars.exceptions import PolarsError

from meshtrial import paths
from meshtrial.errors import RecordError, TestbedError, UsageError
from meshtrial.inference import (
    STOPPING,
    infer_recorded,
    read_runs,
    read_study,
    read_verdict_frame,
    read_verdicts,
    stopping_of,
)
from meshtrial.load import obeyed
from meshtrial.load.ingest import latencies
from meshtrial.records import packed
from meshtrial.records.columns import read_frame, verdict_frame
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import ENVIRONMENT, StudyStore, check_checksums, check_sealed, listed, read_json
from meshtrial.run.stage import usage_responses
from meshtrial.typed import shortened


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "what", type=Path, metavar="DIR|FILE.zip|report.html", help="a study's folder, a packed study, or a report"
    )


def same(one: Any, other: Any) -> bool:
    """Equal but for the last digits of a float, which another processor's vector units may round otherwise."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command; exit 1 with a line for everything that does not hold."""
    what = arguments.what.resolve()
    if what.suffix == packed.SUFFIX:
        # Never one that was unpacked before: this very file is asked about.
        with tempfile.TemporaryDirectory(prefix="meshtrial-verify-") as private:
            return _verify(packed.unpack(what, Path(private)), [], paths.display_path(what), out)
    path, problems = _folder_of(what)
    return _verify(path, problems, str(path), out)


def _verify(path: Path, problems: list[str], shown: str, out: TextIO) -> int:
    store = StudyStore.open(path)
    folders, damaged = store.run_folders(), dict[Path, str]()
    problems += check_sealed(path)
    if store.environment.get("plan_sha256", store.plan.sha256) != store.plan.sha256:
        problems.append(f"{path / ENVIRONMENT}: belongs to another plan")
    problems += [line for folder in folders for line in check_checksums(folder)]
    records = store.records(damaged)
    problems += [*damaged.values(), *_misplaced(store, records, [one for one in folders if one not in damaged])]
    for record in records:
        folder = store.folder(record.run_id, record.attempt)
        problems += _unlisted(folder, record)
        problems += [f"{folder / 'run.json'}: {said}" for said in _at_odds(store, record)]
        problems += _other_latencies(store, record)
    if not same(read_json(path / STOPPING), stopping_of(store.plan, records)):
        problems.append(f"{path / STOPPING}: the rule and the records say something else")
    try:
        table, rows = infer_recorded(store, records)
    except UsageError as error:  # of records that are not what their plan says: that is told before
        raise RecordError("\n".join([*problems, f"{path}: cannot be analysed ({error})"])) from None
    if not same(read_verdicts(store), [row.to_dict() for row in rows]):
        problems.append(f"{path / 'verdicts.json'}: re-analysis of the records gives other verdicts")
    if not same(read_verdict_frame(store).to_dicts(), verdict_frame(rows).to_dicts()):
        problems.append(f"{path / 'verdicts.parquet'}: re-analysis of the records gives other verdicts")
    order = ("sequence", "attempt", "response")  # whatever the clock said of the order of the runs
    if not read_runs(store).sort(order).equals(table.sort(order)):
        problems.append(f"{path / 'runs.parquet'}: the records give another table")
    if problems:
        raise RecordError("\n".join(problems))
    absent = " and ".join(packed.left_out(path))
    said = f"; {absent} left out when it was packed" if absent else ""
    print(f"{shown}: plan sealed, {len(records)} runs intact, {len(rows)} verdicts the same again{said}", file=out)
    return 0


def _other_latencies(store: StudyStore, record: RunRecord) -> list[str]:
    """Latencies of a record that its own requests do not give; nothing where these were left out."""
    folder = store.folder(record.run_id, record.attempt)
    if not (folder / "latency.parquet").is_file():
        return []
    try:
        requests = read_frame(folder / "latency.parquet")
        computed, _ = latencies(requests, store.plan.study.gates.sample_floor)
        if changes := record.extra.get("changes"):
            load = store.plan.study.load(record.load)
            computed |= obeyed.medians(obeyed.from_record(requests, changes, load), load)
    except (RecordError, TestbedError, PolarsError, KeyError, TypeError) as error:
        return [f"{folder}: its requests cannot be read ({shortened(str(error), 120)})"]
    return [
        f"{folder / 'run.json'}: {name} is {value:.6g}, its requests give {_shown(computed.get(name))}"
        for name, value in record.responses.items()
        if (name in computed or name in record.bounds) and not same(value, computed.get(name))
    ]


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _unlisted(folder: Path, record: RunRecord) -> list[str]:
    """Files that every measured run has, and whose digest is gone: with its line a file can be taken away."""
    names = listed(folder) or {}
    needed = ("run.json", "resources.parquet", *(["latency.parquet"] if record.generators else []))
    return [f"{folder / name}: its digest is missing" for name in needed if name not in names]


def _at_odds(store: StudyStore, record: RunRecord) -> list[str]:
    """What a record says against its plan or itself."""
    planned = next((asdict(run) for run in store.plan.runs if run.run_id == record.run_id), {})
    said = [
        f"{name} is {getattr(record, name)!r}, in the plan {value!r}"
        for name, value in planned.items()
        if getattr(record, name) != value
    ]
    failed = [gate.name for gate in record.failed_gates]
    failed += [proof.name for proof in record.proofs if not proof.passed]
    if record.valid and (failed or record.reasons):
        said.append(f"is valid, and failed {', '.join(failed) or record.reasons[0]}")
    if not record.valid and not record.reasons:
        said.append("is not valid, for no reason")
    used = usage_responses(record.usage, record.responses.get("requests", 0.0))
    return said + [
        f"{name} is {value:.6g}, its components used {used[name]:.6g}"
        for name, value in record.responses.items()
        if name.endswith("_cpu_s_per_request") and name in used and not same(value, used[name])
    ]


def _misplaced(store: StudyStore, records: Sequence[RunRecord], folders: Sequence[Path]) -> list[str]:
    """Runs that the plan does not have, and folders that are not those of their runs, as copies are not."""
    planned = {run.run_id for run in store.plan.runs}
    problems = [
        f"{store.folder(record.run_id, record.attempt)}: its run is not in the plan"
        for record in records
        if record.run_id not in planned
    ]
    own = {store.folder(record.run_id, record.attempt).name for record in records}
    others = [folder for folder in folders if folder.name not in own]
    return problems + [f"{folder}: is not the folder of the run that it holds" for folder in others]


def _folder_of(what: Path) -> tuple[Path, list[str]]:
    """The study's folder; for a report the one it was made from, and what in the report does not match it."""
    if what.suffix != ".html":
        return what, []
    from meshtrial.report import html, tables

    seal = html.report_seal(what)
    if not seal.get("records"):
        raise UsageError(f"{what}: says nothing of the records it was made from; give the study's folder instead")
    recorded = Path(seal["records"])
    # A report says where its records lie below `data`, wherever that is on this machine.
    places = (paths.CHECKOUT / recorded, paths.studies_root().joinpath(*recorded.parts[-2:]))
    path = next((place for place in places if place.is_dir()), places[0])
    data = read_study(StudyStore.open(path))
    problems = []
    if seal.get("plan") != data.plan.sha256:
        problems.append(f"{what}: was made from another plan than the one in {path}")
    if seal.get("verdicts") != tables.verdicts_sha256(data):
        problems.append(f"{what}: was made from other verdicts than those in {path}")
    return path, problems
