"""How much the instrument itself moves when nothing differs: the A/A noise floor and the components of variance.

**Noise floor.** The baseline and its twin ``none-aa`` are the same treatment, so whatever their contrast shows is
noise. The floor is the size of that apparent effect: |Hodges-Lehmann estimate| of the A/A contrast, as a ratio minus
one (or in the response's unit), and noisy itself; `low` and `upper` are the ends of its interval. What makes a family
`unstable` is a test and not that estimate, which exceeds the margin by chance in a fifth to a third of healthy studies:
see `NoiseFloor.noise_exceeds_margin`.

**Components.** What varies between fresh deployments is not seen within one. Slices of a deployment are nested in it
and never count as n (Kalibera & Jones 2013, sections 4 and 6).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.errors import UsageError
from meshtrial.stats.comparison import Comparison
from meshtrial.stats.contrast import RESOLUTION

# two blocks' worth of chance less than the usual 5 %: this test stands beside every other one of the study
SHAKEN_P = 0.01
# a share of the variance within that an optimiser cannot tell from none
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What the study's own A/A contrast shows."""

    floor: float  # size of the apparent effect: max(ratio, 1/ratio) - 1, or |difference| in the response's unit
    # Smallest and largest effect inside the A/A interval, in the same terms; low is 0 where the interval holds none
    low: float
    upper: float
    p: float  # exact p-value of the A/A contrast; it should not be small
    level: float = SHAKEN_P  # at which its test rejects: 1 %, or the smallest p-value that six or seven blocks can give

    def noise_exceeds_margin(self, margin: float | None) -> bool:
        """Whether the A/A contrast shows that the run-to-run model does not hold at the size of the margin.

        Nothing differs between baseline and twin, so either their interval lies wholly beyond the margin, or their
        test rejects at its level while effects beyond the margin are not excluded. A margin is a ratio minus one, or in
        the response's unit.
        """
        beyond = margin is not None and self.low > margin
        within = margin is not None and self.upper <= margin
        return beyond or (self.p <= self.level and not within)


def noise_floor(twin: Comparison) -> NoiseFloor:
    """Noise floor from the paired contrast of the baseline's twin with the baseline."""
    effect = twin.effect
    size, *ends = (effect_size(value, twin.scale) for value in (effect.estimate, effect.low, effect.high))
    low = min(ends) if twin.excludes_no_effect else 0.0
    # Below the floor the interval is model-based and holds alone.
    level = SHAKEN_P if twin.provisional else max(SHAKEN_P, twin.smallest_p)
    return NoiseFloor(size, low, max(ends), effect.p, level)


def effect_size(value: float, scale: str) -> float:
    """Distance from "no effect", the same in both directions: max(r, 1/r) - 1 for a ratio, |x| for a difference."""
    if scale == "difference":
        return abs(value)
    if value <= 0:
        return math.inf
    return max(value, 1 / value) - 1


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Nested variance of a response: fresh deployments, and slices measured within one."""

    # Variances between deployments and between the slices of one, in the square of the data's unit (log data: relative
    # variances)
    between: float
    within: float

    def run_variance(self, slices: int) -> float:
        """Variance of a run that averages `slices` slices of one deployment."""
        return self.between + self.within / slices


def variance_components(deployments: Sequence[ArrayLike]) -> VarianceComponents:
    """Restricted maximum likelihood for slices nested in deployments (statsmodels' ``MixedLM``).

    The slices of each deployment are on the scale of the analysis, logs for ratios. UsageError with fewer than two
    deployments, or no deployment with two slices.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in deployments]
    if any(g.ndim != 1 or len(g) == 0 or not np.isfinite(g).all() for g in groups):
        raise UsageError("every deployment needs at least one finite slice")
    sizes = [len(g) for g in groups]
    if len(groups) < 2 or sum(sizes) == len(groups):
        raise UsageError(
            f"{len(groups)} deployments with {sum(sizes)} slices cannot tell the two levels apart: "
            "measure at least 2 fresh deployments, one of them at least twice"
        )
    largest = max(float(np.abs(g).max()) for g in groups)
    if all(
        np.ptp(g) <= RESOLUTION * largest for g in groups
    ):  # nothing varies inside a deployment: there is nothing to fit
        return VarianceComponents(float(np.var([g.mean() for g in groups], ddof=1)), 0.0)
    # statsmodels takes a second to load, which only plans with several slices need
    from statsmodels.regression.mixed_linear_model import MixedLM
    from statsmodels.tools.sm_exceptions import ConvergenceWarning

    values = np.concatenate(groups)
    # in units of the whole spread, so that the optimiser's tolerance suits latencies and megabytes alike
    unit = float(values.std())
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    with warnings.catch_warnings():
        # deployments that hardly differ put the estimate on the boundary, which is an answer and not a failure
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MixedLM((values - values.mean()) / unit, np.ones(len(values)), labels)
        # Powell's search needs no gradient, which has no meaning on the boundary
        fit = model.fit(reml=True, method="powell", ftol=1e-12)
    between, within = (float(part) * unit**2 for part in (fit.cov_re[0, 0], fit.scale))
    return VarianceComponents(between if between > _NOTHING * within else 0.0, within)


def best_slices(components: VarianceComponents, cost_outer: float, cost_inner: float, *, most: int = 100) -> int:
    """Cheapest number of slices a deployment (Kalibera & Jones 2013, section 6.2), from 1 to `most`.

    The costs are seconds: of a fresh deployment beside its slices, and of a slice. `most` is reached where deployments
    hardly differ.
    """
    if not (cost_outer >= 0 and cost_inner > 0):
        raise UsageError(f"costs are seconds: outer >= 0 and inner > 0, got {cost_outer} and {cost_inner}")
    if components.between <= 0:
        return most
    ideal = math.sqrt(cost_outer / cost_inner * components.within / components.between)
    return min(most, max(1, math.ceil(ideal - 1e-9)))
