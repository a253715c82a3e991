"""A series of studies of one question: where its level changed, and its estimates for programs that watch series.

Opinion: the series of a response at one load, of all contrasts and of the baseline's own level, are one family. If
nothing changes, at most a share alpha of families has a mark. A change that the A/A twin or the baseline's level shares
comes from the machine and not from a treatment.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from meshtrial import stats
from meshtrial.inference.between import Between, Effect
from meshtrial.lazy import pl
from meshtrial.records.dataset import StudyData

TIME, ATTRIBUTES = "time", ("study", "plan")


def levels(compared: Sequence[Between], alpha: float = 0.05) -> list[tuple[stats.LevelChange, ...]]:
    """Return the changes of level of each contrast; an index is a place in its `effects`, in the order of time.

    Levels are means of `Effect.mean`, so they are logarithms for a ratio.
    """

    def family(i: int) -> tuple[str, str]:
        return compared[i].load, compared[i].response

    found: dict[int, tuple[stats.LevelChange, ...]] = {}
    for _, members in groupby(sorted(range(len(compared)), key=family), key=family):
        places = list(members)
        series = [[effect.mean for effect in compared[i].effects] for i in places]
        found |= dict(zip(places, stats.level_changes(series, alpha), strict=True))
    return [found[i] for i in range(len(compared))]


def frame(studies: Sequence[StudyData], compared: Sequence[Between]) -> pl.DataFrame:
    """Return one row per study, in the order given, and one column per contrast, response, load and scale.

    Columns are named ``latency_p50_s sidecar against none at 500rps-10c, ratio``. Differences and values are in SI base
    units. A study without a contrast has an empty cell.
    """
    began = [datetime.datetime.fromtimestamp(data.began_unix_s or 0.0, datetime.UTC) for data in studies]
    names = ([data.path.name for data in studies], [data.plan.sha256 for data in studies])
    columns: dict[str, Any] = {TIME: [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in began]}
    columns |= dict(zip(ATTRIBUTES, names, strict=True))
    for name, scale, effects in _series(compared):
        by_study = {one.study: float(np.exp(one.mean)) if scale == "ratio" else one.mean for one in effects}
        columns[name] = [by_study.get(i) for i in range(len(studies))]
    return pl.DataFrame(columns)


def _series(compared: Sequence[Between]) -> Iterator[tuple[str, str, Sequence[Effect]]]:
    for one in compared:
        of = f"{one.treatment} against {one.baseline}" if one.baseline else one.treatment
        name = f"{one.response} {of} at {one.load}"
        if not one.baseline:
            # Values of a baseline are averaged as logarithms, too.
            yield f"{name}, value", one.scale, one.effects
            continue
        yield f"{name}, {one.scale}", one.scale, one.effects
        if one.added_effects:
            yield f"{name}, difference", "difference", one.added_effects


def otava_tests(name: str, table: Path, series: pl.DataFrame) -> dict[str, Any]:
    """Return the configuration with which Apache Otava reads the table of `frame` from a file.

    It lists the columns that every study has, because Otava reads no empty cell.
    """
    metrics = {
        column: {"column": column, "direction": -1, "scale": 1}
        for column in series.columns
        if column not in (TIME, *ATTRIBUTES) and not series[column].null_count()
    }
    test = {"type": "csv", "file": str(table), "time_column": TIME, "attributes": [*ATTRIBUTES], "metrics": metrics}
    return {"tests": {name: test}}
