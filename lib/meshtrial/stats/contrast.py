"""One contrast: a treatment against a baseline, over complete blocks or over runs that are not paired.

There are two effects, each by its own exact test: the ratio, from d = ln(treatment/baseline), and what is added, from
the differences in the response's unit. The caller says which one carries the verdict. Where a value is not positive
(the data-plane CPU of no mesh at all) a ratio means nothing, and only ``scale="difference"`` is left.

The exact Mann-Whitney test of unpaired runs treats all runs as exchangeable. It cannot know whether one treatment ran
in the morning and the other in the afternoon; that order alone gives 28-36 % false positives, so every such result
carries a warning, unless the caller knows the order.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.margin import Margin
from meshtrial.stats.comparison import Comparison, Design, Scale, Warning
from meshtrial.stats.intervals import RankInterval, hodges_lehmann, hodges_lehmann_two, middle_of
from meshtrial.stats.multiplicity import smallest_n, smallest_n_unpaired
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence, detectable_effect
from meshtrial.stats.ranktests import (
    Alternative,
    FloatArray,
    as_sample,
    rank_sum_p,
    signed_rank_p,
    smallest_p,
    smallest_p_unpaired,
)

# 2^(36/2) sums a half is still instant; beyond that the normal limit of the flip distribution is exact enough to warn
# by
_EXACT_UP_TO = 36


def _signed_sums(d: FloatArray) -> FloatArray:
    """The sums of some values under all patterns of signs."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def sign_flip_p(d: FloatArray) -> float:
    """Two-sided p-value of the mean over all 2^n sign patterns (Fisher 1935); normal limit beyond n = 36."""
    n = len(d)
    observed = abs(float(d.sum()))
    if n > _EXACT_UP_TO:
        spread = math.sqrt(float((d * d).sum()))
        return 1.0 if spread == 0 else 2.0 * float(special.ndtr(-observed / spread))
    # meet in the middle: a sum over all signs is a sum of the first half plus a sum of the second
    half = n // 2
    first = _signed_sums(d[:half])
    second = np.sort(_signed_sums(d[half:]))
    # sums that equal the observed one up to rounding count as equal
    threshold = observed - 1e-12 * float(np.abs(d).sum())
    as_large = len(first) * len(second) - int(np.searchsorted(second, threshold - first).sum())
    return min(1.0, 2.0 * as_large / 2.0**n)


def paired_t_p(mean: float, sd: float, n: int) -> float:
    """Two-sided p-value of the one-sample t-test of the mean; 1.0 where nothing varies about zero."""
    if sd == 0:
        return 0.0 if mean else 1.0
    return 2.0 * float(special.stdtr(n - 1, -abs(mean) / sd * math.sqrt(n)))


def paired_t_interval(mean: float, sd: float, n: int, alpha: float) -> tuple[float, float]:
    """Mean plus and minus t times its standard error."""
    half = float(special.stdtrit(n - 1, 1 - alpha / 2)) * sd / math.sqrt(n)
    return mean - half, mean + half


# how many times the largest difference one of a run that ranks worst is: so far that averages with it are known by size
_FAR = 1e6
# no meter resolves one part in 10^12: what is closer is equal up to rounding, whatever the unit
RESOLUTION = 1e-12

METHODS: dict[Design, tuple[str, str]] = {
    "paired": ("exact signed-rank, Hodges-Lehmann", "paired t, model-based, provisional"),
    "unpaired": ("exact Mann-Whitney, Hodges-Lehmann", "Welch t, model-based, provisional"),
}

ORDER_UNKNOWN = Warning(
    "order-unknown",
    "the runs are not paired and their order is unknown: where one treatment ran wholly before the other, drift "
    "alone makes a third of identical treatments look different; repeat in randomised blocks (`meshtrial plan`) before "
    "acting on this",
)


@dataclass(frozen=True, slots=True)
class _AgainstMargin:
    """Tests against the margin: `bound` on the scale of the analysis, `floor` where the absolute part decides."""

    bound: float
    floor: float | None
    p_equivalence: float
    p_material: float
    needed: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Effect:
    """One of the two effects: exact interval, the one that is shown, and its one-sided test of a shift.

    Of ratios in logs. `sd` is the standard deviation of the difference of two runs.
    """

    exact: RankInterval
    ends: tuple[float, float]
    sd: float
    p: Callable[[float, Alternative], float]


@dataclass(frozen=True, slots=True)
class _Tested:
    """What a design's own test gives.

    `provisional`: below the floor, so that a model's interval stands in; `effect` the standardised effect that so many
    values can find; `ratios` is None where a value is not positive.
    """

    design: Design
    sizes: tuple[int, int]
    ratios: _Effect | None
    amounts: _Effect
    provisional: bool
    smallest_p: float
    floor: int
    effect: float | None
    margin: Margin | None
    against: _AgainstMargin | None
    cross_checks: tuple[float | None, float | None] = (None, None)

    def judged(self, scale: Scale) -> _Effect:
        """The effect that carries the verdict."""
        return self.ratios if scale == "ratio" and self.ratios else self.amounts


def _comparison(
    tested: _Tested, scale: Scale, typical: float, alpha: float, m_family: int, notes: Sequence[Warning]
) -> Comparison:
    """The result in a reader's terms: ratios, or the response's unit."""
    against, provisional, as_ratio = tested.against, tested.provisional, scale == "ratio"
    bound = None if against is None else against.bound
    # the interval stays the image of the tested one
    ratios = tested.ratios and [_exp(v) for v in (tested.ratios.exact.estimate, *tested.ratios.ends)]
    amounts = [tested.amounts.exact.estimate, *tested.amounts.ends]
    effect = tested.judged(scale)
    exact, shown = effect.exact, ratios if as_ratio and ratios else amounts
    mde = None if tested.effect is None or provisional else tested.effect * effect.sd
    return Comparison(
        design=tested.design,
        n_treatment=tested.sizes[0],
        n_baseline=tested.sizes[1],
        scale=scale,
        estimate=shown[0],
        ci_low=shown[1],
        ci_high=shown[2],
        ci_low_open=exact.low_open and not provisional,
        ci_high_open=exact.high_open and not provisional,
        confidence=1 - alpha if provisional else exact.confidence,
        p=exact.p,
        smallest_p=tested.smallest_p,
        p_equivalence=None if against is None else against.p_equivalence,
        ratio=ratios[0] if ratios else None,
        ratio_low=ratios[1] if ratios else None,
        ratio_high=ratios[2] if ratios else None,
        difference=amounts[0],
        difference_low=amounts[1],
        difference_high=amounts[2],
        baseline_median=typical,
        p_material=None if against is None else against.p_material,
        margin_high=None if bound is None else (_exp(bound) if as_ratio else bound),
        margin_relative=None if tested.margin is None else tested.margin.relative,
        margin_floor=None if against is None else against.floor,
        p_sign_flip=tested.cross_checks[0],
        p_paired_t=tested.cross_checks[1],
        sd=effect.sd,
        mde=_expm1(mde) if mde is not None and as_ratio else mde,
        needed_difference=None if against is None else against.needed[0],
        needed_equivalence=None if against is None else against.needed[1],
        floor_n=tested.floor,
        alpha=alpha,
        m_family=m_family,
        method=METHODS[tested.design][provisional],
        warnings=tuple(notes),
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700 else math.inf


def _check_scale(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> None:
    if scale not in ("ratio", "difference"):
        raise UsageError(f"scale must be 'ratio' or 'difference', got {scale!r}")
    if scale == "ratio" and not _positive(treatment, baseline):
        raise UsageError(
            "a ratio needs positive values in every run; where the baseline is zero by construction "
            "(data-plane CPU of no mesh), compare with scale='difference'"
        )


def _positive(treatment: FloatArray, baseline: FloatArray) -> bool:
    return bool(treatment.min() > 0 and baseline.min() > 0)


def _grain(treatment: FloatArray, baseline: FloatArray) -> float:
    """What values in the response's own unit are equal within."""
    return RESOLUTION * max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (treatment, baseline))


def margin_differences(
    treatment: FloatArray, baseline: FloatArray, comparison: Comparison
) -> tuple[FloatArray, float, float]:
    """What the tests against a paired comparison's margin are of: block differences, what is tied, and the bound."""
    c = comparison
    if c.margin_floor is not None or c.ratio is None:
        return *block_differences(treatment, baseline, "difference"), c.margin_floor or c.margin_high or 0.0
    return *block_differences(treatment, baseline, "ratio"), math.log1p(c.margin_relative or 0.0)


def block_differences(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> tuple[FloatArray, float]:
    """Differences by block on the scale of the analysis, and the tolerance below which two of them are tied.

    Where a run ranks worst (infinite) its block's difference is far beyond every other, and 0 where both do.
    """
    _check_scale(treatment, baseline, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        d: FloatArray = treatment - baseline if scale == "difference" else np.log(treatment / baseline)
    d[np.isinf(treatment) & np.isinf(baseline)] = 0.0
    far = _FAR * max(1.0 if scale == "ratio" else 0.0, float(np.abs(d[np.isfinite(d)]).max(initial=0.0))) or 1.0
    return np.clip(d, -far, far), RESOLUTION if scale == "ratio" else _grain(treatment, baseline)


def _against_margin(margin: Margin, tested: _Tested, scale: Scale, typical: float, plan: _Family) -> _AgainstMargin:
    """Both tests against the margin, on the scale of the part of it that decides."""
    bound = math.log(margin.ratio(typical)) if scale == "ratio" else margin.difference(typical)
    floor = margin.floor if margin.floor > margin.relative * abs(typical) else None
    if floor is None and tested.ratios:
        effect, half = tested.ratios, math.log1p(margin.relative)
    else:
        effect, half = tested.amounts, margin.difference(typical)
    upward = tested.judged(scale).exact.estimate > 0
    return _AgainstMargin(
        bound,
        floor,
        max(effect.p(-half, "greater"), effect.p(half, "less")),
        effect.p(half, "greater") if upward else effect.p(-half, "less"),
        (
            blocks_for_difference(effect.sd, half, alpha=plan.alpha, m=plan.m, jointly=plan.jointly),
            blocks_for_equivalence(effect.sd, half, alpha=plan.alpha, m=plan.m),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Family:
    """Error level, how many contrasts are tested together, and whether they are corrected jointly."""

    alpha: float
    m: int
    jointly: bool = False


def compare_paired(
    # One value a block, in the same order of blocks and the same (SI) unit. Infinite where a run's own failure ranks
    # worst: the exact test holds it, and the interval's end opens where it is needed.
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    alpha: float = 0.05,  # nominal error rate; the interval is at 1 - alpha
    # Equivalence margin; without one there is no equivalence test and no number of blocks to plan for
    margin: Margin | None = None,
    scale: Scale = "ratio",  # scale of the effect
    m_family: int = 1,  # contrasts tested together; sets the floor, the minimum detectable effect and the blocks needed
    # Whether they are corrected so that one contrast can have the floor of a family of one, as by max-T
    jointly: bool = False,
) -> Comparison:
    """Compare two treatments over complete blocks.

    UsageError if the samples do not match, are not finite, hold fewer than 2 blocks, or are not positive on the ratio
    scale.
    """
    t, b = as_sample(treatment, "treatment", worst=True), as_sample(baseline, "baseline", worst=True)
    if len(t) != len(b):
        raise UsageError(f"paired data need one value a block of both treatments, got {len(t)} and {len(b)}")
    if len(t) < 2:
        raise UsageError("one block shows no noise: at least 2 complete blocks are needed to compare anything")
    _check_scale(t, b, scale)
    n, m_floor = len(t), 1 if jointly else m_family
    provisional = smallest_p(n) > alpha / m_floor
    typical, worst = middle_of(np.sort(b[np.isfinite(b)])), np.isinf(t) != np.isinf(b)
    tested = _Tested(
        design="paired",
        sizes=(n, n),
        ratios=_paired_effect(t, b, "ratio", worst, alpha, provisional) if _positive(t, b) else None,
        amounts=_paired_effect(t, b, "difference", worst, alpha, provisional),
        provisional=provisional,
        smallest_p=smallest_p(n),
        floor=smallest_n(m_floor, alpha),
        effect=detectable_effect(n, alpha=alpha, m=m_family, jointly=jointly),
        margin=margin,
        against=None,
    )
    if margin is not None:
        plan = _Family(alpha, m_family, jointly)
        tested = replace(tested, against=_against_margin(margin, tested, scale, typical, plan))
    d, atol = block_differences(t, b, scale)
    if not worst.any():  # a mean of ranks that have no size says nothing
        tested = replace(tested, cross_checks=(sign_flip_p(d), paired_t_p(_mean(d), _sd(d), n)))
    zeros = int((np.abs(d) <= atol).sum())
    notes = _paired_warnings(tested, scale, zeros, alpha, m_floor)
    return replace(_comparison(tested, scale, typical, alpha, m_family, notes), jointly=jointly)


def _paired_effect(
    treatment: FloatArray, baseline: FloatArray, scale: Scale, worst: NDArray[np.bool_], alpha: float, provisional: bool
) -> _Effect:
    d, atol = block_differences(treatment, baseline, scale)
    exact, usual = hodges_lehmann(d, alpha, atol=atol), d[~worst]
    sd = _sd(usual) if len(usual) > 1 else 0.0
    ends = paired_t_interval(_mean(usual), sd, len(usual), alpha) if provisional and len(usual) > 1 else None
    if worst.any():
        far = np.abs(d[worst]).min() / 4
        estimate, low, high = (
            v if abs(v) < far else math.copysign(math.inf, v) for v in (exact.estimate, exact.low, exact.high)
        )
        exact = replace(exact, estimate=estimate, low=low, high=high)
        if provisional:
            low, high = ends or (-math.inf, math.inf)
            ends = -math.inf if (d[worst] < 0).any() else low, math.inf if (d[worst] > 0).any() else high
    ends = ends or (exact.low, exact.high)
    return _Effect(exact, ends, sd, lambda shift, side: signed_rank_p(d - shift, side, atol))


def _mean(d: FloatArray) -> float:
    return math.fsum(d.tolist()) / len(d)


def _sd(d: FloatArray) -> float:
    rest = d - _mean(d)
    return math.sqrt(float(rest @ rest) / (len(d) - 1))


def _paired_warnings(tested: _Tested, scale: Scale, zeros: int, alpha: float, m_floor: int) -> list[Warning]:
    notes = []
    n, p = tested.sizes[0], tested.judged(scale).exact.p
    p_flip, p_t = (check or 0.0 for check in tested.cross_checks)
    if tested.provisional:
        text = (
            f"{n} blocks cannot go below p = {tested.smallest_p:.3g}; a family of {m_floor} needs at least "
            f"{tested.floor}: run {tested.floor - n} more"
        )
        notes.append(Warning("below-floor", text))
    elif tested.cross_checks != (None, None) and ((p <= alpha) != (p_flip <= alpha) or (p <= alpha) != (p_t <= alpha)):
        text = (
            f"signed-rank p = {p:.3g}, sign-flip p = {p_flip:.3g}, paired t p = {p_t:.3g}: a few blocks carry the "
            "mean; look at the dots by block, and measure a new, larger study before acting on this contrast"
        )
        notes.append(Warning("tests-disagree", text))
    if zeros:
        text = (
            f"{zeros} of {n} blocks show exactly no change and are dropped by the test: the meter is too coarse; "
            "use a finer quantile or counter"
        )
        notes.append(Warning("zeros", text))
    return notes


def compare_unpaired(
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    alpha: float = 0.05,
    margin: Margin | None = None,
    scale: Scale = "ratio",
    m_family: int = 1,
    order_known: bool = False,  # whether the caller has looked at the order of the runs, and says what is wrong with it
) -> Comparison:
    """Compare treatments whose runs are not paired: the second best, with ``order-unknown`` unless it is known."""
    t, b = as_sample(treatment, "treatment"), as_sample(baseline, "baseline")
    if min(len(t), len(b)) < 2:
        raise UsageError(f"{len(t)} run(s) against {len(b)}: one run shows no noise; each treatment needs at least 2")
    _check_scale(t, b, scale)
    typical = middle_of(np.sort(b))
    least, floor = smallest_p_unpaired(len(t), len(b)), smallest_n_unpaired(m_family, alpha)
    provisional = least > alpha / m_family
    tested = _Tested(
        design="unpaired",
        sizes=(len(t), len(b)),
        ratios=_unpaired_effect(np.log(t), np.log(b), RESOLUTION, alpha, provisional) if _positive(t, b) else None,
        amounts=_unpaired_effect(t, b, _grain(t, b), alpha, provisional),
        provisional=provisional,
        smallest_p=least,
        floor=floor,
        effect=detectable_effect(max(min(len(t), len(b)), 4), alpha=alpha, m=m_family),
        margin=margin,
        against=None,
    )
    if margin is not None:
        against = _against_margin(margin, tested, scale, typical, _Family(alpha, m_family))
        enough = (max(floor, against.needed[0]), max(floor, against.needed[1]))
        tested = replace(tested, against=replace(against, needed=enough))
    notes = [] if order_known else [ORDER_UNKNOWN]
    if provisional:
        text = (
            f"{len(t)} against {len(b)} runs cannot go below p = {least:.3g}; {floor} of each treatment can reach "
            f"{alpha:g} in a family of {m_family}: add runs, in randomised blocks"
        )
        notes.append(Warning("below-floor", text))
    return _comparison(tested, scale, typical, alpha, m_family, notes)


def _unpaired_effect(x: FloatArray, y: FloatArray, atol: float, alpha: float, provisional: bool) -> _Effect:
    exact = hodges_lehmann_two(x, y, alpha, atol=atol)
    ends = _welch_interval(x, y, alpha) if provisional else (exact.low, exact.high)
    return _Effect(exact, ends, _pooled_sd(x, y), lambda shift, side: rank_sum_p(x - shift, y, side, atol))


def _pooled_sd(x: FloatArray, y: FloatArray) -> float:
    """Standard deviation of the difference of two runs."""
    pooled = (x.var(ddof=1) * (len(x) - 1) + y.var(ddof=1) * (len(y) - 1)) / (len(x) + len(y) - 2)
    return math.sqrt(2 * float(pooled))


def _welch_interval(x: FloatArray, y: FloatArray, alpha: float) -> tuple[float, float]:
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        middle = float(x.mean() - y.mean())
        return middle, middle
    # scipy.stats takes a moment to load, which only runs that are too few need
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # equal values in one sample are no news here: the other one's noise makes the interval
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        interval = ttest_ind(x, y, equal_var=False).confidence_interval(1 - alpha)
    return float(interval.low), float(interval.high)
