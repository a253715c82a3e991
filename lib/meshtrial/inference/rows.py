"""Families of contrasts, the rows of ``verdicts.json`` that they give, and parts that can only be described."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from meshtrial import stats
from meshtrial.design.plan import Plan
from meshtrial.design.responses import REGISTRY, Response, applies
from meshtrial.design.study import NO_MESH, Contrast, Study
from meshtrial.inference.diagnosis import diagnose_family
from meshtrial.inference.values import FloatArray, LoadBlocks
from meshtrial.lazy import pl
from meshtrial.margin import Margin
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import VerdictRow
from meshtrial.records.tables import Inclusion, rate_failures
from meshtrial.stats.intervals import median_ranks
from meshtrial.vocabulary import VerdictLabel

CAPACITY = "capacity_rps"


def primary_names(plan: Plan, load: str) -> list[str]:
    """Return the primary responses that apply at one load, as declared."""
    return [name for name in plan.study.primary if applies(name, plan.study.load(load))]


@dataclass(frozen=True)
class LoadFamilies:
    """The families of contrasts at one load."""

    plan: Plan
    table: pl.DataFrame  # run table with all runs
    load: str
    inclusion: Inclusion
    alpha: float
    sessions: Mapping[int, str] = field(default_factory=dict)  # session or place of each block, if there are several

    @cached_property
    def runs(self) -> LoadBlocks:
        """The included runs, by block."""
        return LoadBlocks.of(self.table, self.load, self.inclusion.blocks)

    @property
    def session_count(self) -> int:
        """Number of sessions or places."""
        return len(set(self.sessions.values())) or 1

    def verdict_rows(self) -> list[VerdictRow]:
        """Return the rows of every response that gets a verdict, primary first."""
        study, names = self.plan.study, primary_names(self.plan, self.load)
        measured = {*self.table.filter(pl.col("load") == self.load)["response"].unique()} & {*study.margins}
        others = [n for n in REGISTRY if n in measured and n not in names and applies(n, study.load(self.load))]
        return [row for name in (*names, *others) for row in self._rows(REGISTRY[name])]

    def primary_results(self) -> list[tuple[str, stats.ContrastResult]]:
        """Return the results of the primary families without the twin, for a stopping rule."""
        return [
            (name, result)
            for name in primary_names(self.plan, self.load)
            for _, result in self._results(REGISTRY[name], self._values(name))
            if result.role != "a/a"
        ]

    def _values(self, response: str) -> dict[str, FloatArray]:
        return self.runs.ranked([treatment.name for treatment in self.plan.study.treatments], response)

    def _rows(self, response: Response) -> list[VerdictRow]:
        study, values = self.plan.study, self._values(response.name)
        medians = {name: median_of(own) for name, own in values.items()}
        measured = self.runs.values(list(values), response.name)
        warnings = (*_ranked_worst(values), *diagnose_family(self.runs, response, study, measured, self.sessions))
        return [
            verdict_row(
                result,
                response,
                medians,
                study=study.name,
                load=self.load,
                family=family,
                exploratory=response.name not in study.primary,
                sessions=self.session_count,
                warnings=warnings,
            )
            for family, result in self._results(response, values)
        ]

    def _results(
        self, response: Response, values: Mapping[str, FloatArray]
    ) -> Iterator[tuple[str, stats.ContrastResult]]:
        """Yield the contrasts of one response with their family's name; the twin is with the first family."""
        stopped = self._stopped(response, values)
        lacking = described_only(self.plan.study, response, values)
        for index, (name, declared) in enumerate(self.plan.study.families().items()):
            members = [one for one in declared if not lacking & {one.treatment, one.baseline}]
            if lacking and not members:
                continue
            family = _family(self.plan.study, response, values, members, self.alpha, with_twin=index == 0)
            family = replace(family, unit=self.plan.study.unit(self.session_count))
            for result in stats.analyse_family(
                values,
                family,
                blocks=self.inclusion.blocks,
                stopped=stopped,
                rate_failures=rate_failures(self.inclusion) if self.plan.study.own_failures == "tested" else None,
                sessions=self.sessions,
            ):
                yield name, result

    def _stopped(self, response: Response, values: Mapping[str, FloatArray]) -> dict[str, VerdictLabel]:
        """Return the treatments whose contrasts are not tested, with their verdict."""
        stopped = dict(self.inclusion.excluded)
        for treatment, own in values.items():
            # A treatment without this response (too few requests for its quantile), or with failed runs only, must not
            # exclude the blocks of others. If a capacity search met the generator's limit in some blocks, nothing is
            # compared, because excluding those blocks would select by outcome.
            if not np.isfinite(own).any() or (response.name == CAPACITY and np.isnan(own).any()):
                stopped.setdefault(treatment, VerdictLabel.INVALID)
        return stopped


def _ranked_worst(values: Mapping[str, FloatArray]) -> tuple[stats.Warning, ...]:
    failed = {name: int(np.isinf(own).sum()) for name, own in values.items()}
    if not any(failed.values()):
        return ()
    each = ", ".join(f"{count} of {name}" for name, count in failed.items() if count)
    text = (
        f"runs that failed on their own were ranked last in their block: {each}. Interval ends that depend on their "
        "values are open"
    )
    return (stats.Warning("ranked-worst", text),)


def described_only(study: Study, response: Response, values: Mapping[str, FloatArray]) -> set[str]:
    """Return the treatments without any value because they lack the part, so that no contrast is possible."""
    bare = {treatment.name for treatment in study.treatments if treatment.dataplane == NO_MESH}
    absent = {name for name, own in values.items() if np.isnan(own).all()}
    return bare & absent if response.structural_zero and len(absent) < len(values) else set()


def _family(
    study: Study,
    response: Response,
    values: Mapping[str, FloatArray],
    members: Sequence[Contrast],
    alpha: float,
    *,
    with_twin: bool,
) -> stats.Family:
    """Return the family on the declared scale; by differences for counts and for pairs that lack a part."""
    pairs = [(c.treatment, c.baseline) for c in members]
    differences = [pair for pair in pairs if _lacking(response, *(values[name] for name in pair))]
    lacking = bool(pairs) and len(differences) == len(pairs)
    scale = "difference" if lacking else study.scales.get(response.name, "ratio")
    margin = study.margins.get(response.name)
    # Two treatments that both lack the part show no noise.
    base = values[study.baseline.name]
    without = response.counted or (response.structural_zero and base.size > 0 and not base.any())
    twin = None if not with_twin or without else study.twin
    if twin and _lacking(response, values[twin.name], base):
        differences.append((twin.name, study.baseline.name))
    return stats.Family(
        study.baseline.name,
        twin=twin.name if twin else None,
        contrasts=pairs,
        alpha=alpha,
        margin=usable_margin(margin, scale) if lacking else margin,
        kind=response.kind,
        primary=response.name in study.primary,
        correction=study.correction,
        scale=scale,
        differences=differences,
    )


def _lacking(response: Response, own: FloatArray, base: FloatArray) -> bool:
    # One value that is not positive suffices: its block has no ratio.
    return response.counted or bool((own <= 0).any() or (base <= 0).any())


def usable_margin(margin: Margin | None, scale: stats.Scale) -> Margin | None:
    """Return the margin if a contrast can be tested against it.

    A margin relative to zero means nothing: without a floor a structurally zero baseline has no equivalence test.
    """
    return margin if margin is not None and (scale == "ratio" or margin.floor) else None


def verdict_row(
    result: stats.ContrastResult,
    response: Response,
    medians: Mapping[str, float | None],
    *,
    study: str,
    load: str,
    exploratory: bool,
    family: str = "",
    sessions: int = 0,
    warnings: Sequence[stats.Warning] = (),
) -> VerdictRow:
    """Return a judged contrast as a row of ``verdicts.json``, for a study or a comparison.

    `medians` has the median of every treatment's values, in the response's stored unit; `warnings` are added to the
    result's own.
    """
    verdict, compared = result.verdict, _columns(result.comparison)
    return VerdictRow(
        study=study,
        load=load,
        response=response.name,
        label=response.label,
        unit=response.unit,
        treatment=result.treatment,
        baseline=result.baseline,
        family=family,
        twin=result.role == "a/a",
        exploratory=exploratory,
        sessions=sessions,
        baseline_value=medians.get(result.baseline),
        treatment_value=medians.get(result.treatment),
        p_adjusted=result.p_adjusted,
        adjustment=result.adjustment,
        p_equivalence_adjusted=result.p_equivalence_adjusted,
        p_material_adjusted=result.p_material_adjusted,
        noise_floor=None if result.noise is None else _finite(result.noise.floor),
        blocks_needed=verdict.blocks,
        verdict=verdict.label,
        qualifier=verdict.qualifier,
        warnings=(*result.warnings, *warnings),
        **compared,
    )


def _columns(c: stats.Comparison | None) -> dict[str, Any]:
    """Return the columns of a comparison; every number is empty if nothing could be compared."""
    effect, ratio, difference, against = (
        (None, None, None, None) if c is None else (c.effect, c.ratio, c.difference, c.against)
    )
    return {
        "n_blocks": 0 if c is None else c.n,
        "counted": f"{'block' if c is None else c.unit}s",
        "scale": "ratio" if c is None else c.scale,
        "ratio": ratio and _size(ratio.estimate),
        "ci_low": ratio and _size(ratio.low),
        "ci_high": ratio and _size(ratio.high),
        "difference": difference and _finite(difference.estimate),
        "difference_low": difference and _finite(difference.low),
        "difference_high": difference and _finite(difference.high),
        "confidence": effect and effect.confidence,
        "p": effect and effect.p,
        "margin": c and c.margin,
        "margin_relative": against and against.relative,
        "margin_floor": against and against.floor,
        "p_equivalence": against and against.p_equivalence,
        "p_material": against and against.p_material,
        "mde": c and c.mde,
        "method": "" if c is None else c.method,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _size(ratio: float | None) -> float | None:
    # Ratios of positive values are never 0, but for runs that rank worst and have no size.
    return _finite(ratio) if ratio else None


def median_of(values: FloatArray) -> float | None:
    """Return the median of the finite and infinite values; None if there are none or it is not finite."""
    kept = values[~np.isnan(values)]
    return _finite(float(np.median(kept))) if kept.size else None


@dataclass(frozen=True)
class Described:
    """One treatment's use of a part that others lack."""

    load: str
    response: Response
    treatment: str
    # Median over the included runs and its interval by order statistics, in the response's stored unit
    median: float
    low: float
    high: float
    confidence: float  # achieved by the interval; below 1 - alpha if so few runs cannot reach that
    runs: int


def described(data: StudyData) -> tuple[Described, ...]:
    """Describe parts that some treatments lack, by load, response and treatment.

    No contrast is possible with a treatment that lacks the part (the control plane of no mesh). The others are
    described here and compared with each other.
    """
    study = data.plan.study
    rows = []
    for load in study.loads:
        blocks = LoadBlocks.of(data.table, load.label)
        for response in REGISTRY.values():
            values = blocks.values([treatment.name for treatment in study.treatments], response.name)
            if not described_only(study, response, values):
                continue
            for name, all_values in values.items():
                own = np.sort(all_values[~np.isnan(all_values)])
                if len(own):
                    ends = median_ranks(len(own), study.alpha)
                    low, high = float(own[ends.rank - 1]), float(own[-ends.rank])
                    middle = float(np.median(own))
                    rows.append(Described(load.label, response, name, middle, low, high, ends.confidence, len(own)))
    return tuple(rows)
