"""Some of a study's treatments and loads: for looking at them; what is judged is always the whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from meshtrial.errors import UsageError
from meshtrial.records.dataset import StudyData


def subset(data: StudyData, treatments: Sequence[str] = (), loads: Sequence[str] = ()) -> StudyData:
    """The rows, runs and verdicts of some treatments and loads, each as it was.

    Parameters
    ----------
    data : StudyData
    treatments, loads : sequence of str, optional
        None is all of them. What the treatments are compared with stays, and so do the study's baseline and its twin.

    Raises
    ------
    UsageError
        For one that the study does not have.
    """
    study = data.plan.study
    named = [treatment.name for treatment in study.treatments]
    labels = [load.label for load in study.loads]
    _known("treatment", treatments, named)
    _known("load", loads, labels)
    kept = set(treatments or named) | {study.baseline.name, *([study.twin.name] if study.twin else [])}
    kept |= {row.baseline for row in data.verdicts if row.treatment in kept}
    at = set(loads or labels)
    # The treatments stay in the plan: a treatment keeps its colour, and a family its size.
    plan = replace(
        data.plan,
        study=replace(study, loads=tuple(load for load in study.loads if load.label in at)),
        runs=tuple(run for run in data.plan.runs if run.treatment in kept and run.load in at),
    )
    return replace(
        data,
        plan=plan,
        runs=tuple(run for run in data.runs if run.treatment in kept and run.load in at),
        table=data.table.filter(pl.col("treatment").is_in(sorted(kept)), pl.col("load").is_in(sorted(at))),
        verdicts=tuple(row for row in data.verdicts if row.treatment in kept and row.load in at),
    )


def _known(what: str, asked: Collection[str], there: Sequence[str]) -> None:
    for name in asked:
        if name not in there:
            raise UsageError(f"{what} {name!r}: is not in this study; there are {', '.join(there)}")
