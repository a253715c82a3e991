"""A judged contrast as a row of the same shape as a study's ``verdicts.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping

from meshtrial import stats
from meshtrial.records.schema import VerdictRow
from meshtrial.responses import Response

COARSE = "coarse-quantile"


def verdict_row(
    metric: Response,
    result: stats.ContrastResult,
    medians: Mapping[str, float | None],
    bounds: Mapping[str, float],
    *,
    twin: bool,
) -> VerdictRow:
    """One row.

    Parameters
    ----------
    metric : Response
    result : ContrastResult
    medians : mapping of str to float or None
        Of every arm's runs.
    bounds : mapping of str to float
        Of every arm, the widest bucket that one of its quantiles was read from.
    twin : bool
        Whether the treatment is the baseline's A/A twin.
    """
    c = result.comparison
    ratio = c is not None and c.scale == "ratio"
    margin = None if c is None or c.margin_high is None else c.margin_high - c.no_effect
    latency = metric.kind == "latency"
    warnings = tuple(str(w) for w in result.warnings)
    if latency and ratio and margin is not None and c is not None:
        # A ratio is as coarse as the coarser of its two quantiles, each against its own size.
        arms = [
            (bounds.get(arm, 0.0), medians.get(arm) or c.baseline_median) for arm in (result.treatment, result.baseline)
        ]
        width, size = max(arms, key=lambda pair: pair[0] / pair[1])
        warnings += tuple(str(w) for w in stats.coarse_quantile(width, size, margin))
    return VerdictRow(
        study="compare",
        load="",
        response=metric.name,
        label=metric.label,
        unit=metric.unit,
        treatment=result.treatment,
        baseline=result.baseline,
        twin=twin,
        exploratory=result.adjustment == "benjamini-hochberg",
        n_blocks=0 if c is None else c.n,
        ratio=c.estimate if c is not None and ratio else None,
        ci_low=c.ci_low if c is not None and ratio else None,
        ci_high=c.ci_high if c is not None and ratio else None,
        confidence=None if c is None else c.confidence,
        difference=None if c is None else c.difference,
        difference_low=None if c is None else _finite(c.difference_low),
        difference_high=None if c is None else _finite(c.difference_high),
        difference_ms=c.difference * 1e3 if c is not None and latency else None,
        baseline_value=medians.get(result.baseline),
        treatment_value=medians.get(result.treatment),
        p=None if c is None else c.p,
        p_holm=result.p_adjusted,
        p_equivalence=None if c is None else c.p_equivalence,
        p_equivalence_holm=result.p_equivalence_adjusted,
        margin=margin,
        noise_floor=None if result.noise is None else result.noise.floor,
        mde=None if c is None else c.mde,
        blocks_needed=result.verdict.more,
        verdict=result.verdict.label,
        qualifier=result.verdict.qualifier,
        sentence=result.verdict.text,
        method="" if c is None else c.method,
        warnings=warnings,
    )


def is_coarse(row: VerdictRow) -> bool:
    """Whether a quantile of this row is known less well than its margin."""
    return any(warning.startswith(COARSE) for warning in row.warnings)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
