"""One paired contrast: a treatment against a baseline over complete blocks (METHOD.md, "Analysis of one contrast").

The block difference is d = ln(treatment/baseline), so the effect is a ratio. Where the baseline is structurally zero
(the data-plane CPU of no mesh at all) a ratio means nothing, and the caller asks for ``scale="difference"``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import PairedComparison, Scale
from meshtrial.stats.equivalence import Margin
from meshtrial.stats.hodges_lehmann import hodges_lehmann, middle_of
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence, detectable_effect
from meshtrial.stats.ranknull import FloatArray
from meshtrial.stats.signedrank import as_sample, signed_rank_p, smallest_p
from meshtrial.stats.signflip import paired_t_interval, paired_t_p, sign_flip_p
from meshtrial.stats.warning import Warning

# no meter resolves one part in 10^12: what is closer is equal up to rounding, whatever the unit
RESOLUTION = 1e-12

EXACT_METHOD = "exact signed-rank, Hodges-Lehmann"
PROVISIONAL_METHOD = "paired t, model-based, provisional"


def block_differences(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> tuple[FloatArray, float]:
    """Differences by block on the scale of the analysis, and the tolerance below which two of them are tied.

    Raises
    ------
    UsageError
        If a ratio is asked of values that are not all positive.
    """
    if scale == "difference":
        return treatment - baseline, RESOLUTION * float(max(np.abs(treatment).max(), np.abs(baseline).max()))
    if scale != "ratio":
        raise UsageError(f"scale must be 'ratio' or 'difference', got {scale!r}")
    if not (treatment.min() > 0 and baseline.min() > 0):
        raise UsageError(
            "a ratio needs positive values in every block; where the baseline is zero by construction "
            "(data-plane CPU of no mesh), compare with scale='difference'"
        )
    return np.log(treatment / baseline), RESOLUTION


def margin_bounds(margin: Margin, baseline_median: float, scale: Scale) -> tuple[float, float]:
    """Equivalence bounds on the scale of the block differences (natural log, or the response's unit)."""
    half = math.log(margin.ratio(baseline_median)) if scale == "ratio" else margin.difference(baseline_median)
    return -half, half


def _paired_samples(
    treatment: ArrayLike, baseline: ArrayLike, blocks: Sequence[Hashable] | None
) -> tuple[FloatArray, FloatArray]:
    t, b = as_sample(treatment, "treatment"), as_sample(baseline, "baseline")
    if len(t) != len(b):
        raise UsageError(f"paired data need one value a block in both arms, got {len(t)} and {len(b)}")
    if len(t) < 2:
        raise UsageError("one block shows no noise: at least 2 complete blocks are needed to compare anything")
    if blocks is not None and (len(blocks) != len(t) or len(set(blocks)) != len(blocks)):
        raise UsageError(
            f"{len(t)} values need {len(t)} different blocks, got {len(blocks)} labels, {len(set(blocks))} different; "
            "average the slices of a run first: the run is the unit"
        )
    return t, b


def _cross_check(
    p: float, p_flip: float, p_t: float, n: int, zeros: int, provisional: bool, floor: int, m: int, alpha: float
) -> tuple[Warning, ...]:
    """Warnings of the contrast itself."""
    found: list[Warning] = []
    if provisional:
        found.append(
            Warning(
                "below-floor",
                f"{n} blocks cannot go below p = {smallest_p(n):.3g}; a family of {m} needs at least {floor}: "
                f"run {floor - n} more",
            )
        )
    elif (p <= alpha) != (p_flip <= alpha) or (p <= alpha) != (p_t <= alpha):
        found.append(
            Warning(
                "tests-disagree",
                f"signed-rank p = {p:.3g}, sign-flip p = {p_flip:.3g}, paired t p = {p_t:.3g}: a few blocks carry the "
                "mean; look at the dots by block, and add blocks before acting on this contrast",
            )
        )
    if zeros:
        found.append(
            Warning(
                "zeros",
                f"{zeros} of {n} blocks show exactly no change and are dropped by the test: the meter is too coarse; "
                "use a finer quantile or counter",
            )
        )
    return tuple(found)


def compare_paired(
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    blocks: Sequence[Hashable] | None = None,
    alpha: float = 0.05,
    margin: Margin | None = None,
    scale: Scale = "ratio",
    m_family: int = 1,
) -> PairedComparison:
    """Compare two arms over complete blocks.

    Parameters
    ----------
    treatment, baseline : (n,) array_like
        One value a block, in the same order of blocks and the same (SI) unit.
    blocks : sequence, optional
        Labels of the blocks, checked to be n different ones.
    alpha : float
        Nominal error rate; the interval is at 1 - alpha.
    margin : Margin, optional
        Equivalence margin; without one there is no equivalence test and no number of blocks to plan for.
    scale : {"ratio", "difference"}
        Scale of the effect.
    m_family : int
        Contrasts tested together; sets the floor, the minimum detectable effect and the blocks needed.

    Returns
    -------
    PairedComparison

    Raises
    ------
    UsageError
        If the samples do not match, are not finite, hold fewer than 2 blocks, or are not positive on the ratio scale.
    """
    t, b = _paired_samples(treatment, baseline, blocks)
    n = len(t)
    d, atol = block_differences(t, b, scale)
    typical = middle_of(np.sort(b))
    mean = math.fsum(d.tolist()) / n
    rest = d - mean
    sd = math.sqrt(float(rest @ rest) / (n - 1))
    floor = smallest_n(m_family, alpha)
    provisional = n < floor
    exact = hodges_lehmann(d, alpha, atol=atol)
    low, high, confidence = exact.low, exact.high, exact.confidence
    if provisional:
        low, high = paired_t_interval(mean, sd, n, alpha)
        confidence = 1 - alpha

    p_eq = bound = blocks_d = blocks_e = None
    if margin is not None:
        lower, bound = margin_bounds(margin, typical, scale)
        p_eq = max(signed_rank_p(d - lower, "greater", atol), signed_rank_p(d - bound, "less", atol))
        blocks_d = blocks_for_difference(sd, bound, alpha=alpha, m=m_family)
        blocks_e = blocks_for_equivalence(sd, bound, alpha=alpha, m=m_family)
    effect = detectable_effect(n, alpha=alpha, m=m_family)
    p_flip, p_t = sign_flip_p(d), paired_t_p(mean, sd, n)

    # expm1 keeps small effects exact; the interval stays the image of the tested one
    as_ratio = scale == "ratio"
    shown = [_exp(v) if as_ratio else v for v in (exact.estimate, low, high)]
    added = [_expm1(v) * typical if as_ratio else v for v in (exact.estimate, low, high)]
    mde = None if effect is None else effect * sd
    return PairedComparison(
        n=n,
        scale=scale,
        estimate=shown[0],
        ci_low=shown[1],
        ci_high=shown[2],
        ci_low_open=exact.low_open and not provisional,
        ci_high_open=exact.high_open and not provisional,
        confidence=confidence,
        p=exact.p,
        smallest_p=smallest_p(n),
        p_equivalence=p_eq,
        difference=added[0],
        difference_low=added[1],
        difference_high=added[2],
        baseline_median=typical,
        margin_low=None if bound is None else (_exp(-bound) if as_ratio else -bound),
        margin_high=None if bound is None else (_exp(bound) if as_ratio else bound),
        p_sign_flip=p_flip,
        p_paired_t=p_t,
        sd=sd,
        mde=_expm1(mde) if mde is not None and as_ratio else mde,
        needed_difference=blocks_d,
        needed_equivalence=blocks_e,
        floor_n=floor,
        alpha=alpha,
        m_family=m_family,
        method=PROVISIONAL_METHOD if provisional else EXACT_METHOD,
        warnings=_cross_check(
            exact.p, p_flip, p_t, n, int((np.abs(d) <= atol).sum()), provisional, floor, m_family, alpha
        ),
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf
