"""Studies whose runs have responses that a test sets, without other records."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import polars as pl
from building import built

from meshtrial.design.plan import Plan, PlannedRun, make_plan
from meshtrial.inference.rows import LoadFamilies
from meshtrial.records.dataset import RUNS_SCHEMA, StudyData
from meshtrial.records.schema import RunRecord, VerdictRow
from meshtrial.records.tables import Inclusion


def planned(name: str, **given: object) -> Plan:
    """Return the plan of a runnable study with these parameters."""
    return make_plan(built(name, **given))


def study_of(
    plan: Plan,
    responses: Callable[[PlannedRun], Mapping[str, float]],
    included: Callable[[PlannedRun], bool] = lambda run: True,
    runs: Iterable[RunRecord] = (),
) -> StudyData:
    """Return the responses of each run, called in the order of the plan."""
    rows = [
        (
            *(run.run_id, run.load, run.repetition, run.position, run.sequence, run.treatment, "echo", 1, 0.0),
            *(True, included(run), name, value, None),
        )
        for run in plan.runs
        for name, value in responses(run).items()
    ]
    return StudyData(Path("nowhere"), plan, {}, tuple(runs), pl.DataFrame(rows, schema=RUNS_SCHEMA, orient="row"))


def rows_of(data: StudyData) -> list[VerdictRow]:
    """Return the verdicts at its first load, over all blocks."""
    study = data.plan.study
    every = Inclusion({}, tuple(range(1, study.blocks + 1)), {}, {}, ())
    return LoadFamilies(data.plan, data.table, study.loads[0].label, every, study.alpha).verdict_rows()
