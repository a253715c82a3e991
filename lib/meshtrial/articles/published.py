"""The numbers that published comparisons print, run through the same inference as a study of one's own.

Opinion: what was repeated is tested, at the n that it has; what was printed once, or as a mean alone, has no noise to
be held against and is only checked as arithmetic. Limits: the runs behind a printed mean, the order of the runs and
what was discarded cannot be brought back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl

from meshtrial import paths, stats
from meshtrial.compare.analysis import Outcome, analyse
from meshtrial.compare.pairing import blocks_of_table
from meshtrial.compare.request import metrics_of
from meshtrial.compare.runs import Run, Sample
from meshtrial.compare.tables import choose, read_table
from meshtrial.errors import UsageError
from meshtrial.margin import Margin

FOLDER = paths.CHECKOUT / "data" / "published"
AMBIENT, LINKERD, SCALE = "ambient_2024.csv", "linkerd_istio_2021.csv", "cpu_at_scale_2019.csv"
FEATURES, SIDECARLESS = "features_2022.csv", "linkerd_ambient_2025.csv"
FILES = (AMBIENT, LINKERD, SCALE, FEATURES, SIDECARLESS)
# Printed beside the latencies to say under which conditions they were measured: no outcome of a treatment.
CONDITIONS = ("achieved_rps", "service_cpu")
REPEATED = ("details, old app", "details, new app")
METRICS = "p50,p99,mean,p75,p90"


@dataclass(frozen=True)
class Settings:
    """What the re-analysis is held to."""

    alpha: float = 0.05  # error level of a family
    margin: float = 0.05  # relative, of every response; no absolute floor, because the articles argue about per cent

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5 or not 0 < self.margin < 1:
            raise UsageError(f"alpha = {self.alpha} must be between 0 and 0.5, margin = {self.margin} between 0 and 1")


@dataclass(frozen=True)
class Needed:
    """What a repeated response would have needed: pairs to find such an effect, or to show equivalence."""

    experiment: str
    response: str
    n: int  # pairs printed
    ratio: float  # Hodges-Lehmann estimate of ambient over none
    sd: float  # standard deviation of the log ratios, from n pairs only
    for_estimate: int | None  # an effect as large as the estimate; None where that is 1
    for_margin: int  # as large as the margin
    for_equivalence: int  # within the margin


@dataclass(frozen=True)
class Single:
    """A number printed without a replicate, beside its baseline's."""

    experiment: str
    response: str
    treatment: str
    baseline: str
    value: float
    baseline_value: float
    unit: str
    statistic: str
    source: str

    @property
    def ratio(self) -> float:
        """Arithmetic, and no estimate."""
        return self.value / self.baseline_value


def read(*names: str) -> pl.DataFrame:
    """The transcribed rows of these files, or of all."""
    unknown = [name for name in names if name not in FILES]
    if unknown:
        raise UsageError(f"{', '.join(unknown)}: not in data/published; there are {', '.join(FILES)}")
    frames = [
        pl.read_csv(FOLDER / name, infer_schema=False).with_columns(pl.lit(name).alias("file"))
        for name in names or FILES
    ]
    return pl.concat(frames).with_columns(pl.col("value").cast(pl.Float64))


def sources() -> pl.DataFrame:
    """One row per file: where it was printed, how many numbers, and how many of them are runs that were repeated."""
    repeated = pl.col("statistic").str.contains("paired runs")
    return (
        read()
        .group_by("file", "source", "url", maintain_order=True)
        .agg(pl.len().alias("numbers"), repeated.sum().alias("of repeated runs"))
    )


def repeated(experiment: str, settings: Settings) -> Outcome:
    """One experiment whose runs were printed, three pairs, through the paired analysis."""
    return _analyse(_printed_runs(experiment), settings)


def both_apps(settings: Settings) -> Outcome:
    """The six pairs of both apps as one question: asked after the numbers were seen, so a hint and no more."""
    by_treatment: dict[str, list[Run]] = {}
    for experiment in REPEATED:
        for name, runs in _printed_runs(experiment).items():
            by_treatment.setdefault(name, []).extend(replace(run, block=f"{experiment} {run.block}") for run in runs)
    return _analyse(by_treatment, settings)


def needed(settings: Settings) -> tuple[Needed, ...]:
    """How many pairs each repeated response would have needed, at the noise that its three pairs show."""
    found = []
    half = math.log1p(settings.margin)
    for experiment in REPEATED:
        by_treatment = _printed_runs(experiment)
        for metric in metrics_of(METRICS):
            treatment, baseline = (
                np.array([run.values[metric.name] for run in by_treatment[a]]) for a in ("ambient", "none")
            )
            c = stats.compare_paired(treatment, baseline, alpha=settings.alpha)
            effect = abs(math.log(c.estimate))
            pairs = partial(stats.blocks_for_difference, c.sd, alpha=settings.alpha)
            for_estimate = pairs(effect) if effect > 1e-9 else None
            for_equivalence = stats.blocks_for_equivalence(c.sd, half, alpha=settings.alpha)
            about = (experiment, metric.label, c.n, c.estimate, c.sd)
            found.append(Needed(*about, for_estimate, pairs(half), for_equivalence))
    return tuple(found)


def singles(*names: str) -> tuple[Single, ...]:
    """Every number without a replicate that has a counterpart, of these files or of all.

    Its ratio is arithmetic and not an estimate.
    """
    rows = read(*names).filter(~pl.col("statistic").str.contains("paired runs"), ~pl.col("response").is_in(CONDITIONS))
    found = []
    for keys, part in rows.group_by("experiment", "response", maintain_order=True):
        values = {row["treatment"]: row for row in part.iter_rows(named=True)}
        # Where no mesh was printed the two meshes are held against each other, or a feature against its mesh.
        baseline = next((name for name in ("none", "istio") if name in values), min(values, key=len))
        for name, row in values.items():
            if name != baseline and baseline in values:
                printed = (row[column] for column in ("unit", "statistic", "source"))
                between = (name, baseline, row["value"], values[baseline]["value"])
                found.append(Single(str(keys[0]), str(keys[1]), *between, *printed))
    return tuple(found)


def value(file: str, experiment: str, treatment: str, response: str) -> float:
    """One printed number of a file."""
    column = values(file, experiment, treatment, response)
    if len(column) != 1:
        raise UsageError(f"{file}: {experiment}, {treatment}, {response} stands {len(column)} times")
    return column[0]


def values(file: str, experiment: str, treatment: str, response: str) -> list[float]:
    """The printed numbers of an experiment, in the order of the runs."""
    rows = read(file).filter(experiment=experiment, treatment=treatment, response=response)
    if rows.is_empty():
        raise UsageError(f"{file}: {experiment}, {treatment}, {response} is not printed there")
    return [float(x) for x in rows["value"].to_list()]


def _printed_runs(experiment: str) -> dict[str, list[Run]]:
    path = FOLDER / AMBIENT
    found, _ = read_table(path, [("experiment", experiment)])
    return choose(found, path, "none", ["ambient"])


def _analyse(by_treatment: dict[str, list[Run]], settings: Settings) -> Outcome:
    metrics = metrics_of(METRICS)
    sample = Sample(by_treatment, "none", blocks_of_table(by_treatment), "paired as printed")
    margins = {metric.name: Margin(settings.margin) for metric in metrics}
    return analyse(sample, metrics, margins, alpha=settings.alpha)
