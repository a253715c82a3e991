"""From records to verdicts: which values enter which family, and the rows of ``verdicts.json``.

Everything here is computed from the plan and the run records alone, so deleting ``runs.parquet`` and
``verdicts.*`` and analysing again gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from meshtrial import paths
from meshtrial.design.plan import Plan
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference.diagnosis import same_versions, varying_versions
from meshtrial.inference.rows import LoadFamilies
from meshtrial.inference.sequential import blocks_in_a_row, decide, ended, finished_blocks
from meshtrial.records.columns import VERDICTS, kinds, read_frame, verdict_frame
from meshtrial.records.dataset import RUNS_SCHEMA, StudyData
from meshtrial.records.parts import place_of_block
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.records.store import StudyStore, write_json
from meshtrial.records.tables import include, runs_table
from meshtrial.vocabulary import VerdictLabel

STOPPING = "stopping.json"


def infer(
    plan: Plan, records: Sequence[RunRecord], places: Mapping[int, str] | None = None
) -> tuple[pl.DataFrame, list[VerdictRow]]:
    """The tidy table and every row at the error rate of the stopping rule; before the plan ends without a verdict.

    ``places`` says where each block was run, of a study that was divided and merged.
    """
    table = runs_table(plan, records)
    return table, judge(plan, plan, records, table, places)


def judge(
    # What was sealed: it says how far the study is, and at which share of the error rate its stopping rule ended it
    plan: Plan,
    asked: Plan,  # the same treatments, loads and runs
    records: Sequence[RunRecord],
    table: pl.DataFrame,  # their tidy table
    places: Mapping[int, str] | None = None,  # as in `infer`
) -> list[VerdictRow]:
    """The rows of a sealed plan's records under the margins, error rate and contrasts of another, or of itself."""
    finished = blocks_in_a_row(plan, records)
    alpha = decide(plan, records, finished).alpha
    if asked.study.alpha != plan.study.alpha:
        alpha *= asked.study.alpha / plan.study.alpha
    mixed = (*varying_versions(records), *same_versions(records))
    rows: list[VerdictRow] = []
    for load in asked.study.loads:
        taken = include(plan, records, load.label)
        rows += LoadFamilies(asked, table, load.label, taken, alpha, places or {}).verdict_rows()
    rows = [replace(row, warnings=(*row.warnings, *mixed)) for row in rows]
    if ended(plan, records):
        return rows
    # The numbers of a study that is not finished, without a verdict: one would be an early look at it.
    far = f"{len(finished_blocks(plan, records))} of {plan.study.blocks} blocks"
    return [replace(row, verdict=VerdictLabel.PROVISIONAL, qualifier=far, blocks_needed=None) for row in rows]


def analyse(store: StudyStore) -> StudyData:
    """Analyse what is recorded, write ``runs.parquet`` and ``verdicts.parquet``/``.json``, and return it all."""
    records = store.records()
    plan = store.plan
    table, rows = infer_recorded(store, records)
    with store.written():
        _write(store, records, table, rows)
    return StudyData(store.path, plan, store.environment, records, table, tuple(rows))


def infer_recorded(store: StudyStore, records: Sequence[RunRecord]) -> tuple[pl.DataFrame, list[VerdictRow]]:
    """What the records of a folder give, whatever was written beside them."""
    return infer(store.plan, records, place_of_block(store.plan, store.environment))


def read_study(store: StudyStore) -> StudyData:
    """A study as it was last analysed, without computing anything.

    RecordError when it was never analysed, or by another version.
    """
    path = store.path / "verdicts.json"
    if not path.exists():
        raise RecordError(f"{path}: is missing; `meshtrial report {paths.word(store.path)}` makes it from the records")
    try:
        rows = tuple(map(VerdictRow.from_dict, read_verdicts(store)))
    except UsageError as error:
        raise RecordError(
            f"{path}: was written by another version ({error}); "
            f"`meshtrial report {paths.word(store.path)}` makes it again"
        ) from None
    table = read_runs(store)
    return StudyData(store.path, store.plan, store.environment, store.records(), table, rows)


def read_runs(store: StudyStore) -> pl.DataFrame:
    """``runs.parquet``."""
    return _read_table(store, "runs.parquet", RUNS_SCHEMA)


def read_verdict_frame(store: StudyStore) -> pl.DataFrame:
    """``verdicts.parquet``."""
    return _read_table(store, "verdicts.parquet", kinds(VERDICTS))


def _read_table(store: StudyStore, name: str, schema: Mapping[str, Any]) -> pl.DataFrame:
    path, again = store.path / name, f"`meshtrial report {paths.word(store.path)}` makes it again"
    table = read_frame(path, again)
    if table.schema != pl.Schema(schema):
        raise RecordError(f"{path}: was written by another version; {again}")
    return table


def read_verdicts(store: StudyStore) -> list[dict[str, Any]]:
    """The rows of ``verdicts.json``."""
    path = store.path / "verdicts.json"
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); `meshtrial report` makes it again") from None
    if not isinstance(rows, list):
        raise RecordError(f"{path}: holds no list of rows; `meshtrial report` makes it again")
    return rows


def stopping_of(plan: Plan, records: Sequence[RunRecord]) -> dict[str, Any]:
    """What ``stopping.json`` holds: what the plan's rule says of these records."""
    finished = blocks_in_a_row(plan, records)
    decision = decide(plan, records, finished)
    return {
        "rule": dict(plan.study.stopping),
        "repetitions": finished,
        "alpha": decision.alpha,
        "stop": decision.stop,
        "reason": decision.reason,
    }


def _write(store: StudyStore, records: Sequence[RunRecord], table: pl.DataFrame, rows: Sequence[VerdictRow]) -> None:
    write_json(store.path / STOPPING, stopping_of(store.plan, records))
    table.write_parquet(store.path / "runs.parquet", compression="zstd")
    plain = [row.to_dict() for row in rows]
    (store.path / "verdicts.json").write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n")
    verdict_frame(rows).write_parquet(store.path / "verdicts.parquet", compression="zstd")
