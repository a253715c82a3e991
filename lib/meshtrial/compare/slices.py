"""How a deployment's time is best split into slices (Kalibera & Jones 2013, section 6.2).

A slice averages out what varies inside a deployment, never what varies between two. Both parts are known only from a
study that measured several slices of each deployment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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


@dataclass(frozen=True)
class Asked:
    """The contrast that a plan is made for.

    Attributes
    ----------
    response, load : str
    pair : tuple of str
        Treatment and baseline.
    sd : float
        Standard deviation of its block differences.
    ratio : float
        The margin as a ratio.
    seconds_per_run : float
    treatments : int
        Runs of a block.
    m_family : int
        Contrasts of the family.
    alpha, power : float
    """

    response: str
    load: str
    pair: tuple[str, str]
    sd: float
    ratio: float
    seconds_per_run: float
    treatments: int
    m_family: int
    alpha: float
    power: float


def split_of(data: StudyData, inclusion: Inclusion, asked: Asked) -> Slices | str:
    """The split of one load's deployments, or why there is none."""
    spec = next(one for one in data.plan.study.loads if one.label == asked.load)
    if spec.slices < 2:
        return (
            "recorded with one slice a deployment, so how many are worth their time cannot be told from it; record a "
            "pilot whose load has several"
        )
    if not _SLICED.fullmatch(asked.response):
        return "slices are recorded for latencies only"
    runs = [run for (block, arm), run in inclusion.chosen.items() if arm in asked.pair and block in inclusion.blocks]
    deployments = [values for run in runs if len(values := _by_slice(data, run, asked.response)) > 1]
    if len(deployments) < 2:
        return "fewer than 2 deployments have the response in every slice: lengthen the slices"
    within = stats.variance_components([np.asarray(values) for values in deployments]).within
    # Blocks take their own part out of a difference, so the variance between deployments is what is left of it.
    between = max(0.0, asked.sd**2 / 2 - within / spec.slices)
    parts = stats.VarianceComponents(between, within, 0.0, len(deployments), spec.slices)
    inner_s = spec.duration_s
    outer_s = max(0.0, asked.seconds_per_run - spec.slices * inner_s)
    budget = stats.Budget(asked.treatments, asked.m_family, outer_s, inner_s, asked.alpha, asked.power)
    best = stats.best_slices(parts, outer_s, inner_s)
    options: dict[int, tuple[int, float]] = {}
    for count in sorted({1, spec.slices, best}):
        cost = stats.cost_of_margin(parts, asked.ratio, budget, slices=count)
        options[count] = (cost.blocks_difference, cost.seconds_difference)
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
