"""From a sample to verdict rows: a family a metric, compared, corrected and judged by `meshtrial.stats`.

Opinion: the first three metrics are the question and are corrected by Holm; whatever is asked beyond them is
exploratory. Here both were chosen after the runs, which no correction sees.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshtrial import stats
from meshtrial.compare.checks import CONFOUNDED
from meshtrial.compare.runs import Finding, Run, Sample
from meshtrial.design.responses import Response, requests_needed
from meshtrial.design.study import TWIN_SUFFIX
from meshtrial.errors import UsageError
from meshtrial.inference.gate import DeclaredContrast
from meshtrial.inference.rows import median_of, usable_margin, verdict_row
from meshtrial.margin import Margin
from meshtrial.records.schema import VerdictRow
from meshtrial.stats.diagnostics import drift

MOST_PRIMARY = 3
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """What a comparison came to."""

    sample: Sample
    limits: tuple[str, ...]  # the smallest possible p, to be said first
    metrics: tuple[Response, ...]  # those that could be compared
    rows: tuple[VerdictRow, ...]  # one row per metric and treatment; the A/A twin's stand last in their metric
    findings: tuple[Finding, ...]  # of the sample, and why a metric is not reported
    alpha: float
    primary: tuple[
        DeclaredContrast, ...
    ] = ()  # the contrasts of the first metrics, also of those that could not be compared


def analyse(
    sample: Sample,
    metrics: Sequence[Response],
    margins: Mapping[str, Margin],
    *,
    alpha: float = 0.05,
    sample_floor: float = 0.0,
) -> Outcome:
    """Judge every metric of every treatment; where none is left, or a value cannot be compared, that is refused.

    ``sample_floor`` is only for the message about a quantile that was not reported.
    """
    twin = sample.baseline + TWIN_SUFFIX
    twin = twin if twin in sample.by_treatment and len(sample.treatments) > 1 else ""
    names = [name for name in sample.treatments if name != twin]
    findings, kept = list(sample.findings), []
    for metric in metrics:
        reason = _unreported(sample, metric, sample_floor)
        if reason:
            findings.append(Finding("not-reported", reason, False))
        else:
            kept.append(metric)
    if not kept:
        reasons = "; ".join(f.message for f in findings if f.code == "not-reported")
        raise UsageError(f"nothing to compare: {reasons}")
    rows: list[VerdictRow] = []
    for place, metric in enumerate(metrics):
        if metric in kept:
            family = stats.Family(
                sample.baseline,
                twin=twin or None,
                design="paired" if sample.paired else "unpaired",
                alpha=alpha,
                margin=margins.get(metric.name),
                kind=metric.kind,
                primary=place < MOST_PRIMARY,
                order_known=sample.order_known,
            )
            rows += _family_rows(sample, metric, family)
    limits = limit_sentences(sample, names, alpha)
    primary = tuple(
        DeclaredContrast("", metric, name, sample.baseline) for metric in metrics[:MOST_PRIMARY] for name in names
    )
    return Outcome(sample, tuple(limits), tuple(kept), tuple(rows), tuple(findings), alpha, primary)


def _unreported(sample: Sample, metric: Response, sample_floor: float) -> str:
    """Why a metric cannot be compared; empty where it can."""
    lacking = [run for run in sample.runs if metric.name not in run.values]
    # A table's incomplete block leaves the inference as a whole; a file without the response stands for all of them.
    if not lacking or (sample.paired and lacking[0].kind == "table" and len(lacking) < len(sample.runs)):
        return ""
    run = lacking[0]
    if metric.percentile is not None and run.requests is not None:
        needed = requests_needed(metric.percentile.q, sample_floor)
        if run.further and run.requests >= needed:
            return f"{metric.label} is not reported: {run.name} does not hold it ({run.kind}); {run.further}"
        return (
            f"{metric.label} is not reported: it needs {needed} good requests in every run, "
            f"{run.name} has {run.requests}; measure longer, or lower the sample floor and trust it less"
        )
    if len(lacking) == len(sample.runs):
        has = sorted({name for other in sample.runs for name in other.values})
        there = (
            f"there are {', '.join(has)}" if has else f"{run.name} holds no number that can be compared ({run.kind})"
        )
        return f"{metric.label} ({metric.name}) is in no run; {there}"
    return f"{metric.label} is missing in {len(lacking)} of {len(sample.runs)} runs, e.g. {run.name} of {run.treatment}"


def _family_rows(sample: Sample, metric: Response, family: stats.Family) -> list[VerdictRow]:
    values = {name: _values(sample, name, metric) for name in sample.by_treatment}
    scale = _scale(sample, metric, values)
    family = dataclasses.replace(family, scale=scale, margin=usable_margin(family.margin, scale))
    medians = {name: median_of(own) for name, own in values.items()}
    # The widest bucket of each treatment, as a share of its quantile.
    shares = {
        name: max((run.bounds.get(metric.name, 0.0) for run in runs), default=0.0) / (medians[name] or math.inf)
        for name, runs in sample.by_treatment.items()
    }
    results = stats.analyse_family(values, family, blocks=sample.blocks, stopped=sample.stopped, resolution=shares)
    drifting = _drift(sample, metric)
    return [
        verdict_row(
            result,
            metric,
            medians,
            study="compare",
            load="",
            exploratory=not family.primary,
            warnings=(*_coarse(sample, result, metric, shares), *drifting),
        )
        for result in results
    ]


def _coarse(
    sample: Sample, result: stats.ContrastResult, metric: Response, shares: Mapping[str, float]
) -> tuple[stats.Warning, ...]:
    """A ratio is as coarse as the coarser of its two quantiles, each against its own size."""
    c = result.comparison
    if metric.kind != "latency" or c is None or c.scale != "ratio" or c.margin is None:
        return ()
    resolution = max(shares[result.treatment], shares[result.baseline])
    if any(run.kind != "fortio" for run in sample.runs):
        finer = "use a form with every request, or a tool that prints more digits"
        return stats.coarse_quantile(resolution, 1.0, c.margin, finer=finer)
    return stats.coarse_quantile(resolution, 1.0, c.margin)


def _drift(sample: Sample, metric: Response) -> tuple[stats.Warning, ...]:
    """Whether runs that are not paired drift over time, where every file says when it began.

    Runs that differ by less than their histograms' buckets, or their digits, show none.
    """
    runs = sample.runs
    if sample.paired or not sample.order_known or any(not run.values.get(metric.name, 0.0) > 0 for run in runs):
        return ()
    if all(_within_resolution(own, metric) for own in sample.by_treatment.values()):
        return ()
    widest = max(len(mine) for mine in sample.by_treatment.values())

    def padded(values: Sequence[float]) -> FloatArray:
        return np.array([*values, *[math.nan] * (widest - len(values))])

    values = {name: padded([run.values[metric.name] for run in mine]) for name, mine in sample.by_treatment.items()}
    times = {name: padded([run.start_unix_s or 0.0 for run in mine]) for name, mine in sample.by_treatment.items()}
    apart = any(finding.code in CONFOUNDED for finding in sample.findings)
    effect = "drift and treatment cannot be told apart" if apart else "it is in the noise of both"
    return tuple(
        stats.Warning(
            warning.code,
            f"{warning.message.split(';')[0]}; these runs are in no blocks that would absorb it, so {effect}: repeat "
            "in randomised blocks",
        )
        for warning in drift(values, times)
    )


def _within_resolution(runs: Sequence[Run], metric: Response) -> bool:
    """Whether the runs of a treatment differ by no more than a value is known to."""
    values = [run.values[metric.name] for run in runs]
    return max(values) - min(values) <= max(run.bounds.get(metric.name, 0.0) for run in runs)


def _values(sample: Sample, treatment: str, metric: Response) -> FloatArray:
    runs: Sequence[Run] = sample.by_treatment[treatment]
    if sample.paired:
        by_block = {run.block: run.values.get(metric.name, math.nan) for run in runs}
        return np.array([by_block.get(block, math.nan) for block in sample.blocks], dtype=np.float64)
    return np.array([run.values[metric.name] for run in runs], dtype=np.float64)


def _scale(sample: Sample, metric: Response, values: Mapping[str, FloatArray]) -> stats.Scale:
    """Ratios; differences where the baseline has none of it at all."""
    base = values[sample.baseline]
    if metric.kind != "latency" and np.isfinite(base).any() and not np.nan_to_num(base).any():
        return "difference"
    for run in sample.runs:
        value = run.values.get(metric.name)
        if value is not None and not value > 0:
            raise UsageError(f"{run.name}: {metric.name} is {value:g}; a ratio needs values above 0 in every run")
    return "ratio"


def smallest_p_of(sample: Sample, treatment: str) -> float:
    """The smallest possible p of one contrast, uncorrected."""
    if sample.paired:
        return stats.smallest_p(len(sample.blocks))
    return stats.smallest_p_unpaired(len(sample.by_treatment[sample.baseline]), len(sample.by_treatment[treatment]))


def limit_sentences(sample: Sample, family: Sequence[str], alpha: float) -> list[str]:
    """The floor of every contrast of treatments that are corrected together, one sentence for those of equal size."""
    m = max(1, len(family))
    groups: dict[tuple[int, int], list[str]] = {}
    for name in family:
        groups.setdefault((len(sample.by_treatment[sample.baseline]), len(sample.by_treatment[name])), []).append(name)
    return [_sentence(sample, sizes, names, m, alpha) for sizes, names in groups.items()]


def _sentence(sample: Sample, sizes: tuple[int, int], names: Sequence[str], m: int, alpha: float) -> str:
    n_b, n_t = sizes
    p = smallest_p_of(sample, names[0])
    if sample.paired:
        n = len(sample.blocks)
        head, fraction = f"{n} blocks", f"2/{2**n}"
        needed, unit = stats.smallest_n(m, alpha), "blocks"
    else:
        ways = math.comb(n_b + n_t, n_b)
        head, fraction = f"{n_b} against {n_t} runs, not paired", f"2/{ways}" if ways < 10**12 else ""
        needed, unit = stats.smallest_n_unpaired(m, alpha), "runs of each treatment"
    whose = f" ({', '.join(names)})" if m > 1 else ""
    least = f"{fraction} = {_p(p)}" if fraction else f"below {max(p, 1e-12):.0e}"
    text = f"{head}{whose}: the smallest possible p is {least}"
    if m > 1:
        text += f", and {_p(min(1.0, m * p))} corrected over {m} contrasts"
    if m * p <= alpha:
        return text + "."
    return (
        f"{text}. Nothing below {_p(min(1.0, m * p))} is possible, so nothing can be called at {alpha:g}: "
        f"it takes at least {needed} {unit}."
    )


def _p(value: float) -> str:
    return f"{value:.2g}" if value != 0.1 else "0.10"
