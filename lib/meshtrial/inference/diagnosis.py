"""Warnings about the data of a family: drift, position, carry-over, warm-up, modes, coarse values, mixed versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshtrial import stats
from meshtrial.design.responses import Response
from meshtrial.design.study import Study, Treatment
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import place_of_block
from meshtrial.records.schema import RunRecord

HALVES = ("latency_p50_first_half_s", "latency_p50_second_half_s")


# How exact the time from a change is.
_OF_CHANGES = (
    "a run's time",
    "it holds one interval between two sends (raise rps) and half of what the change itself took",
)


def diagnose_family(
    runs: LoadBlocks, response: Response, study: Study, values: Mapping[str, FloatArray], places: Mapping[int, str]
) -> tuple[stats.Warning, ...]:
    """Everything that the order of the runs and the grain of the numbers may hide behind a family's verdicts."""
    baseline, twin = study.baseline.name, study.twin.name if study.twin else None
    positive = _positive(values)
    if baseline not in positive:
        return ()
    names = list(positive)
    positions, times = (runs.values(names, response.name, column) for column in ("position", "start_unix_s"))
    levelled = _on_one_level(positive, runs.blocks, places)
    warnings = stats.diagnose(levelled, baseline, positions=positions, times=times, twin=twin)
    warnings += stats.repeated_values(np.concatenate([v[np.isfinite(v)] for v in positive.values()]))
    margin = study.margins.get(response.name)
    bounds = runs.values([baseline], response.name, "bound")[baseline]
    if margin is not None and np.isfinite(bounds).any():
        typical = float(np.nanmedian(positive[baseline]))
        effective = max(margin.relative, margin.floor / typical)
        words = _OF_CHANGES if response.name.startswith("propagation_") else ()
        warnings += stats.coarse_quantile(float(np.nanmax(bounds)), typical, effective, *words)
    if response.name.startswith("latency_"):
        warnings += _warm_up(runs, names)
    return warnings


def drift_of(data: StudyData, load: str, response: str) -> stats.Drift | None:
    """How far the included runs of a response moved over a study; None where its baseline has too few of them."""
    runs, study = LoadBlocks.of(data.table, load), data.plan.study
    values = _positive(runs.values([treatment.name for treatment in study.treatments], response))
    values = {name: own for name, own in values.items() if np.isfinite(own).sum() >= stats.FEWEST_VALUES}
    if study.baseline.name not in values:
        return None
    levelled = _on_one_level(values, runs.blocks, place_of_block(data.plan, data.environment))
    return stats.drift_of(levelled, runs.values(list(values), response, "start_unix_s"))


def _positive(values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Logs say nothing of a treatment whose values are not all positive."""
    return {name: own for name, own in values.items() if np.isfinite(own).any() and np.nanmin(own) > 0}


def _on_one_level(
    values: Mapping[str, FloatArray], blocks: Sequence[int], places: Mapping[int, str]
) -> Mapping[str, FloatArray]:
    """The values without what a place does to each treatment: two clusters are no machine in two states."""
    if not places:
        return values
    names = np.array([places.get(block, "") for block in blocks])
    levelled = {treatment: own.copy() for treatment, own in values.items()}
    for own in levelled.values():
        typical = np.nanmedian(own)
        for name in np.unique(names):
            here = (names == name) & np.isfinite(own)
            if here.any():
                own[here] *= typical / np.median(own[here])
    return levelled


def _warm_up(runs: LoadBlocks, names: Sequence[str]) -> tuple[stats.Warning, ...]:
    first, second = (np.concatenate([*runs.values(names, half).values(), np.empty(0)]) for half in HALVES)
    both = np.isfinite(first) & np.isfinite(second)
    return stats.warm_up(first[both], second[both]) if both.sum() >= 2 else ()


def varying_versions(records: Iterable[RunRecord]) -> tuple[stats.Warning, ...]:
    """A component whose version is not the same in all runs of a treatment: the study compares versions too."""
    kept = [record for record in records if record.versions]
    names = sorted({name for record in kept for name in record.versions})
    groups = [record.treatment for record in kept]
    factors = {f"version of {name}": [record.versions.get(name, "absent") for record in kept] for name in names}
    return stats.varying_factors(groups, factors) if kept else ()


def ran(records: Iterable[RunRecord]) -> dict[Treatment, dict[str, set[str]]]:
    """Every version that the runs of a treatment recorded, by what it is of.

    What is called by the treatment's own version (``mesh istio@1.30``, ``version old``) loses it, so that it is called
    the same in all versions.
    """
    versions: dict[Treatment, dict[str, set[str]]] = {}
    for record in records:
        treatment = Treatment.parse(record.treatment)
        for name, version in record.versions.items():
            ending = treatment.version and next((e for e in "@ " if name.endswith(e + treatment.version)), "")
            what = name.removesuffix(ending + treatment.version) if ending else name
            versions.setdefault(treatment, {}).setdefault(what, set()).add(version)
    return versions


def same_versions(records: Iterable[RunRecord]) -> tuple[stats.Warning, ...]:
    """Treatments that differ in their version alone and of which everything recorded is the same."""
    # A mesh's version is as it is declared, so it is no evidence; a twin is the same on purpose.
    told = {
        treatment: {what: versions for what, versions in several.items() if not what.startswith("mesh ")}
        for treatment, several in ran(records).items()
        if not treatment.twin
    }
    return tuple(
        stats.Warning(
            "same-version",
            f"{one.name} and {other.name} ran the same programs, images, charts and values: nothing that is recorded "
            "tells them apart",
        )
        for one, other in itertools.combinations(told, 2)
        if replace(one, version="") == replace(other, version="") and told[one] == told[other]
    )
