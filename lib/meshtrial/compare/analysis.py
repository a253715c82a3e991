"""From a sample to verdict rows: a family a metric, compared, corrected and judged by `meshtrial.stats`.

Opinion: the first three metrics are the question and are corrected by Holm; whatever is asked beyond them is
exploratory (METHOD: at most three primary responses). Here both were chosen after the runs, which no correction sees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshtrial import stats
from meshtrial.compare.limits import limit_sentences
from meshtrial.compare.rows import verdict_row
from meshtrial.compare.runs import Finding, Run, Sample
from meshtrial.errors import UsageError
from meshtrial.load.quantiles import requests_needed
from meshtrial.records.schema import VerdictRow
from meshtrial.responses import QUANTILES, Response
from meshtrial.stats.comparison import Scale
from meshtrial.stats.verdict import Kind
from meshtrial.study import TWIN_SUFFIX

MOST_PRIMARY = 3
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """What a comparison came to.

    Attributes
    ----------
    sample : Sample
    limits : tuple of str
        The smallest possible p, to be said first.
    metrics : tuple of Response
        Those that could be compared.
    rows : tuple of VerdictRow
        A row a metric and treatment; the A/A twin's stand last in their metric.
    findings : tuple of Finding
        Of the sample, and why a metric was withheld.
    alpha : float
    """

    sample: Sample
    limits: tuple[str, ...]
    metrics: tuple[Response, ...]
    rows: tuple[VerdictRow, ...]
    findings: tuple[Finding, ...]
    alpha: float


def analyse(
    sample: Sample,
    metrics: Sequence[Response],
    margins: Mapping[str, stats.Margin],
    *,
    alpha: float = 0.05,
    sample_floor: float = 0.0,
) -> Outcome:
    """Judge every metric of every treatment.

    Parameters
    ----------
    sample : Sample
    metrics : sequence of Response
    margins : mapping of str to Margin
    alpha : float
    sample_floor : float
        Only for the message about a quantile that was not reported.

    Raises
    ------
    UsageError
        Where no metric is left, or a value cannot be compared.
    """
    twin = sample.baseline + TWIN_SUFFIX
    twin = twin if twin in sample.arms and len(sample.treatments) > 1 else ""
    family = [name for name in sample.treatments if name != twin]
    findings, kept = list(sample.findings), []
    for metric in metrics:
        withheld = _withheld(sample, metric, sample_floor)
        if withheld:
            findings.append(Finding("not-reported", withheld, False))
        else:
            kept.append(metric)
    if not kept:
        reasons = "; ".join(f.message for f in findings if f.code == "not-reported")
        raise UsageError(f"nothing to compare: {reasons}")
    rows: list[VerdictRow] = []
    for place, metric in enumerate(metrics):
        if metric in kept:
            rows += _family(sample, metric, margins.get(metric.name), family, twin, alpha, place < MOST_PRIMARY)
    limits = limit_sentences(sample, family, alpha)
    return Outcome(sample, tuple(limits), tuple(kept), tuple(rows), tuple(findings), alpha)


def _withheld(sample: Sample, metric: Response, sample_floor: float) -> str:
    """Why a metric cannot be compared; empty where it can."""
    lacking = [run for run in sample.runs if metric.name not in run.values]
    # A table's incomplete block leaves the inference as a whole; a file without the response stands for all of them.
    if not lacking or (sample.paired and lacking[0].kind == "table" and len(lacking) < len(sample.runs)):
        return ""
    run = lacking[0]
    q = next((q for name, q in QUANTILES.items() if metric.name == f"latency_{name}_s"), None)
    if q is not None and run.requests is not None:
        return (
            f"{metric.label} is not reported: it needs {requests_needed(q, sample_floor)} good requests in every run, "
            f"{run.name} has {run.requests}; measure longer, or lower --sample-floor and trust it less"
        )
    if len(lacking) == len(sample.runs):
        has = sorted({name for other in sample.runs for name in other.values})
        return f"{metric.label} ({metric.name}) is in no run; there are {', '.join(has)}"
    return f"{metric.label} is missing in {len(lacking)} of {len(sample.runs)} runs, e.g. {run.name} of {run.arm}"


def _family(
    sample: Sample,
    metric: Response,
    margin: stats.Margin | None,
    family: Sequence[str],
    twin: str,
    alpha: float,
    primary: bool,
) -> list[VerdictRow]:
    values = {name: _values(sample, name, metric) for name in sample.arms}
    scale = _scale(sample, metric, values)
    if scale == "difference" and margin is not None and not margin.floor:
        margin = None  # a margin relative to zero means nothing
    kind: Kind = "latency" if metric.kind == "latency" else "resource" if metric.kind == "resource" else "level"
    if sample.paired:
        results: Sequence[stats.ContrastResult] = stats.analyse_family(
            values,
            sample.baseline,
            twin=twin or None,
            alpha=alpha,
            margin=margin,
            kind=kind,
            primary=primary,
            scale=scale,
            blocks=sample.blocks,
            saturated=sample.set_aside,
        )
    else:
        results = _unpaired(sample, values, twin, alpha, margin, kind, primary, scale)
    medians = {name: float(np.nanmedian(v)) if np.isfinite(v).any() else None for name, v in values.items()}
    bounds = {
        name: max((r.bounds.get(metric.name, 0.0) for r in runs), default=0.0) for name, runs in sample.arms.items()
    }
    return [verdict_row(metric, result, medians, bounds, twin=result.treatment == twin) for result in results]


def _unpaired(
    sample: Sample,
    values: Mapping[str, FloatArray],
    twin: str,
    alpha: float,
    margin: stats.Margin | None,
    kind: Kind,
    primary: bool,
    scale: Scale,
) -> list[stats.ContrastResult]:
    """The family, and the A/A twin as one of its own: it is never corrected with the others."""
    found: list[stats.ContrastResult] = []
    for names in ([n for n in values if n != twin], [sample.baseline, twin] if twin else []):
        if names:
            chosen = {name: values[name] for name in names}
            found += stats.analyse_unpaired(
                chosen, sample.baseline, alpha=alpha, margin=margin, kind=kind, primary=primary, scale=scale
            )
    return [_saturated(result, sample.set_aside) for result in found]


def _saturated(result: stats.ContrastResult, set_aside: Mapping[str, str]) -> stats.ContrastResult:
    reason = next((set_aside[name] for name in (result.treatment, result.baseline) if name in set_aside), None)
    if reason is None:
        return result
    verdict = stats.decide(None, p_adjusted=None, saturated=reason)
    return dataclasses.replace(
        result, comparison=None, p_adjusted=None, p_equivalence_adjusted=None, verdict=verdict, warnings=()
    )


def _values(sample: Sample, arm: str, metric: Response) -> FloatArray:
    runs: Sequence[Run] = sample.arms[arm]
    if sample.paired:
        by_block = {run.block: run.values.get(metric.name, math.nan) for run in runs}
        return np.array([by_block.get(block, math.nan) for block in sample.blocks], dtype=np.float64)
    return np.array([run.values[metric.name] for run in runs], dtype=np.float64)


def _scale(sample: Sample, metric: Response, values: Mapping[str, FloatArray]) -> Scale:
    """Ratios; differences where the baseline has none of it at all."""
    base = values[sample.baseline]
    if metric.kind != "latency" and np.isfinite(base).any() and not np.nan_to_num(base).any():
        return "difference"
    for run in sample.runs:
        value = run.values.get(metric.name)
        if value is not None and not value > 0:
            raise UsageError(f"{run.name}: {metric.name} is {value:g}; a ratio needs values above 0 in every run")
    return "ratio"
