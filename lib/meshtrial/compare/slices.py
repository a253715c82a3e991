"""How a deployment's time is best split into slices (Kalibera & Jones 2013, section 6.2).

A slice averages out what varies inside a deployment, never what varies between two. Both parts are known only from a
study that measured several slices of each deployment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from meshtrial import stats
from meshtrial.errors import RecordError
from meshtrial.load.merge import successful
from meshtrial.load.quantiles import exact
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.tables import Inclusion
from meshtrial.responses import QUANTILES

_SLICED = re.compile(r"latency_(?P<corrected>corrected_)?(?P<what>p\d+|mean)_s")


@dataclass(frozen=True)
class Slices:
    """How to split a deployment's time.

    Attributes
    ----------
    recorded, best : int
        Slices a deployment in the study, and the cheapest number.
    between, within : float
        Variance of logs between deployments (inside their block) and between the slices of one.
    outer_s, inner_s : float
        What a deployment costs beside its slices, and what a slice costs.
    options : mapping of int to (int, float)
        Slices to the blocks that they would need and the seconds that these would take.
    """

    recorded: int
    best: int
    between: float
    within: float
    outer_s: float
    inner_s: float
    options: Mapping[int, tuple[int, float]]


def split_of(
    data: StudyData,
    inclusion: Inclusion,
    load: str,
    pair: tuple[str, str],
    response: str,
    sd: float,
    seconds_per_run: float,
    arms: int,
    blocks_for: Callable[[float], int],
) -> Slices | str:
    """The split of one load's deployments, or why there is none.

    Parameters
    ----------
    data : StudyData
    inclusion : Inclusion
    load : str
    pair : tuple of str
        Treatment and baseline of the contrast that the plan is made for.
    response : str
    sd : float
        Standard deviation of its block differences.
    seconds_per_run : float
    arms : int
        Runs of a block.
    blocks_for : callable
        Standard deviation of block differences to the blocks that are needed.
    """
    spec = next(one for one in data.plan.study.loads if one.label == load)
    if spec.slices < 2:
        return (
            "recorded with one slice a deployment, so how many are worth their time cannot be told from it; record a "
            "pilot whose load has several"
        )
    if not _SLICED.fullmatch(response):
        return "slices are recorded for latencies only"
    runs = [run for (block, arm), run in inclusion.chosen.items() if arm in pair and block in inclusion.blocks]
    deployments = [values for run in runs if len(values := _by_slice(data, run, response)) > 1]
    if len(deployments) < 2:
        return "fewer than 2 deployments have the response in every slice: lengthen the slices"
    within = stats.variance_components([np.asarray(values) for values in deployments]).within
    # Blocks take their own part out of a difference, so the variance between deployments is what is left of it.
    between = max(0.0, sd**2 / 2 - within / spec.slices)
    parts = stats.VarianceComponents(between, within, 0.0, len(deployments), float(spec.slices))
    inner_s = spec.duration_s
    outer_s = max(0.0, seconds_per_run - spec.slices * inner_s)
    best = stats.best_slices(parts, outer_s, inner_s)
    options: dict[int, tuple[int, float]] = {}
    for count in sorted({1, spec.slices, best}):
        blocks = blocks_for(math.sqrt(2 * parts.run_variance(count)))
        options[count] = (blocks, stats.study_seconds(blocks, arms, outer_s + count * inner_s))
    return Slices(spec.slices, best, between, within, outer_s, inner_s, options)


def _by_slice(data: StudyData, run: RunRecord, response: str) -> list[float]:
    """Logs of a latency response in each slice of a run; empty where a slice lacks it."""
    requests = data.latency(run)
    found = _SLICED.fullmatch(response)
    if "slice" not in requests.columns or found is None:
        raise RecordError(f"{data.run_folder(run)}: latency.parquet has no column slice; it is of another version")
    column, what = ("corrected_latency_s" if found["corrected"] else "latency_s"), found["what"]
    logs: list[float] = []
    for index in requests["slice"].unique().sort():
        values = successful(requests.filter(pl.col("slice") == index), column).to_numpy()
        if what == "mean":
            value = float(values.mean()) if values.size else None
        else:
            value = exact(values, data.plan.study.gates.sample_floor, wanted={what: QUANTILES[what]}).get(what)
        if value is None or not value > 0:
            return []
        logs.append(math.log(value))
    return logs
