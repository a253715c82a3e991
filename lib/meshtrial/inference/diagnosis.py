"""Warnings about a family's data: drift, position, carry-over, warm-up, modes, coarse values, mixed versions."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshtrial import stats
from meshtrial.design.responses import Response
from meshtrial.design.study import Study, Treatment
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import session_of_block
from meshtrial.records.schema import RunRecord

HALVES = ("latency_p50_first_half_s", "latency_p50_second_half_s")


# Subject and remedy of a coarse time from a change.
_CHANGE_TIME = (
    "a run's time",
    "it includes one interval between two sends (raise rps) and half of the time that the change itself took",
)


def diagnose_family(
    runs: LoadBlocks, response: Response, study: Study, values: Mapping[str, FloatArray], sessions: Mapping[int, str]
) -> tuple[stats.Warning, ...]:
    """Return warnings about what the order of the runs and the resolution of the numbers may hide."""
    baseline, twin = study.baseline.name, study.twin.name if study.twin else None
    positive = _positive(values)
    if baseline not in positive:
        return ()
    names = list(positive)
    positions, times = (runs.values(names, response.name, column) for column in ("position", "start_unix_s"))
    at_one_level = _without_sessions(positive, runs.blocks, sessions)
    warnings = stats.diagnose(at_one_level, baseline, positions=positions, times=times, twin=twin)
    warnings += stats.repeated_values(np.concatenate([v[np.isfinite(v)] for v in positive.values()]))
    margin = study.margins.get(response.name)
    bounds = runs.values([baseline], response.name, "bound")[baseline]
    if margin is not None and np.isfinite(bounds).any():
        typical = float(np.nanmedian(positive[baseline]))
        effective = max(margin.relative, margin.floor / typical)
        words = _CHANGE_TIME if response.name.startswith("propagation_") else ()
        warnings += stats.coarse_quantile(float(np.nanmax(bounds)), typical, effective, *words)
    if response.name.startswith("latency_"):
        first, second = (np.concatenate([*runs.values(names, half).values(), np.empty(0)]) for half in HALVES)
        both = np.isfinite(first) & np.isfinite(second)
        warnings += stats.warm_up(first[both], second[both]) if both.sum() >= 2 else ()
    return warnings


def drift_of(data: StudyData, load: str, response: str) -> stats.Drift | None:
    """Return the drift of a response's included runs over a study; None if its baseline has too few of them."""
    runs, study = LoadBlocks.of(data.table, load), data.plan.study
    values = _positive(runs.values([treatment.name for treatment in study.treatments], response))
    values = {name: own for name, own in values.items() if np.isfinite(own).sum() >= stats.FEWEST_VALUES}
    if study.baseline.name not in values:
        return None
    at_one_level = _without_sessions(values, runs.blocks, session_of_block(data.plan, data.environment))
    return stats.drift_of(at_one_level, runs.values(list(values), response, "start_unix_s"))


def _positive(values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the treatments whose values are all positive, so that they have logarithms."""
    return {name: own for name, own in values.items() if np.isfinite(own).any() and np.nanmin(own) > 0}


def _without_sessions(
    values: Mapping[str, FloatArray], blocks: Sequence[int], sessions: Mapping[int, str]
) -> Mapping[str, FloatArray]:
    """Return the values without the effect of each session or place on a treatment: two clusters are not two states."""
    if not sessions:
        return values
    names = np.array([sessions.get(block, "") for block in blocks])
    at_one_level = {treatment: own.copy() for treatment, own in values.items()}
    for own in at_one_level.values():
        typical = np.nanmedian(own)
        for name in np.unique(names):
            here = (names == name) & np.isfinite(own)
            if here.any():
                own[here] *= typical / np.median(own[here])
    return at_one_level


def varying_versions(records: Iterable[RunRecord]) -> tuple[stats.Warning, ...]:
    """Warn of components whose version is not the same in all runs of a treatment."""
    kept = [record for record in records if record.versions]
    names = sorted({name for record in kept for name in record.versions})
    groups = [record.treatment for record in kept]
    factors = {f"version of {name}": [record.versions.get(name, "absent") for record in kept] for name in names}
    return stats.varying_factors(groups, factors) if kept else ()


def versions_of(records: Iterable[RunRecord]) -> dict[Treatment, dict[str, set[str]]]:
    """Return every version that the runs of a treatment recorded, by component.

    A component that is named after the treatment's own version (``mesh istio@1.30``, ``version old``) loses that part,
    so that it has the same name in all versions.
    """
    versions: dict[Treatment, dict[str, set[str]]] = {}
    for record in records:
        treatment = Treatment.parse(record.treatment)
        for name, version in record.versions.items():
            ending = treatment.version and next((e for e in "@ " if name.endswith(e + treatment.version)), "")
            component = name.removesuffix(ending + treatment.version) if ending else name
            versions.setdefault(treatment, {}).setdefault(component, set()).add(version)
    return versions


def same_versions(records: Iterable[RunRecord]) -> tuple[stats.Warning, ...]:
    """Warn of treatments that differ in their version alone and whose recorded components are all the same."""
    # A mesh's version is declared and therefore no evidence; a twin is the same on purpose.
    recorded = {
        treatment: {name: versions for name, versions in components.items() if not name.startswith("mesh ")}
        for treatment, components in versions_of(records).items()
        if not treatment.twin
    }
    return tuple(
        stats.Warning(
            "same-version",
            f"{one.name} and {other.name} ran the same programs, images, charts and values: nothing recorded "
            "distinguishes them",
        )
        for one, other in itertools.combinations(recorded, 2)
        if replace(one, version="") == replace(other, version="") and recorded[one] == recorded[other]
    )
