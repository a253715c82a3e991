"""Verdicts and runs in forms that other programs read: CSV, Parquet, JSON with a schema, OpenMetrics text, SMP.

Values stay in the units in which they are stored (SI base units); a column or a label says which response it is. What
was excluded stays in the runs, marked; nothing is rounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from meshtrial.errors import RecordError, UsageError
from meshtrial.inference import smp
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.records.store import write_text

SCHEMA = "meshtrial.export/1"
# Of a verdict, what becomes a number of its own in OpenMetrics.
_MEASURES = {
    "ratio": "estimate of treatment over baseline",
    "ci_low": "lower end of the interval of the ratio",
    "ci_high": "upper end of the interval of the ratio",
    "difference": "estimate of treatment minus baseline, in the response's stored unit",
    "p_adjusted": "p-value corrected for the family",
    "n_blocks": "blocks that take part",
}


def verdicts_frame(data: StudyData) -> pl.DataFrame:
    """A row a contrast, response and load, as ``verdicts.json`` has it; warnings joined into one text."""
    rows = [
        row.to_dict() | {"adjustment": row.adjustment, "warnings": " | ".join(row.warnings)} for row in data.verdicts
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def document(data: StudyData) -> dict[str, Any]:
    """The whole as one JSON object; docs/schema/export.schema.json describes it."""
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
        "verdicts": [row.to_dict() | {"adjustment": row.adjustment} for row in data.verdicts],
        "runs": _runs(data),
    }


def openmetrics(data: StudyData) -> str:
    """Text that Prometheus and its relatives read (OpenMetrics 1.0)."""
    lines: list[str] = []
    for name, text in _MEASURES.items():
        lines += [f"# TYPE meshtrial_{name} gauge", f"# HELP meshtrial_{name} {_escaped(text)}"]
        for row in data.verdicts:
            value = getattr(row, name)
            if value is not None:
                lines.append(f"meshtrial_{name}{_labels(_contrast(row))} {_number(value)}")
    lines += ["# TYPE meshtrial_verdict gauge", "# HELP meshtrial_verdict 1 for the verdict that a contrast has"]
    for row in data.verdicts:
        said = {"verdict": row.verdict, "qualifier": row.qualifier, "exploratory": str(row.exploratory).lower()}
        lines.append(f"meshtrial_verdict{_labels(_contrast(row) | said)} 1")
    lines += ["# TYPE meshtrial_run gauge", "# HELP meshtrial_run a response of one run, in its stored unit"]
    for row_of in data.table.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        names = ("run_id", "load", "treatment", "response")
        marks = {name: str(row_of[name]) for name in names} | {"attempt": str(row_of["attempt"])}
        marks |= {"study": data.plan.study.name, "included": str(row_of["included"]).lower()}
        lines.append(f"meshtrial_run{_labels(marks)} {_number(row_of['value'])}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _write_csv(data: StudyData, folder: Path) -> Iterator[Path]:
    for name, frame in (("verdicts", verdicts_frame(data)), ("runs", data.table)):
        path = folder / f"{name}.csv"
        write_text(path, frame.write_csv())
        yield path


def _write_parquet(data: StudyData, folder: Path) -> Iterator[Path]:
    for name, frame in (("verdicts", verdicts_frame(data)), ("runs", data.table)):
        path = folder / f"{name}.parquet"
        frame.write_parquet(path)
        yield path


def _write_json(data: StudyData, folder: Path) -> Iterator[Path]:
    yield _json(folder / "study.json", document(data))


def _write_smp(data: StudyData, folder: Path) -> Iterator[Path]:
    yield _json(folder / "smp.json", smp.document(data))


def _json(path: Path, content: Mapping[str, Any]) -> Path:
    write_text(path, json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def _write_openmetrics(data: StudyData, folder: Path) -> Iterator[Path]:
    path = folder / "metrics.txt"
    write_text(path, openmetrics(data))
    yield path


FORMATS: Mapping[str, Callable[[StudyData, Path], Iterator[Path]]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "json": _write_json,
    "openmetrics": _write_openmetrics,
    "smp": _write_smp,
}
# What a form cannot hold.
LIMITS: Mapping[str, str] = {"smp": smp.LIMITS}


def export(data: StudyData, folder: Path, formats: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """Write a study's verdicts and runs.

    Parameters
    ----------
    data : StudyData
        Analysed.
    folder : Path
        Made where it is not there; files of the same names are replaced.
    formats : tuple of str
        Of :data:`FORMATS`; all where none are named.

    Returns
    -------
    tuple of Path
        What was written.

    Raises
    ------
    UsageError
        For a format that is not known.
    RecordError
        Where the study has no verdicts, or the folder cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"format {name!r}: allowed are {', '.join(FORMATS)}")
    if not data.verdicts:
        raise RecordError(
            f"{data.path}: has no verdicts yet; `meshtrial report {data.path}` makes them from the records"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(path for name in formats or tuple(FORMATS) for path in FORMATS[name](data, folder))
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written ({error.strerror}); check rights and free space") from None


def _runs(data: StudyData) -> list[dict[str, Any]]:
    included = {(run.run_id, run.attempt) for run in data.included_runs()}
    ordered = sorted(data.runs, key=lambda run: (run.sequence, run.attempt))
    return [_run(run, included=(run.run_id, run.attempt) in included) for run in ordered]


def _run(run: RunRecord, *, included: bool) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "load": run.load,
        "block": run.repetition,
        "position": run.position,
        "treatment": run.treatment,
        "start_unix_s": run.start_unix_s,
        "valid": run.valid,
        "included": included,
        "reasons": list(run.reasons),
        "failures": dict(run.failures),
        "responses": dict(run.responses),
    }


def _contrast(row: VerdictRow) -> dict[str, str]:
    names = ("study", "load", "response", "treatment", "baseline")
    return {name: str(getattr(row, name)) for name in names}


def _labels(values: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in values.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else "NaN"
