"""From records to verdicts: which values enter which family, and the rows of ``verdicts.json``.

Everything is computed from the plan and the run records alone. After deleting ``runs.parquet`` and ``verdicts.*``, a
new analysis gives the same bytes. This includes the plan's stopping rule, which is applied while a study runs and at
every analysis: the records prove which rule stopped the study, and at which error rate its verdicts are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from meshtrial import paths, stats
from meshtrial.design.migration import current_responses, current_row
from meshtrial.design.plan import ATTEMPTS, Plan
from meshtrial.design.responses import REGISTRY
from meshtrial.errors import RecordError, UsageError
from meshtrial.inference.diagnosis import same_versions, varying_versions
from meshtrial.inference.rows import LoadFamilies
from meshtrial.lazy import pl
from meshtrial.records.columns import VERDICTS, Kinds, read_frame, verdict_frame
from meshtrial.records.dataset import RUNS_SCHEMA, StudyData
from meshtrial.records.parts import session_of_block
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.records.store import StudyStore, write_json
from meshtrial.records.tables import include, is_result, runs_table
from meshtrial.vocabulary import QUALIFIERS, VerdictLabel

STOPPING = "stopping.json"
_LABELS = {name: response.label for name, response in REGISTRY.items()}  # a recorded row may have a former label
_WORDS = ("label", "sentence", "mde", "blocks_needed", "warnings", "sessions")


def infer(
    plan: Plan, records: Sequence[RunRecord], environment: Mapping[str, Any] | None = None
) -> tuple[pl.DataFrame, list[VerdictRow]]:
    """Return the run table and every row at the stopping rule's error rate; until the plan ends, without a verdict.

    The `environment` has the places of a study that was divided and merged.
    """
    table = runs_table(plan, records)
    return table, judge(plan, plan, records, table, environment or {})


def judge(
    plan: Plan,  # as sealed: it says how far the study is, and the error rate at which its stopping rule ended it
    asked: Plan,  # the same treatments, loads and runs
    records: Sequence[RunRecord],
    table: pl.DataFrame,  # the run table of these records
    environment: Mapping[str, Any],  # as in `infer`
) -> list[VerdictRow]:
    """Return the rows of a plan's records under the margins, error rate and contrasts of another plan, or its own."""
    finished = blocks_in_a_row(plan, records)
    alpha = decide(plan, records, finished).alpha
    if asked.study.alpha != plan.study.alpha:
        alpha *= asked.study.alpha / plan.study.alpha
    sessions = session_of_block(plan, environment)
    mixed = (*varying_versions(records), *same_versions(records))
    rows: list[VerdictRow] = []
    for load in asked.study.loads:
        inclusion = include(plan, records, load.label)
        rows += LoadFamilies(asked, table, load.label, inclusion, alpha, sessions).verdict_rows()
    rows = [replace(row, warnings=(*row.warnings, *mixed)) for row in rows]
    if ended(plan, records):
        return rows
    # An unfinished study has numbers and no verdict, which would be an early look.
    progress = f"{len(finished_blocks(plan, records))} of {plan.study.blocks} blocks"
    return [replace(row, verdict=VerdictLabel.PROVISIONAL, qualifier=progress, blocks_needed=None) for row in rows]


def analyse(store: StudyStore) -> StudyData:
    """Analyse the records, write ``runs.parquet`` and ``verdicts.parquet``/``.json``, and return the study."""
    records = store.records()
    plan = store.plan
    table, rows = infer(plan, records, store.environment)
    with store.written():
        write_json(store.path / STOPPING, stopping_of(plan, records))
        table.write_parquet(store.path / "runs.parquet", compression="zstd")
        plain = [row.to_dict() for row in rows]
        (store.path / "verdicts.json").write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n")
        verdict_frame(rows).write_parquet(store.path / "verdicts.parquet", compression="zstd")
    return StudyData(store.path, plan, store.environment, records, table, tuple(rows))


def read_study(store: StudyStore) -> StudyData:
    """Return a study with its last recorded analysis, without computing anything.

    Raise RecordError if it was never analysed, or by another version.
    """
    path = store.path / "verdicts.json"
    if not path.exists():
        raise RecordError(f"{path}: is missing; `meshtrial report {paths.word(store.path)}` writes it from the records")
    try:
        rows = tuple(map(VerdictRow.from_dict, read_verdicts(store)))
    except UsageError as error:
        raise RecordError(
            f"{path}: was written by another version ({error}); "
            f"`meshtrial report {paths.word(store.path)}` writes it again"
        ) from None
    table = read_table(store, "runs")
    return StudyData(store.path, store.plan, store.environment, store.records(), table, rows)


def read_table(store: StudyStore, name: Literal["runs", "verdicts"]) -> pl.DataFrame:
    """Read ``runs.parquet`` or ``verdicts.parquet``."""
    schema: Mapping[str, Any] = RUNS_SCHEMA if name == "runs" else Kinds(VERDICTS)
    path, again = store.path / f"{name}.parquet", f"`meshtrial report {paths.word(store.path)}` writes it again"
    table = read_frame(path, again)
    if table.schema.get("response") == pl.String:
        table = table.with_columns(pl.col("response").map_elements(current_responses, pl.String))
    if "counted" in schema and "counted" not in table.schema:  # earlier verdicts are of blocks
        table = table.with_columns(counted=pl.lit("blocks"), sessions=pl.lit(1, pl.Int64)).select(*schema)
    if {"response", "label"} <= table.schema.keys():
        table = table.with_columns(pl.col("response").replace_strict(_LABELS, default=pl.col("label")).alias("label"))
    if table.schema != pl.Schema(schema):
        raise RecordError(f"{path}: was written by another version; {again}")
    return table


def read_verdicts(store: StudyStore) -> list[dict[str, Any]]:
    """Read the rows of ``verdicts.json``."""
    path = store.path / "verdicts.json"
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({error}); `meshtrial report` writes it again") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RecordError(f"{path}: is no list of rows; `meshtrial report` writes it again")
    named = [current_row(row) for row in rows]
    return [row | {"label": _LABELS.get(row.get("response"), row.get("label"))} for row in named]


def claim(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of verdicts without its words, its advice and its context, which another version may change."""
    qualifier = row["qualifier"] if row["qualifier"] in QUALIFIERS else ""
    codes = [warning["code"] for warning in row["warnings"]]
    return {name: value for name, value in row.items() if name not in _WORDS} | {"qualifier": qualifier, "codes": codes}


def stopping_of(plan: Plan, records: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the content of ``stopping.json``: the decision of the plan's rule about these records."""
    finished = blocks_in_a_row(plan, records)
    decision = decide(plan, records, finished)
    return {
        "rule": dict(plan.study.stopping),
        "repetitions": finished,
        "alpha": decision.alpha,
        "stop": decision.stop,
        "reason": decision.reason,
    }


def blocks_in_a_row(plan: Plan, records: Iterable[RunRecord]) -> int:
    """Return the number of leading blocks whose runs, including required repeats, are all recorded."""
    done = finished_blocks(plan, records)
    return next((n - 1 for n in range(1, plan.study.blocks + 1) if n not in done), plan.study.blocks)


def finished_blocks(plan: Plan, records: Iterable[RunRecord]) -> frozenset[int]:
    """Return the blocks whose runs are all recorded, in any order."""
    last: dict[str, int] = {}
    done: set[str] = set()
    for record in records:
        last[record.run_id] = max(record.attempt, last.get(record.run_id, 0))
        if is_result(plan, record):
            done.add(record.run_id)
    unfinished = {run.repetition for run in plan.runs if run.run_id not in done and last.get(run.run_id, 0) < ATTEMPTS}
    return frozenset(range(1, plan.study.blocks + 1)) - unfinished


def decide(plan: Plan, records: Sequence[RunRecord], blocks: int) -> stats.Decision:
    """Return the declared rule's decision after this number of finished blocks, without records of later ones."""
    rule = stats.stopping_rule(plan.study.stopping)
    if isinstance(rule, stats.FixedN):
        return rule.decide(stats.Progress(run=blocks, complete=blocks))
    seen = [record for record in records if record.repetition <= blocks]
    table = runs_table(plan, seen)
    complete, widths, conclusive = blocks, {}, True
    alpha = rule.alpha_first if isinstance(rule, stats.TwoLooks) else rule.alpha
    for load in plan.study.loads:
        inclusion = include(plan, seen, load.label)
        complete = min(complete, len(inclusion.blocks))
        for response, result in LoadFamilies(plan, table, load.label, inclusion, alpha).primary_results():
            conclusive &= result.verdict.label.conclusive
            if result.comparison is not None:
                key = f"{load.label} {response} {result.treatment}/{result.baseline}"
                widths[key] = stats.half_width(result.comparison)
    return rule.decide(stats.Progress(blocks, complete, widths, conclusive))


def ended(plan: Plan, records: Sequence[RunRecord]) -> bool:
    """Whether nothing remains to be run: the plan is complete, or its rule has stopped it."""
    finished = blocks_in_a_row(plan, records)
    return finished == plan.study.blocks or (finished > 0 and decide(plan, records, finished).stop)
