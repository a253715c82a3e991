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
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.margin import Margin
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
from meshtrial.vocabulary import Scale, Unit, Warning

Design = Literal["paired", "unpaired"]


@dataclass(frozen=True, slots=True)
class Effect(RankInterval):
    """One effect with its exact test: treatment/baseline, or treatment - baseline in the response's unit.

    Nothing is corrected for the family. Unless the interval is provisional, it excludes "no effect" exactly where
    p <= alpha.
    """

    # Standard deviation of the difference of two runs, of log ratios or in the response's unit: paired, that of the
    # block differences; unpaired, sqrt(2) times the pooled one
    sd: float = field(kw_only=True)
    # Its upper confidence limit (70 %), with which new studies are planned: plans made with the estimate itself keep
    # their power in half of the cases only
    planned_sd: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class AgainstMargin:
    """Both tests against the margin, and the size of a study that each of them needs."""

    high: float  # upper equivalence bound, on the effect's scale; the lower one is its mirror image
    relative: float  # the relative part, as declared
    # The absolute floor in the response's unit, if it is larger than the relative part and therefore decides. Both
    # tests use the scale of the deciding part, because a floor as a ratio, or a share as a difference, would depend on
    # this study's own baseline.
    floor: float | None
    scale: Scale  # of both tests
    half: float  # the margin on that scale, for a ratio in logs
    p_equivalence: float  # two one-sided tests
    p_material: float  # one-sided, in the direction of the estimate: the effect is no larger than the margin
    # Blocks, or runs of each treatment, that find an effect of the margin's size with a power of 0.8, or that show
    # equivalence if there is no effect; planned with `Effect.planned_sd`. None if runs rank worst: no formula accounts
    # for such failures, and a plan without them has half of the promised power.
    needed_difference: int | None
    needed_equivalence: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A treatment compared with a baseline."""

    unit: Unit  # blocks or sessions: exact signed-rank test; unpaired runs: exact Mann-Whitney test
    n: int  # complete blocks or sessions, or runs of the smaller sample
    scale: Scale  # of the effect that carries the verdict, of its margin and of `mde`
    ratio: Effect | None  # tested as log ratios; None if a value is not positive
    # Tested as differences of the values themselves; it is not the ratio times the baseline's median
    difference: Effect
    baseline_median: float  # in the response's unit
    against: AgainstMargin | None  # None without a margin
    smallest_p: float  # the smallest p-value that this number of values can give
    floor_n: int  # fewest units that can reach alpha in this family
    # Minimum detectable effect at power 0.8, alpha/m_family and `Effect.planned_sd`: ratio - 1, or in the response's
    # unit. None below the floor, and if runs rank worst.
    mde: float | None
    alpha: float  # nominal error rate
    m_family: int  # number of contrasts in the family
    jointly: bool  # whether the correction leaves the floor of one contrast unchanged, as max-T does
    method: str  # how the interval was computed
    warnings: tuple[Warning, ...] = ()
    # Cross-checks of a paired contrast; they only warn
    p_sign_flip: float | None = None
    p_paired_t: float | None = None
    coarse: bool = False  # whether the interval was widened by the buckets of histograms

    @property
    def effect(self) -> Effect:
        """The effect that carries the verdict."""
        return self.ratio if self.scale == "ratio" and self.ratio else self.difference

    @property
    def counted(self) -> str:
        """Name of what `n` counts."""
        return "runs of each treatment" if self.unit == "run" else f"{self.unit}s"

    @property
    def no_effect(self) -> float:
        """The value of the effect that means "no effect"."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def m_floor(self) -> int:
        """Number by which the correction divides alpha for the most extreme contrast."""
        return 1 if self.jointly else self.m_family

    @property
    def provisional(self) -> bool:
        """Whether there are too few values for exact inference."""
        return self.smallest_p > self.alpha / self.m_floor

    @property
    def excludes_no_effect(self) -> bool:
        """Whether "no effect" lies outside the interval; an open end counts as outside."""
        return self.effect.excludes(self.no_effect)

    @property
    def margin(self) -> float | None:
        """Effective margin: a ratio minus one, or in the response's unit; None without one."""
        return None if self.against is None else self.against.high - self.no_effect

    def interval_is(self, where: Literal["within", "beyond"]) -> bool:
        """Whether the whole interval lies within the margin, or beyond it on one side; False without a margin."""
        if self.against is None:
            return False
        effect, high = self.effect, self.against.high
        low = 1 / high if self.scale == "ratio" else -high
        if where == "within":
            return low < effect.low and effect.high < high
        return effect.low > high or effect.high < low

    def widened(self, treatment: float, baseline: float) -> Comparison:
        """Return the comparison with its ratio interval widened by the bucket widths of histograms.

        A quantile lies somewhere in its bucket, and its position there is the same in every run. No number of runs
        removes that error, and no test detects it. `treatment` and `baseline` are the widths of the two buckets as
        shares of the quantiles. A comparison on the difference scale is returned unchanged.
        """
        ratio, difference = self.ratio, self.difference
        if self.scale != "ratio" or ratio is None or not treatment + baseline > 0:
            return self
        low = ratio.low * max(0.0, 1 - treatment) / (1 + baseline)
        high = ratio.high * (1 + treatment) / (1 - baseline) if baseline < 1 else math.inf
        unknown = (treatment * ratio.estimate + baseline) * self.baseline_median
        return replace(
            self,
            ratio=replace(ratio, low=low, high=high, low_open=False, high_open=False),
            difference=replace(difference, low=difference.low - unknown, high=difference.high + unknown),
            coarse=True,
        )


# 2^(36/2) sums of each half take a moment only; beyond that the normal limit is exact enough for a warning.
_EXACT_UP_TO = 36


def _signed_sums(d: FloatArray) -> FloatArray:
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
class _Test:
    """An exact test's effect (of ratios in logs), and its one-sided p-value at a given shift."""

    effect: Effect
    p: Callable[[float, Alternative], float]


_Tests = Mapping[Scale, _Test]


def _effect(exact: RankInterval, sd: float, planned_sd: float, model: tuple[float, float] | None) -> Effect:
    """Return the exact effect; with a model's interval if there are too few values for an exact one."""
    effect = Effect(**asdict(exact), sd=sd, planned_sd=planned_sd)
    if model is None:
        return effect
    low, high = model
    return replace(effect, low=low, high=high, confidence=1 - exact.alpha, low_open=False, high_open=False)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _comparison(
    treatment: FloatArray,
    baseline: FloatArray,
    tests: _Tests,
    margin: Margin | None,
    *,
    unit: Unit,
    scale: Scale,
    alpha: float,
    m_family: int,
    jointly: bool,
    smallest_p: float,
    floor_n: int,
    detectable: float | None,  # the standardised effect that this number of values can find
) -> Comparison:
    """Return the result as ratios, or in the response's unit."""
    design: Design = "unpaired" if unit == "run" else "paired"
    ratio = tests["ratio"].effect if "ratio" in tests else None
    if ratio is not None:  # the interval remains the image of the tested one
        low, high = _exp(ratio.low), _exp(ratio.high)
        ratio = replace(ratio, estimate=_exp(ratio.estimate), low=low, high=high, null=1.0)
    found = Comparison(
        unit=unit,
        n=min(len(treatment), len(baseline)),
        scale=scale,
        ratio=ratio,
        difference=tests["difference"].effect,
        baseline_median=middle_of(np.sort(baseline[np.isfinite(baseline)])),
        against=None,
        smallest_p=smallest_p,
        floor_n=floor_n,
        mde=None,
        alpha=alpha,
        m_family=m_family,
        jointly=jointly,
        method=METHODS[design][0],
    )
    found = replace(found, method=METHODS[design][found.provisional])
    failed = bool(np.isinf(treatment).any() or np.isinf(baseline).any())
    if detectable is not None and not found.provisional and not failed:
        mde = detectable * tests[scale].effect.planned_sd
        if scale == "ratio":
            mde = math.expm1(mde) if mde < 700 else math.inf
        found = replace(found, mde=mde)
    return found if margin is None else replace(found, against=_against_margin(margin, tests, found, failed))


def _against_margin(margin: Margin, tests: _Tests, c: Comparison, failed: bool) -> AgainstMargin:
    """Test against the margin, on the scale of the part of it that decides."""
    typical = c.baseline_median
    floor = margin.floor if margin.floor > margin.relative * abs(typical) else None
    scale: Scale = "ratio" if floor is None and "ratio" in tests else "difference"
    test, half = tests[scale], math.log1p(margin.relative) if scale == "ratio" else margin.difference(typical)
    sd, alpha, m = test.effect.planned_sd, c.alpha, c.m_family
    upward = tests[c.scale].effect.estimate > 0
    return AgainstMargin(
        high=_exp(math.log(margin.ratio(typical))) if c.scale == "ratio" else margin.difference(typical),
        relative=margin.relative,
        floor=floor,
        scale=scale,
        half=half,
        p_equivalence=max(test.p(-half, "greater"), test.p(half, "less")),
        p_material=test.p(half, "greater") if upward else test.p(-half, "less"),
        needed_difference=None if failed else blocks_for_difference(sd, half, alpha=alpha, m=m, jointly=c.jointly),
        needed_equivalence=None if failed else blocks_for_equivalence(sd, half, alpha=alpha, m=m),
    )


Samples = Mapping[Scale, tuple[FloatArray, FloatArray]]  # values of treatment and baseline, by the scale that uses them


def _scales(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> tuple[Scale, ...]:
    """Return the scales on which these values can be compared; raise UsageError unless `scale` is one of them."""
    if treatment.min() > 0 and baseline.min() > 0:
        return ("ratio", "difference")
    if scale == "ratio":
        raise UsageError(
            "a ratio needs positive values in every run; if the baseline is zero by construction (data-plane CPU of no "
            "mesh), compare with scale='difference'"
        )
    return ("difference",)


def _resolution(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> float:
    """Return the distance within which values of the analysis count as equal."""
    if scale == "ratio":
        return RESOLUTION
    return RESOLUTION * max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (treatment, baseline))


def block_differences(treatment: FloatArray, baseline: FloatArray, scale: Scale) -> tuple[FloatArray, float]:
    """Return one difference per block on the scale of the analysis, and the tolerance within which two are tied.

    If a run ranks worst (infinite), its block's difference is infinite; it is 0 if both runs do.
    """
    _scales(treatment, baseline, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        d: FloatArray = treatment - baseline if scale == "difference" else np.log(treatment / baseline)
    d[np.isinf(treatment) & np.isinf(baseline)] = 0.0
    return d, _resolution(treatment, baseline, scale)


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
    n, m_floor = len(t), 1 if jointly else m_family
    provisional = smallest_p(n) > alpha / m_floor
    found = _comparison(
        t,
        b,
        {one: _paired_test(*on[one], one, alpha, provisional) for one in _scales(*on["ratio"], scale)},
        margin,
        unit=unit,
        scale=scale,
        alpha=alpha,
        m_family=m_family,
        jointly=jointly,
        smallest_p=smallest_p(n),
        floor_n=smallest_n(m_floor, alpha),
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
    return _Test(_effect(exact, sd, planned_sd, ends), lambda shift, side: signed_rank_p(d - shift, side, atol))


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
    least, floor = smallest_p_unpaired(len(t), len(b)), smallest_n_unpaired(m_family, alpha)
    provisional = least > alpha / m_family
    found = _comparison(
        t,
        b,
        {on: _unpaired_test(t, b, on, alpha, provisional) for on in _scales(t, b, scale)},
        margin,
        unit="run",
        scale=scale,
        alpha=alpha,
        m_family=m_family,
        jointly=False,
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
    x, y, atol = treatment, baseline, _resolution(treatment, baseline, scale)
    if scale == "ratio":
        x, y = np.log(x), np.log(y)
    exact, ends = hodges_lehmann_two(x, y, alpha, atol=atol), _welch_interval(x, y, alpha) if provisional else None
    pooled = (x.var(ddof=1) * (len(x) - 1) + y.var(ddof=1) * (len(y) - 1)) / (len(x) + len(y) - 2)
    sd = math.sqrt(2 * float(pooled))  # of the difference of two runs
    planned_sd = upper_sd(sd, len(x) + len(y) - 1)  # pooled over both samples' degrees of freedom
    return _Test(_effect(exact, sd, planned_sd, ends), lambda shift, side: rank_sum_p(x - shift, y, side, atol))


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
