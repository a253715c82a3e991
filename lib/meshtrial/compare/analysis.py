"""From a sample to verdict rows: `meshtrial.stats` compares and corrects one family per metric.

The first three metrics are primary and corrected by Holm; further ones are exploratory. Both were chosen after the
runs, which no correction can account for.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshtrial import __version__, stats
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
SCHEMA = "meshtrial.compare/2"
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison."""

    sample: Sample
    limits: tuple[str, ...]  # on the smallest possible p, shown first
    metrics: tuple[Response, ...]  # that could be compared
    rows: tuple[VerdictRow, ...]  # one per metric and treatment; the A/A twin is last
    findings: tuple[Finding, ...]  # about the sample, and about metrics that are not reported
    alpha: float
    primary: tuple[
        DeclaredContrast, ...
    ] = ()  # the contrasts of the first metrics, also of those that could not be compared

    def to_dict(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain data for JSON; rows of ``verdicts`` have the same fields as in a study's ``verdicts.json``."""
        sample = self.sample
        return {
            "schema": SCHEMA,
            "meshtrial": __version__,
            "options": dict(options),
            "baseline": sample.baseline,
            "paired": sample.paired,
            "pairing": sample.pairing,
            "smallest_p": {name: smallest_p_of(sample, name) for name in sample.treatments},
            "limits": list(self.limits),
            "warnings": [dataclasses.asdict(finding) for finding in self.findings],
            "runs": [run.to_dict() for run in sample.runs],
            "verdicts": [row.to_dict() for row in self.rows],
        }


def analyse(
    sample: Sample,
    metrics: Sequence[Response],
    margins: Mapping[str, Margin],
    *,
    alpha: float = 0.05,
    sample_floor: float = 0.0,
) -> Outcome:
    """Compare all metrics of all treatments; UsageError if no metric, or a value, cannot be compared.

    ``sample_floor`` is only used in the message on a percentile that is not reported.
    """
    twin = sample.baseline + TWIN_SUFFIX
    twin = twin if twin in sample.by_treatment and len(sample.treatments) > 1 else ""
    names = [name for name in sample.treatments if name != twin]
    reasons = {metric.name: reason for metric in metrics if (reason := _unreported(sample, metric, sample_floor))}
    kept = tuple(metric for metric in metrics if metric.name not in reasons)
    if not kept:
        raise UsageError(f"nothing to compare: {'; '.join(reasons.values())}")
    findings = (*sample.findings, *(Finding("not-reported", reason, False) for reason in reasons.values()))
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
    primary = tuple(
        DeclaredContrast("", metric, name, sample.baseline) for metric in metrics[:MOST_PRIMARY] for name in names
    )
    return Outcome(sample, limit_sentences(sample, names, alpha), kept, tuple(rows), findings, alpha, primary)


def _unreported(sample: Sample, metric: Response, sample_floor: float) -> str:
    """Return why a metric cannot be compared; empty if it can."""
    lacking = [run for run in sample.runs if metric.name not in run.responses]
    # A table loses only its incomplete blocks; one file without the response excludes the metric.
    if not lacking or (sample.paired and lacking[0].kind == "table" and len(lacking) < len(sample.runs)):
        return ""
    run = lacking[0]
    if metric.percentile is not None and run.requests is not None:
        needed = requests_needed(metric.percentile.q, sample_floor)
        if run.further and run.requests >= needed:
            return f"{metric.label} is not reported: {run.name} does not contain it ({run.kind}); {run.further}"
        return (
            f"{metric.label} is not reported: it needs {needed} good requests in every run, and "
            f"{run.name} has {run.requests}; measure longer, or lower the sample floor at the cost of precision"
        )
    if len(lacking) == len(sample.runs):
        has = sorted({name for other in sample.runs for name in other.responses})
        there = f"there are {', '.join(has)}" if has else f"{run.name} has no number that can be compared ({run.kind})"
        return f"{metric.label} ({metric.name}) is in no run; {there}"
    return f"{metric.label} is missing in {len(lacking)} of {len(sample.runs)} runs, e.g. {run.name} of {run.treatment}"


def _family_rows(sample: Sample, metric: Response, family: stats.Family) -> list[VerdictRow]:
    values = {name: _values(sample, name, metric) for name in sample.by_treatment}
    scale = _scale(sample, metric, values)
    family = dataclasses.replace(family, scale=scale, margin=usable_margin(family.margin, scale))
    medians = {name: median_of(runs) for name, runs in values.items()}
    # The coarsest resolution of each treatment, as a share of its quantile.
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
    """Warn of a coarse ratio, by the larger relative resolution of its two quantiles."""
    c = result.comparison
    if metric.kind != "latency" or c is None or c.scale != "ratio" or c.margin is None:
        return ()
    of_others = {"finer": "use a form with every request, or a tool that prints more digits"}
    words = of_others if any(run.kind != "fortio" for run in sample.runs) else {}
    resolution = max(shares[result.treatment], shares[result.baseline])
    return stats.coarse_quantile(resolution, 1.0, c.margin, **words)


def _drift(sample: Sample, metric: Response) -> tuple[stats.Warning, ...]:
    """Warn of a drift over time of unpaired runs, if the start of every run is known.

    Differences within the resolution of the values are not treated as drift.
    """
    runs = sample.runs
    if sample.paired or not sample.order_known or any(not run.responses.get(metric.name, 0.0) > 0 for run in runs):
        return ()
    if all(_within_resolution(runs, metric) for runs in sample.by_treatment.values()):
        return ()
    most = max(map(len, sample.by_treatment.values()))

    def padded(values: Sequence[float]) -> FloatArray:
        return np.array([*values, *[math.nan] * (most - len(values))])

    by_treatment = sample.by_treatment.items()
    values = {name: padded([run.responses[metric.name] for run in own]) for name, own in by_treatment}
    times = {name: padded([run.start_unix_s or 0.0 for run in own]) for name, own in by_treatment}
    apart = any(finding.code in CONFOUNDED for finding in sample.findings)
    effect = "drift and treatment cannot be separated" if apart else "it adds to the noise of both"
    return tuple(
        stats.Warning(
            warning.code,
            f"{warning.message.split(';')[0]}; no blocks remove it, so {effect}; repeat in randomised blocks",
        )
        for warning in drift(values, times)
    )


def _within_resolution(runs: Sequence[Run], metric: Response) -> bool:
    """Return whether the runs of a treatment differ by no more than the resolution of their values."""
    values = [run.responses[metric.name] for run in runs]
    return max(values) - min(values) <= max(run.bounds.get(metric.name, 0.0) for run in runs)


def _values(sample: Sample, treatment: str, metric: Response) -> FloatArray:
    runs: Sequence[Run] = sample.by_treatment[treatment]
    if sample.paired:
        by_block = {run.block: run.responses.get(metric.name, math.nan) for run in runs}
        return np.array([by_block.get(block, math.nan) for block in sample.blocks], dtype=np.float64)
    return np.array([run.responses[metric.name] for run in runs], dtype=np.float64)


def _scale(sample: Sample, metric: Response, values: Mapping[str, FloatArray]) -> stats.Scale:
    """Return "ratio", or "difference" if all values of the baseline are zero."""
    base = values[sample.baseline]
    if metric.kind != "latency" and np.isfinite(base).any() and not np.nan_to_num(base).any():
        return "difference"
    for run in sample.runs:
        value = run.responses.get(metric.name)
        if value is not None and not value > 0:
            raise UsageError(f"{run.name}: {metric.name} is {value:g}; a ratio needs values above 0 in every run")
    return "ratio"


def smallest_p_of(sample: Sample, treatment: str) -> float:
    """Return the smallest possible p of one contrast, uncorrected."""
    if sample.paired:
        return stats.smallest_p(len(sample.blocks))
    return stats.smallest_p_unpaired(len(sample.by_treatment[sample.baseline]), len(sample.by_treatment[treatment]))


def limit_sentences(sample: Sample, family: Sequence[str], alpha: float) -> tuple[str, ...]:
    """Describe the smallest possible p of a family, in one sentence per group of contrasts of equal size."""
    groups: dict[int, list[str]] = {}
    for name in family:
        groups.setdefault(len(sample.by_treatment[name]), []).append(name)
    return tuple(_sentence(sample, names, max(1, len(family)), alpha) for names in groups.values())


def _sentence(sample: Sample, names: Sequence[str], m: int, alpha: float) -> str:
    n_b, n_t = (len(sample.by_treatment[name]) for name in (sample.baseline, names[0]))
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
        f"{text}. Nothing below {_p(min(1.0, m * p))} is possible, so a difference cannot be significant at {alpha:g}: "
        f"at least {needed} {unit} are needed."
    )


def _p(value: float) -> str:
    return f"{value:.2g}" if value != 0.1 else "0.10"
