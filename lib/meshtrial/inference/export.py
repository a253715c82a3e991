"""Verdicts and runs in forms that other programs read: CSV, Parquet, and JSON with a schema.

Values keep the units in which they are stored (SI base units); a column names the response. Excluded runs are included
and marked; nothing is rounded.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from meshtrial import paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.records.columns import verdict_frame
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import write_text

SCHEMA = "meshtrial.export/2"


def document(data: StudyData) -> dict[str, Any]:
    """Return the study as one JSON object, described by docs/schema/export.schema.json."""
    study = data.plan.study
    return {
        "schema": SCHEMA,
        "study": {
            "name": study.name,
            "title": study.title,
            "question": study.question,
            "backend": study.backend,
            "app": study.app,
            "plan_sha256": data.plan.sha256,
            "treatments": [treatment.name for treatment in study.treatments],
            "baseline": study.baseline.name,
            "loads": [load.label for load in study.loads],
            "primary": list(study.primary),
            "alpha": study.alpha,
        },
        "verdicts": [row.to_dict() for row in data.verdicts],
        "runs": _runs(data),
    }


FORMATS = ("csv", "parquet", "json")


def _write(data: StudyData, folder: Path, name: str) -> Iterator[Path]:
    if name == "json":
        yield (path := folder / "study.json")
        write_text(path, json.dumps(document(data), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        return
    verdicts = verdict_frame(data.verdicts)
    if name == "csv":
        warnings = pl.Series([" | ".join(map(str, row.warnings)) for row in data.verdicts], dtype=pl.String)
        verdicts = verdicts.with_columns(warnings=warnings)
    for table, frame in (("verdicts", verdicts), ("runs", data.table)):
        yield (path := folder / f"{table}.{name}")
        if name == "csv":
            write_text(path, frame.write_csv())
        else:
            frame.write_parquet(path)


def export(data: StudyData, folder: Path, formats: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """Write an analysed study's verdicts and runs in these :data:`FORMATS`, or in all; return the files.

    The folder is created if necessary, and files of the same names are replaced. Raise UsageError for an unknown
    format; RecordError if the study has no verdicts, or if the folder cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"format {name!r}: must be one of {', '.join(FORMATS)}")
    if not data.verdicts:
        raise RecordError(f"{data.path}: has no verdicts yet; `meshtrial report {paths.word(data.path)}` computes them")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(path for name in formats or FORMATS for path in _write(data, folder, name))
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written ({error.strerror}); check permissions and free space") from None


def _runs(data: StudyData) -> list[dict[str, Any]]:
    included = {(run.run_id, run.attempt) for run in data.included_runs()}
    return [
        {
            "run_id": run.run_id,
            "attempt": run.attempt,
            "load": run.load,
            "block": run.repetition,
            "position": run.position,
            "treatment": run.treatment,
            "start_unix_s": run.start_unix_s,
            "valid": run.valid,
            "included": (run.run_id, run.attempt) in included,
            "reasons": list(run.reasons),
            "failures": dict(run.failures),
            "responses": dict(run.responses),
        }
        for run in sorted(data.runs, key=lambda run: (run.sequence, run.attempt))
    ]
