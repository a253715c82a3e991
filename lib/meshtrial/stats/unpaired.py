"""One contrast of results that are not paired: the honest second best, for runs that somebody already has.

The exact Mann-Whitney test treats the runs of both arms as exchangeable. It cannot know whether one arm ran in the
morning and the other in the afternoon; that order alone gives 28-36 % false positives (METHOD.md), so every result
carries the warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Scale
from meshtrial.stats.contrast import RESOLUTION, margin_bounds
from meshtrial.stats.equivalence import Margin
from meshtrial.stats.hodges_lehmann import middle_of
from meshtrial.stats.mannwhitney import hodges_lehmann_two, mann_whitney, smallest_p_unpaired
from meshtrial.stats.multiplicity import smallest_n_unpaired
from meshtrial.stats.power import blocks_for_difference, blocks_for_equivalence, detectable_effect
from meshtrial.stats.ranknull import FloatArray
from meshtrial.stats.signedrank import as_sample
from meshtrial.stats.warning import Warning

UNPAIRED_METHOD = "exact Mann-Whitney, Hodges-Lehmann"

ORDER_UNKNOWN = Warning(
    "order-unknown",
    "the runs are not paired and their order is unknown: if all runs of one arm came before the other's, a third of "
    "such verdicts is false; repeat in randomised blocks (`meshtrial plan`) before acting on this",
)


@dataclass(frozen=True, slots=True)
class UnpairedComparison:
    """A treatment against a baseline, runs not paired.

    Attributes
    ----------
    n_treatment, n_baseline : int
        Runs.
    scale, estimate, ci_low, ci_high, ci_low_open, ci_high_open, confidence, p, smallest_p, p_equivalence, alpha,
    m_family, method, warnings
        As in `meshtrial.stats.contrast.PairedComparison`, with the two-sample Hodges-Lehmann shift and the exact
        Mann-Whitney test.
    difference, difference_low, difference_high, baseline_median, margin_low, margin_high, mde
        As there.
    sd : float
        Standard deviation of the difference of two single runs: sqrt(2) times the pooled one.
    needed_difference, needed_equivalence : int or None
        Runs in each arm.
    floor_n : int
        Fewest runs in each arm (equal arms) that can reach alpha in this family.
    """

    n_treatment: int
    n_baseline: int
    scale: Scale
    estimate: float
    ci_low: float
    ci_high: float
    ci_low_open: bool
    ci_high_open: bool
    confidence: float
    p: float
    smallest_p: float
    p_equivalence: float | None
    difference: float
    difference_low: float
    difference_high: float
    baseline_median: float
    margin_low: float | None
    margin_high: float | None
    sd: float
    mde: float | None
    needed_difference: int | None
    needed_equivalence: int | None
    floor_n: int
    alpha: float
    m_family: int
    method: str
    warnings: tuple[Warning, ...]

    @property
    def n(self) -> int:
        """Runs of the smaller arm."""
        return min(self.n_treatment, self.n_baseline)

    @property
    def no_effect(self) -> float:
        """The value of `estimate` that means no effect."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def provisional(self) -> bool:
        """Whether there are too few runs for the exact inference."""
        return self.smallest_p > self.alpha / self.m_family

    @property
    def excludes_no_effect(self) -> bool:
        """Whether the interval leaves out "no effect", open ends counting as left out."""
        null = self.no_effect
        below = self.ci_low > null or (self.ci_low_open and self.ci_low == null)
        above = self.ci_high < null or (self.ci_high_open and self.ci_high == null)
        return below or above


def _welch_interval(x: FloatArray, y: FloatArray, alpha: float) -> tuple[float, float]:
    parts = np.array([x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)])
    error = math.sqrt(float(parts.sum()))
    middle = float(x.mean() - y.mean())
    if error == 0:
        return middle, middle
    df = float(parts.sum() ** 2 / (parts**2 / (np.array([len(x), len(y)]) - 1)).sum())
    half = float(special.stdtrit(df, 1 - alpha / 2)) * error
    return middle - half, middle + half


def compare_unpaired(
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    alpha: float = 0.05,
    margin: Margin | None = None,
    scale: Scale = "ratio",
    m_family: int = 1,
) -> UnpairedComparison:
    """Compare two arms whose runs are not paired.

    Parameters
    ----------
    treatment, baseline : (n_t,), (n_b,) array_like
        One value a run, in the same (SI) unit.
    alpha, margin, scale, m_family
        As in `meshtrial.stats.contrast.compare_paired`.

    Returns
    -------
    UnpairedComparison
        Always with the warning ``order-unknown``.

    Raises
    ------
    UsageError
        If a sample is not finite, has fewer than 2 runs, or is not positive on the ratio scale.
    """
    t, b = as_sample(treatment, "treatment"), as_sample(baseline, "baseline")
    if min(len(t), len(b)) < 2:
        raise UsageError(f"{len(t)} run(s) against {len(b)}: one run shows no noise; at least 2 in each arm are needed")
    if scale == "ratio":
        if not (t.min() > 0 and b.min() > 0):
            raise UsageError("a ratio needs positive values in every run; compare with scale='difference'")
        x, y, atol = np.log(t), np.log(b), RESOLUTION
    elif scale == "difference":
        x, y, atol = t, b, RESOLUTION * float(max(np.abs(t).max(), np.abs(b).max()))
    else:
        raise UsageError(f"scale must be 'ratio' or 'difference', got {scale!r}")

    typical = middle_of(np.sort(b))
    pooled = (x.var(ddof=1) * (len(x) - 1) + y.var(ddof=1) * (len(y) - 1)) / (len(x) + len(y) - 2)
    sd = math.sqrt(2 * float(pooled))
    least = smallest_p_unpaired(len(t), len(b))
    floor = smallest_n_unpaired(m_family, alpha)
    provisional = least > alpha / m_family
    exact = hodges_lehmann_two(x, y, alpha, atol=atol)
    low, high, confidence = exact.low, exact.high, exact.confidence
    warnings = [ORDER_UNKNOWN]
    if provisional:
        low, high = _welch_interval(x, y, alpha)
        confidence = 1 - alpha
        text = (
            f"{len(t)} against {len(b)} runs cannot go below p = {least:.3g}; {floor} in each arm can reach {alpha:g}"
        )
        warnings.append(Warning("below-floor", f"{text} in a family of {m_family}: add runs, in randomised blocks"))

    p_eq = bound = runs_d = runs_e = None
    if margin is not None:
        lower, bound = margin_bounds(margin, typical, scale)
        above = mann_whitney(x - lower, y, "greater", atol=atol).p
        p_eq = max(above, mann_whitney(x - bound, y, "less", atol=atol).p)
        runs_d = max(floor, blocks_for_difference(sd, bound, alpha=alpha, m=m_family))
        runs_e = max(floor, blocks_for_equivalence(sd, bound, alpha=alpha, m=m_family))
    effect = None if provisional else detectable_effect(max(min(len(t), len(b)), 4), alpha=alpha, m=m_family)
    mde = None if effect is None else effect * sd

    def shown(value: float) -> float:
        return math.exp(min(value, 700.0)) if scale == "ratio" else value

    def added(value: float) -> float:
        return math.expm1(min(value, 700.0)) * typical if scale == "ratio" else value

    return UnpairedComparison(
        n_treatment=len(t),
        n_baseline=len(b),
        scale=scale,
        estimate=shown(exact.estimate),
        ci_low=shown(low),
        ci_high=shown(high),
        ci_low_open=exact.low_open and not provisional,
        ci_high_open=exact.high_open and not provisional,
        confidence=confidence,
        p=exact.p,
        smallest_p=least,
        p_equivalence=p_eq,
        difference=added(exact.estimate),
        difference_low=added(low),
        difference_high=added(high),
        baseline_median=typical,
        margin_low=None if bound is None else shown(-bound),
        margin_high=None if bound is None else shown(bound),
        sd=sd,
        mde=math.expm1(mde) if mde is not None and scale == "ratio" else mde,
        needed_difference=runs_d,
        needed_equivalence=runs_e,
        floor_n=floor,
        alpha=alpha,
        m_family=m_family,
        method="Welch t, model-based, provisional" if provisional else UNPAIRED_METHOD,
        warnings=tuple(warnings),
    )
