"""One contrast: a treatment against a baseline, over complete blocks or over unpaired runs.

There are two effects, each with its own exact test: the ratio, from d = ln(treatment/baseline), and the difference in
the response's unit. The caller chooses the one that carries the verdict. If a value is not positive (the data-plane CPU
of no mesh), a ratio means nothing and only ``scale="difference"`` is possible.

The exact Mann-Whitney test of unpaired runs treats all runs as exchangeable. It cannot detect that one treatment ran in
the morning and the other in the afternoon. That order alone gives 28-36 % false positives, so every such result carries
a warning unless the caller knows the order.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.margin import Margin
from meshtrial.stats.comparison import AgainstMargin, Comparison, Design, Effect, Scale, Unit, Warning
from meshtrial.stats.intervals import RankInterval, hodges_lehmann, hodges_lehmann_two, middle_of
from meshtrial.stats.multiplicity import smallest_n, smallest_n_unpaired
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence, detectable_effect, upper_sd
from meshtrial.stats.ranktests import (
    RESOLUTION,
    WORST,
    Alternative,
    FloatArray,
    as_sample,
    rank_sum_p,
    signed_rank_p,
    smallest_p,
    smallest_p_unpaired,
)

# 2^(36/2) sums of each half take a moment only; beyond that the normal limit is exact enough for a warning.
_EXACT_UP_TO = 36


def _signed_sums(d: FloatArray) -> FloatArray:
    """Return the 2^n sums of the values under all patterns of signs."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def sign_flip_p(d: FloatArray) -> float:
    """Return the two-sided p-value of the mean over all sign patterns (Fisher 1935); the normal limit beyond n = 36."""
    n = len(d)
    observed = abs(float(d.sum()))
    if n > _EXACT_UP_TO:
        spread = math.sqrt(float((d * d).sum()))
        return 1.0 if spread == 0 else 2.0 * float(special.ndtr(-observed / spread))
    # Meet in the middle: a sum over all signs is a sum of the first half plus a sum of the second.
    half = n // 2
    first = _signed_sums(d[:half])
    second = np.sort(_signed_sums(d[half:]))
    # Sums that equal the observed one up to rounding count as equal.
    threshold = observed - 1e-12 * float(np.abs(d).sum())
    as_large = len(first) * len(second) - int(np.searchsorted(second, threshold - first).sum())
    return min(1.0, 2.0 * as_large / 2.0**n)


def paired_t_p(mean: float, sd: float, n: int) -> float:
    """Return the two-sided p-value of the one-sample t-test of the mean; 1.0 if nothing varies about zero."""
    if sd == 0:
        return 0.0 if mean else 1.0
    return 2.0 * float(special.stdtr(n - 1, -abs(mean) / sd * math.sqrt(n)))


def paired_t_interval(mean: float, sd: float, n: int, alpha: float) -> tuple[float, float]:
    """Return the mean minus and plus t times its standard error."""
    half = float(special.stdtrit(n - 1, 1 - alpha / 2)) * sd / math.sqrt(n)
    return mean - half, mean + half


METHODS: dict[Design, tuple[str, str]] = {
    "paired": ("exact signed-rank, Hodges-Lehmann", "paired t, model-based, provisional"),
    "unpaired": ("exact Mann-Whitney, Hodges-Lehmann", "Welch t, model-based, provisional"),
}

ORDER_UNKNOWN = Warning(
    "order-unknown",
    "the runs are not paired and their order is unknown: if all runs of one treatment came first, drift alone makes a "
    "third of identical treatments differ; repeat in randomised blocks (`meshtrial plan`)",
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a contrast is tested: the scale of its verdict, its margin, and its family."""

    scale: Scale
    margin: Margin | None
    alpha: float
    m_family: int
    jointly: bool = False

    @property
    def m_floor(self) -> int:
        return 1 if self.jointly else self.m_family


@dataclass(frozen=True, slots=True)
class _Test:
    """An exact test's effect (of ratios in logs), and its one-sided p-value at a given shift."""

    effect: Effect
    p: Callable[[float, Alternative], float]

    @classmethod
    def of(
        cls,
        exact: RankInterval,
        sd: float,
        planned_sd: float,
        p: Callable[[float, Alternative], float],
        provisional: tuple[float, float] | None,  # a model's interval, if there are too few values for an exact one
        alpha: float,
    ) -> _Test:
        if provisional:
            return cls(Effect(exact.estimate, *provisional, 1 - alpha, exact.p, sd, planned_sd), p)
        ends = exact.low_open, exact.high_open
        return cls(Effect(exact.estimate, exact.low, exact.high, exact.confidence, exact.p, sd, planned_sd, *ends), p)


def _comparison(
    unit: Unit,
    treatment: FloatArray,
    baseline: FloatArray,
    tests: Mapping[Scale, _Test],
    asked: _Asked,
    *,
    smallest_p: float,
    floor_n: int,
    detectable: float | None,  # the standardised effect that this number of values can find
) -> Comparison:
    """Return the result as ratios, or in the response's unit."""
    provisional, as_ratio = smallest_p > asked.alpha / asked.m_floor, asked.scale == "ratio"
    design: Design = "unpaired" if unit == "run" else "paired"
    typical = middle_of(np.sort(baseline[np.isfinite(baseline)]))
    failed = bool(np.isinf(treatment).any() or np.isinf(baseline).any())
    mde = None if detectable is None or provisional or failed else detectable * tests[asked.scale].effect.planned_sd
    ratio = tests["ratio"].effect if "ratio" in tests else None
    if ratio is not None:  # the interval remains the image of the tested one
        ratio = replace(ratio, estimate=_exp(ratio.estimate), low=_exp(ratio.low), high=_exp(ratio.high))
    return Comparison(
        design=design,
        unit=unit,
        n_treatment=len(treatment),
        n_baseline=len(baseline),
        scale=asked.scale,
        ratio=ratio,
        difference=tests["difference"].effect,
        baseline_median=typical,
        against=None if asked.margin is None else _against_margin(asked.margin, tests, asked, typical, failed),
        smallest_p=smallest_p,
        floor_n=floor_n,
        mde=_expm1(mde) if mde is not None and as_ratio else mde,
        alpha=asked.alpha,
        m_family=asked.m_family,
        jointly=asked.jointly,
        method=METHODS[design][provisional],
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
            "a ratio needs positive values in every run; if the baseline is zero by construction (data-plane CPU of no "
            "mesh), compare with scale='difference'"
        )


def _positive(treatment: FloatArray, baseline: FloatArray) -> bool:
    return bool(treatment.min() > 0 and baseline.min() > 0)


def _scales(treatment: FloatArray, baseline: FloatArray) -> tuple[Scale, ...]:
    """Return the scales on which these values can be compared."""
    return ("ratio", "difference") if _positive(treatment, baseline) else ("difference",)


def _grain(treatment: FloatArray, baseline: FloatArray) -> float:
    """Return the distance within which values in the response's unit count as equal."""
    return RESOLUTION * max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (treatment, baseline))


Samples = Mapping[Scale, tuple[FloatArray, FloatArray]]  # values of treatment and baseline, by the scale that uses them


def margin_differences(on: Samples, against: AgainstMargin, *, as_ratio: bool) -> tuple[FloatArray, float, float]:
    """Return the block differences that the tests against the margin use, their tie tolerance, and the bound."""
    if against.floor is not None or not as_ratio:
        return *block_differences(*on["difference"], "difference"), against.floor or against.high
    return *block_differences(*on["ratio"], "ratio"), math.log1p(against.relative)


def block_differences(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> tuple[FloatArray, float]:
    """Return one difference per block on the scale of the analysis, and the tolerance within which two are tied.

    If a run ranks worst (infinite), its block's difference is infinite; it is 0 if both runs do.
    """
    _check_scale(treatment, baseline, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        d: FloatArray = treatment - baseline if scale == "difference" else np.log(treatment / baseline)
    d[np.isinf(treatment) & np.isinf(baseline)] = 0.0
    return d, RESOLUTION if scale == "ratio" else _grain(treatment, baseline)


def _against_margin(
    margin: Margin, tests: Mapping[Scale, _Test], asked: _Asked, typical: float, failed: bool
) -> AgainstMargin:
    """Test against the margin, on the scale of the part of it that decides."""
    floor = margin.floor if margin.floor > margin.relative * abs(typical) else None
    if floor is None and "ratio" in tests:
        test, half = tests["ratio"], math.log1p(margin.relative)
    else:
        test, half = tests["difference"], margin.difference(typical)
    sd, alpha, m = test.effect.planned_sd, asked.alpha, asked.m_family
    upward = tests[asked.scale].effect.estimate > 0
    return AgainstMargin(
        high=_exp(math.log(margin.ratio(typical))) if asked.scale == "ratio" else margin.difference(typical),
        relative=margin.relative,
        floor=floor,
        p_equivalence=max(test.p(-half, "greater"), test.p(half, "less")),
        p_material=test.p(half, "greater") if upward else test.p(-half, "less"),
        needed_difference=None if failed else blocks_for_difference(sd, half, alpha=alpha, m=m, jointly=asked.jointly),
        needed_equivalence=None if failed else blocks_for_equivalence(sd, half, alpha=alpha, m=m),
    )


def compare_paired(
    # One value per block, in the same order of blocks and the same (SI) unit. A run that failed on its own is infinite:
    # it ranks worst in the exact test, and interval ends that depend on its size are open.
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    alpha: float = 0.05,  # nominal error rate; the interval is at 1 - alpha
    # Equivalence margin; without one there is no equivalence test and no planned number of blocks
    margin: Margin | None = None,
    scale: Scale = "ratio",  # scale of the effect
    m_family: int = 1,  # contrasts tested together; sets the floor, the minimum detectable effect and the blocks needed
    # Whether the correction leaves one contrast the floor of a family of one, as max-T does
    jointly: bool = False,
    # Values of both from which ratios are taken, if not the same: a session's geometric means
    of_ratios: tuple[FloatArray, FloatArray] | None = None,
    unit: Unit = "block",
) -> Comparison:
    """Compare two treatments over complete blocks, or over sessions with their means.

    Raise UsageError if the samples do not match, are not finite, have fewer than 2 blocks, or are not positive on the
    ratio scale.
    """
    t, b = as_sample(treatment, "treatment", infinite=WORST), as_sample(baseline, "baseline", infinite=WORST)
    if len(t) != len(b):
        raise UsageError(f"paired data need one value per block of both treatments, got {len(t)} and {len(b)}")
    if len(t) < 2:
        raise UsageError("one block shows no noise: at least 2 complete blocks are needed to compare anything")
    on: Samples = {"difference": (t, b), "ratio": of_ratios or (t, b)}
    _check_scale(*on["ratio"], scale)
    n, asked = len(t), _Asked(scale, margin, alpha, m_family, jointly)
    provisional = smallest_p(n) > alpha / asked.m_floor
    found = _comparison(
        unit,
        t,
        b,
        {one: _paired_test(*on[one], one, alpha, provisional) for one in _scales(*on["ratio"])},
        asked,
        smallest_p=smallest_p(n),
        floor_n=smallest_n(asked.m_floor, alpha),
        detectable=detectable_effect(n, alpha=alpha, m=m_family, jointly=jointly),
    )
    d, atol = block_differences(*on[scale], scale)
    if np.isfinite(t).all() and np.isfinite(b).all():  # infinite values have no mean
        found = replace(found, p_sign_flip=sign_flip_p(d), p_paired_t=paired_t_p(_mean(d), _sd(d), n))
    zeros = int(((np.abs(d) <= atol) & np.isfinite(t)).sum())
    return replace(found, warnings=tuple(_paired_warnings(found, zeros)))


def _paired_test(treatment: FloatArray, baseline: FloatArray, scale: Scale, alpha: float, provisional: bool) -> _Test:
    d, atol = block_differences(treatment, baseline, scale)
    d = d[np.isfinite(treatment) | np.isfinite(baseline)]  # where both rank worst, no shift orders them
    exact, usual = hodges_lehmann(d, alpha, atol=atol, worst=True), d[np.isfinite(d)]
    sd = _sd(usual) if len(usual) > 1 else 0.0
    ends = paired_t_interval(_mean(usual), sd, len(usual), alpha) if provisional and len(usual) > 1 else None
    if provisional and len(usual) < len(d):
        low, high = ends or (-math.inf, math.inf)
        ends = -math.inf if (d == -math.inf).any() else low, math.inf if (d == math.inf).any() else high
    planned_sd = upper_sd(sd, len(usual)) if len(usual) > 1 else 0.0
    return _Test.of(exact, sd, planned_sd, lambda shift, side: signed_rank_p(d - shift, side, atol), ends, alpha)


def _mean(d: FloatArray) -> float:
    return math.fsum(d.tolist()) / len(d)


def _sd(d: FloatArray) -> float:
    rest = d - _mean(d)
    return math.sqrt(float(rest @ rest) / (len(d) - 1))


def _paired_warnings(c: Comparison, zeros: int) -> list[Warning]:
    notes = []
    n, p, p_flip, p_t = c.n, c.effect.p, c.p_sign_flip, c.p_paired_t
    if c.provisional:
        text = (
            f"{n} {c.counted} cannot go below p = {c.smallest_p:.3g}; a family of {c.m_floor} needs at least "
            f"{c.floor_n}: run {c.floor_n - n} more"
        )
        notes.append(Warning("below-floor", text))
    elif p_flip is not None and p_t is not None and len({one <= c.alpha for one in (p, p_flip, p_t)}) > 1:
        text = (
            f"signed-rank p = {p:.3g}, sign-flip p = {p_flip:.3g}, paired t p = {p_t:.3g}: a few {c.counted} dominate "
            f"the mean; look at the single {c.counted}, and measure a new, larger study before acting on this contrast"
        )
        notes.append(Warning("tests-disagree", text))
    if zeros:
        text = (
            f"{zeros} of {n} {c.counted} show exactly no change and the test drops them: the measurement is too "
            "coarse; use a finer quantile or counter"
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
    order_known: bool = False,  # whether the caller has checked the order of the runs
) -> Comparison:
    """Compare unpaired treatments; warn ``order-unknown`` unless the order is known.

    Raise UsageError as `compare_paired` does.
    """
    t, b = as_sample(treatment, "treatment"), as_sample(baseline, "baseline")
    if min(len(t), len(b)) < 2:
        raise UsageError(f"{len(t)} run(s) against {len(b)}: one run shows no noise; each treatment needs at least 2")
    _check_scale(t, b, scale)
    asked = _Asked(scale, margin, alpha, m_family)
    least, floor = smallest_p_unpaired(len(t), len(b)), smallest_n_unpaired(m_family, alpha)
    provisional = least > alpha / m_family
    found = _comparison(
        "run",
        t,
        b,
        {on: _unpaired_test(t, b, on, alpha, provisional) for on in _scales(t, b)},
        asked,
        smallest_p=least,
        floor_n=floor,
        detectable=detectable_effect(max(min(len(t), len(b)), 4), alpha=alpha, m=m_family),
    )
    if (against := found.against) is not None:
        difference, equivalence = (max(floor, n or 0) for n in (against.needed_difference, against.needed_equivalence))
        against = replace(against, needed_difference=difference, needed_equivalence=equivalence)
    notes = [] if order_known else [ORDER_UNKNOWN]
    if provisional:
        text = (
            f"{len(t)} against {len(b)} runs cannot go below p = {least:.3g}; {floor} of each treatment can reach "
            f"{alpha:g} in a family of {m_family}: add runs, in randomised blocks"
        )
        notes.append(Warning("below-floor", text))
    return replace(found, against=against, warnings=tuple(notes))


def _unpaired_test(treatment: FloatArray, baseline: FloatArray, scale: Scale, alpha: float, provisional: bool) -> _Test:
    x, y, atol = treatment, baseline, RESOLUTION
    if scale == "ratio":
        x, y = np.log(x), np.log(y)
    else:
        atol = _grain(x, y)
    exact, ends = hodges_lehmann_two(x, y, alpha, atol=atol), _welch_interval(x, y, alpha) if provisional else None
    sd = _pooled_sd(x, y)
    planned_sd = upper_sd(sd, len(x) + len(y) - 1)  # pooled over both samples' degrees of freedom
    return _Test.of(exact, sd, planned_sd, lambda shift, side: rank_sum_p(x - shift, y, side, atol), ends, alpha)


def _pooled_sd(x: FloatArray, y: FloatArray) -> float:
    """Return the standard deviation of the difference of two runs."""
    pooled = (x.var(ddof=1) * (len(x) - 1) + y.var(ddof=1) * (len(y) - 1)) / (len(x) + len(y) - 2)
    return math.sqrt(2 * float(pooled))


def _welch_interval(x: FloatArray, y: FloatArray, alpha: float) -> tuple[float, float]:
    if np.ptp(x) == 0 and np.ptp(y) == 0:
        middle = float(x.mean() - y.mean())
        return middle, middle
    # scipy.stats takes a moment to load, and only samples that are too small need it.
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # Equal values in one sample are expected; the other sample's noise makes the interval.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        interval = ttest_ind(x, y, equal_var=False).confidence_interval(1 - alpha)
    return float(interval.low), float(interval.high)
