"""The comparison as JSON: every file with its SHA-256, every number read from it, every verdict."""

import dataclasses
from pathlib import Path
from typing import Any

from meshtrial import __version__
from meshtrial.compare.analysis import Outcome, smallest_p_of
from meshtrial.compare.runs import Run
from meshtrial.records.store import write_json

SCHEMA = "meshtrial.compare/2"


def to_dict(outcome: Outcome, options: dict[str, Any]) -> dict[str, Any]:
    """Plain data; ``verdicts`` holds rows of the same fields as a study's ``verdicts.json``."""
    sample = outcome.sample
    return {
        "schema": SCHEMA,
        "meshtrial": __version__,
        "options": options,
        "baseline": sample.baseline,
        "paired": sample.paired,
        "pairing": sample.pairing,
        "smallest_p": {name: smallest_p_of(sample, name) for name in sample.treatments},
        "limits": list(outcome.limits),
        "warnings": [dataclasses.asdict(finding) for finding in outcome.findings],
        "runs": [_run(run) for run in sample.runs],
        "verdicts": [row.to_dict() for row in outcome.rows],
    }


def write(path: Path, outcome: Outcome, options: dict[str, Any]) -> None:
    """Write the record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(outcome, options))


def _run(run: Run) -> dict[str, Any]:
    settings = run.settings
    load = None
    if settings is not None:
        plain = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
        skipped = ("path", "latency", "errors", "url")
        load = {name: said for name, said in plain.items() if name not in skipped and said is not None}
    return {
        "treatment": run.treatment,
        "run": run.name,
        "block": run.block,
        "kind": run.kind,
        "files": {str(path): digest for path, digest in run.sources.items()},
        "start_unix_s": run.start_unix_s,
        "responses": dict(run.values),
        "bounds": dict(run.bounds),
        "load": load,
        "notes": list(run.notes),
    }
