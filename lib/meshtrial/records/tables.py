"""One tidy table of all run records, and the blocks that take part in the inference.

The rule is declared before any run. A run that fails a run check is kept, flagged, and repeated once inside its block.
If it fails again, its block is excluded for every treatment. A treatment that fails in more than half of its blocks is
excluded as a whole, so that it does not exclude the blocks of all others. It is ``saturated`` if it could not keep the
rate, otherwise ``invalid``. Measured values play no part in this. Verdicts test ``saturated`` against the other side's
`rate_failures`.

A failure that may be the treatment's own is an outcome: a rate that was not kept, late requests or errors, although the
load generator passed its checks on a machine without foreign load. Such a run is not repeated, because that would
select the first attempt that is good enough. Its latency ranks behind every other of its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshtrial.design.load import CapacitySearch, Load, Ramp
from meshtrial.design.plan import Plan
from meshtrial.errors import RecordError
from meshtrial.lazy import pl
from meshtrial.records.columns import RESPONSES, frame_of, run_columns
from meshtrial.records.schema import RATE_GATES, RunRecord
from meshtrial.typed import shortened
from meshtrial.vocabulary import VerdictLabel


@dataclass(frozen=True)
class Inclusion:
    """Which runs take part, at one load."""

    chosen: Mapping[
        tuple[int, str], RunRecord
    ]  # by block and treatment: the first attempt that is a result, otherwise the last
    blocks: tuple[int, ...]  # blocks in which every treatment that is not excluded has a result
    excluded: Mapping[str, VerdictLabel]  # treatment to `saturated` or `invalid`
    excluded_blocks: Mapping[int, tuple[RunRecord, ...]]  # block to the failed runs that excluded it
    unfinished: tuple[int, ...]  # planned blocks whose runs are not complete


def include(plan: Plan, records: Iterable[RunRecord], load: str) -> Inclusion:
    """Return which runs of one load take part, by the rule of this module."""
    chosen: dict[tuple[int, str], RunRecord] = {}
    for record in sorted(records, key=lambda r: r.attempt):
        if record.load == load:
            key = (record.repetition, record.treatment)
            if key not in chosen or not is_result(plan, chosen[key]):
                chosen[key] = record
    treatments = [t.name for t in plan.study.treatments]
    planned = sorted({run.repetition for run in plan.runs if run.load == load})
    finished = [block for block in planned if all((block, treatment) in chosen for treatment in treatments)]
    excluded: dict[str, VerdictLabel] = {}
    for treatment in treatments:
        failed = [chosen[block, treatment] for block in finished if not chosen[block, treatment].valid]
        if finished and 2 * len(failed) > len(finished):
            held_back = [run for run in failed if is_saturated(run)]
            excluded[treatment] = VerdictLabel.SATURATED if 2 * len(held_back) > len(failed) else VerdictLabel.INVALID
    kept = [treatment for treatment in treatments if treatment not in excluded]
    bad = {block: tuple(run for name in kept if not is_result(plan, run := chosen[block, name])) for block in finished}
    excluded_blocks = {block: runs for block, runs in bad.items() if runs}
    blocks = tuple(block for block, runs in bad.items() if not runs)
    unfinished = tuple(block for block in planned if block not in finished)
    return Inclusion(chosen, blocks, excluded, excluded_blocks, unfinished)


def rate_failures(inclusion: Inclusion) -> dict[str, list[bool]]:
    """Return for each treatment in which finished blocks its rate was not kept."""
    finished = sorted({*inclusion.blocks, *inclusion.excluded_blocks})
    treatments = dict.fromkeys(treatment for _, treatment in inclusion.chosen)
    return {name: [is_saturated(inclusion.chosen[block, name]) for block in finished] for name in treatments}


def is_result(plan: Plan, run: RunRecord) -> bool:
    """Whether a run is an outcome of its treatment, which is not repeated: valid, or failed by the treatment itself."""
    return run.valid or (plan.study.own_failures != "repeated" and ranks_worst(plan.study.load(run.load), run))


def ranks_worst(load: Load, run: RunRecord) -> bool:
    """Whether a run failed only run checks that the treatment may have failed by itself.

    Any other failure (a proof, a part that ended, a cluster that did not respond) may be the cause. Searches and ramps
    have steps that are expected to fail, and have their own rules for them.
    """
    failed = run.failed_gates
    is_own = all(gate.own for gate in failed) and not run.other_reasons
    return bool(failed) and is_own and not isinstance(load, CapacitySearch | Ramp)


def is_saturated(run: RunRecord) -> bool:
    """Whether a run failed only because its rate was not kept, although the load generator could have."""
    failed = {gate.name for gate in run.failed_gates}
    return bool(failed & RATE_GATES) and failed <= RATE_GATES | {"errors"} and all(p.passed for p in run.proofs)


def runs_table(plan: Plan, records: Iterable[RunRecord]) -> pl.DataFrame:
    """``runs.parquet``: one row per run and response, every attempt, with ``included``."""
    records = list(records)
    inclusion = {load.label: include(plan, records, load.label) for load in plan.study.loads}
    rows: list[dict[str, object]] = []
    for record in records:
        if record.load not in inclusion:
            raise RecordError(f"run {shortened(record.run_id)}: its load {shortened(record.load)} is not in the plan")
        taken = inclusion[record.load]
        is_chosen = taken.chosen.get((record.repetition, record.treatment)) is record
        included = is_chosen and record.repetition in taken.blocks and record.treatment not in taken.excluded
        of_run = run_columns(record, included)
        rows += [
            of_run | {"response": name, "value": value, "bound": record.bounds.get(name)}
            for name, value in sorted(record.responses.items())
        ]
    return frame_of(rows, RESPONSES)
