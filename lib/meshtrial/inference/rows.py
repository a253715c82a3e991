"""Families of contrasts, and the rows of ``verdicts.json`` that they give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from meshtrial import stats
from meshtrial.inference.diagnosis import diagnose_family
from meshtrial.inference.values import FloatArray, block_values
from meshtrial.plan import Plan
from meshtrial.records.schema import VerdictRow
from meshtrial.records.tables import Inclusion
from meshtrial.responses import REGISTRY, Response, applies
from meshtrial.stats.verdict import Kind
from meshtrial.study import Contrast, Load

_KINDS: dict[str, Kind] = {"latency": "latency", "resource": "resource"}


def verdict_rows(plan: Plan, table: pl.DataFrame, load: str, inclusion: Inclusion, alpha: float) -> list[VerdictRow]:
    """Every response that gets a verdict at one load: primary first, then exploratory."""
    study = plan.study
    measured = set(table.filter(pl.col("load") == load)["response"].unique().to_list())
    names = _primary(plan, load)
    asked = load_of(plan, load)
    names += [
        name
        for name in REGISTRY
        if name in study.margins and name in measured and name not in names and applies(name, asked)
    ]
    rows: list[VerdictRow] = []
    for name in names:
        rows += _family_rows(plan, table, load, REGISTRY[name], inclusion, alpha)
    return rows


def primary_results(
    plan: Plan, table: pl.DataFrame, load: str, inclusion: Inclusion, alpha: float
) -> list[tuple[str, stats.ContrastResult]]:
    """Results of the primary families at one load, the twin left out: what a stopping rule may look at."""
    found: list[tuple[str, stats.ContrastResult]] = []
    for name in _primary(plan, load):
        values = _values(plan, table, load, name, inclusion)
        for result in _results(plan, REGISTRY[name], inclusion, values, alpha):
            if result.role != "a/a":
                found.append((name, result))
    return found


def load_of(plan: Plan, label: str) -> Load:
    """The load with this label."""
    return next(load for load in plan.study.loads if load.label == label)


def _primary(plan: Plan, load: str) -> list[str]:
    return [name for name in plan.study.primary if applies(name, load_of(plan, load))]


def _family_rows(
    plan: Plan, table: pl.DataFrame, load: str, response: Response, inclusion: Inclusion, alpha: float
) -> list[VerdictRow]:
    study = plan.study
    values = _values(plan, table, load, response.name, inclusion)
    medians = {name: _median(found) for name, found in values.items()}
    results = _results(plan, response, inclusion, values, alpha)
    found = diagnose_family(table, load, response, values, study.baseline.name, inclusion.blocks, study.margins)
    said = tuple(f"{w.code}: {w.message}" for w in found)
    rows = [_row(plan, load, response, result, medians) for result in results]
    return [replace(row, warnings=(*row.warnings, *said)) for row in rows]


def _values(plan: Plan, table: pl.DataFrame, load: str, response: str, inclusion: Inclusion) -> dict[str, FloatArray]:
    return block_values(table, load, response, [t.name for t in plan.study.treatments], inclusion.blocks)


def _results(
    plan: Plan, response: Response, inclusion: Inclusion, values: Mapping[str, FloatArray], alpha: float
) -> list[stats.ContrastResult]:
    """Ratios where the baseline is positive, differences where it has no such part at all."""
    groups: dict[stats.Scale, list[Contrast]] = {"ratio": [], "difference": []}
    for contrast in plan.study.all_contrasts():
        groups["difference" if _without(response, values[contrast.baseline]) else "ratio"].append(contrast)
    found: list[stats.ContrastResult] = []
    for scale, members in groups.items():
        if members:
            found += _analysed(plan, response, inclusion, values, members, scale, alpha)
    return found


def _without(response: Response, values: FloatArray) -> bool:
    return response.structural_zero and values.size > 0 and bool(np.all(values == 0))


def _analysed(
    plan: Plan,
    response: Response,
    inclusion: Inclusion,
    values: Mapping[str, FloatArray],
    members: Sequence[Contrast],
    scale: stats.Scale,
    alpha: float,
) -> tuple[stats.ContrastResult, ...]:
    study = plan.study
    # Two arms that both lack the part say nothing about noise, also where other contrasts are ratios.
    twin = None if scale == "difference" or _without(response, values[study.baseline.name]) else study.twin
    declared = study.margins.get(response.name)
    # A margin relative to zero means nothing: without a floor a structurally zero baseline has no equivalence test.
    margin = stats.Margin(declared.relative, declared.floor or None) if declared and scale == "ratio" else None
    invalid = {arm: _why(inclusion, arm) for arm, state in inclusion.set_aside.items() if state == "invalid"}
    saturated = {arm: _why(inclusion, arm) for arm, state in inclusion.set_aside.items() if state == "saturated"}
    for arm, found in values.items():
        # An arm without this response (too few requests for its quantile) must not take the others' blocks.
        if arm not in inclusion.set_aside and (found.size == 0 or np.isnan(found).all()):
            invalid[arm] = _not_measured(plan, response) if found.size else "no complete block"
    return stats.analyse_family(
        dict(values),
        study.baseline.name,
        twin=twin.name if twin else None,
        contrasts=[(c.treatment, c.baseline) for c in members],
        alpha=alpha,
        margin=margin,
        kind=_KINDS.get(response.kind, "level"),
        primary=response.name in study.primary,
        scale=scale,
        # One family, though its contrasts may lie on two scales: all of them count in the correction.
        m_family=len(study.all_contrasts()),
        # With no arm left there are no values for the labels to belong to.
        blocks=list(inclusion.blocks) if len({*invalid, *saturated}) < len(values) else [],
        invalid=invalid,
        saturated=saturated,
    )


def _not_measured(plan: Plan, response: Response) -> str:
    floor = plan.study.gates.sample_floor
    if response.name.startswith("latency_"):
        return (
            f"not reported: fewer than {floor:g} requests lie beyond this quantile; measure longer or at a higher rate"
        )
    return "not measured on this backend"


def _why(inclusion: Inclusion, arm: str) -> str:
    failed = [run for (_, name), run in inclusion.chosen.items() if name == arm and not run.valid]
    return failed[0].reasons[0] if failed and failed[0].reasons else "gates or proofs failed"


def _row(
    plan: Plan, load: str, response: Response, result: stats.ContrastResult, medians: Mapping[str, float | None]
) -> VerdictRow:
    c, study = result.comparison, plan.study
    ratio = c is not None and c.scale == "ratio"
    primary = response.name in study.primary
    difference = None if c is None else c.difference
    to_ms = response.kind == "latency" and difference is not None
    verdict = result.verdict
    return VerdictRow(
        study=study.name,
        load=load,
        response=response.name,
        label=response.label,
        unit=response.unit,
        treatment=result.treatment,
        baseline=result.baseline,
        twin=result.role == "a/a",
        exploratory=not primary,
        n_blocks=0 if c is None else c.n,
        ratio=c.estimate if c is not None and ratio else None,
        ci_low=c.ci_low if c is not None and ratio else None,
        ci_high=c.ci_high if c is not None and ratio else None,
        confidence=None if c is None else c.confidence,
        difference=difference,
        difference_low=None if c is None else _finite(c.difference_low),
        difference_high=None if c is None else _finite(c.difference_high),
        difference_ms=difference * 1e3 if to_ms and difference is not None else None,
        baseline_value=medians.get(result.baseline),
        treatment_value=medians.get(result.treatment),
        p=None if c is None else c.p,
        p_holm=result.p_adjusted,
        p_equivalence=None if c is None else c.p_equivalence,
        p_equivalence_holm=result.p_equivalence_adjusted,
        margin=None if c is None or c.margin_high is None else c.margin_high - c.no_effect,
        noise_floor=None if result.noise is None else result.noise.floor,
        mde=None if c is None else c.mde,
        blocks_needed=verdict.more,
        verdict=verdict.label,
        qualifier=verdict.qualifier,
        sentence=verdict.text,
        method="" if c is None else c.method,
        warnings=tuple(f"{w.code}: {w.message}" for w in result.warnings),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _median(found: FloatArray) -> float | None:
    kept = found[~np.isnan(found)]
    return float(np.median(kept)) if kept.size else None
