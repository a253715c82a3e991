"""The plan's stopping rule, applied to what is recorded: at run time, and again whenever the study is analysed.

Both times the answer comes from the records alone, so the record proves which rule stopped the study and
at which error rate its verdicts are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshtrial import stats
from meshtrial.design.plan import ATTEMPTS, Plan
from meshtrial.inference.rows import LoadFamilies
from meshtrial.records.schema import RunRecord
from meshtrial.records.tables import include, is_result, runs_table


def blocks_in_a_row(plan: Plan, records: Iterable[RunRecord]) -> int:
    """How many blocks, from the first on, have every run recorded, its repeat included where it needed one."""
    done = finished_blocks(plan, records)
    return next((n - 1 for n in range(1, plan.study.blocks + 1) if n not in done), plan.study.blocks)


def finished_blocks(plan: Plan, records: Iterable[RunRecord]) -> frozenset[int]:
    """The blocks whose every run is recorded, wherever they stand in the plan."""
    last: dict[str, int] = {}
    done: set[str] = set()
    for record in records:
        last[record.run_id] = max(record.attempt, last.get(record.run_id, 0))
        if is_result(plan, record):
            done.add(record.run_id)
    open_ones = {run.repetition for run in plan.runs if run.run_id not in done and last.get(run.run_id, 0) < ATTEMPTS}
    return frozenset(range(1, plan.study.blocks + 1)) - open_ones


def decide(plan: Plan, records: Sequence[RunRecord], blocks: int) -> stats.Decision:
    """What the declared rule says after so many finished blocks; records of later ones are not looked at."""
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
    """Whether nothing is left to run: the plan is through, or its rule has stopped it."""
    finished = blocks_in_a_row(plan, records)
    return finished == plan.study.blocks or (finished > 0 and decide(plan, records, finished).stop)
