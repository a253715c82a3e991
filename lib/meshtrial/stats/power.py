"""Planning: how many blocks a margin costs, and the smallest effect that n blocks can see.

The formulas of METHOD.md, "Analysis of one contrast": the paired t-test's power divided by 0.955, the asymptotic
efficiency of the signed-rank test under normal noise (Hodges & Lehmann 1956); never fewer than the exact test's own
floor. They equal ``statsmodels.stats.power.TTestPower``, solved on a table so that a thousand contrasts cost nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from meshtrial.errors import UsageError
from meshtrial.stats.multiplicity import smallest_n
from meshtrial.stats.ranknull import FloatArray

EFFICIENCY = 0.955
_TABLE = 512


def _power(n: FloatArray, effect: FloatArray, alpha: float) -> FloatArray:
    """Power of the two-sided one-sample t-test; `n` need not be whole."""
    df, shift = n - 1, effect * np.sqrt(n)
    edge = special.stdtrit(df, 1 - alpha / 2)
    reached: FloatArray = 1 - special.nctdtr(df, shift, edge) + special.nctdtr(df, shift, -edge)
    return reached


@lru_cache(maxsize=256)
def _detectable(alpha: float, power: float) -> FloatArray:
    """Standardised effect found with `power` at N = 0, 1, ... blocks (infinite below 4), by bisection."""
    blocks = np.arange(4, _TABLE + 1, dtype=np.float64)
    n = blocks * EFFICIENCY
    # twice the critical value is found nearly always, and keeps the noncentral t in its accurate range
    low, high = np.zeros_like(n), (2 * special.stdtrit(n - 1, 1 - alpha / 2) + 3) / np.sqrt(n)
    for _ in range(50):
        middle = (low + high) / 2
        enough = _power(n, middle, alpha) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.concatenate((np.full(4, math.inf), high))


@lru_cache(maxsize=256)
def _falling(alpha: float, power: float) -> FloatArray:
    """The same table with its sign turned, ascending for a search."""
    return -_detectable(alpha, power)


def detectable_effect(n: int, *, alpha: float = 0.05, m: int = 1, power: float = 0.8) -> float | None:
    """Smallest standardised effect (mean/sd of the block differences) found with `power` at n blocks.

    Parameters
    ----------
    n : int
        Blocks.
    alpha, m : float, int
        Family-wise error and the contrasts of the family: tested at alpha/m, Holm's first step.
    power : float
        Wanted power.

    Returns
    -------
    float or None
        None where n is below the exact test's floor: then no effect, however large, can be found.
    """
    if n < smallest_n(m, alpha):
        return None
    if n <= _TABLE:
        return float(_detectable(alpha / m, power)[n])
    return (float(special.ndtri(1 - alpha / m / 2)) + float(special.ndtri(power))) / math.sqrt(n * EFFICIENCY)


def blocks_for_difference(sd: float, margin: float, *, alpha: float = 0.05, m: int = 1, power: float = 0.8) -> int:
    """Blocks with which a true effect of `margin` is found with `power`.

    Parameters
    ----------
    sd : float
        Standard deviation of the block differences (log ratios, or the response's unit).
    margin : float
        The effect to be found, on the same scale: ln(1.05) for 5 %.
    alpha, m, power
        As in `detectable_effect`.

    Returns
    -------
    int
        ``ceil(TTestPower().solve_power(margin/sd, alpha=alpha/m, power=power) / 0.955)``, at least the floor.

    Raises
    ------
    UsageError
        If sd is negative or margin is not positive.
    """
    effect = _effect(sd, margin)
    floor = smallest_n(m, alpha)
    table = _falling(alpha / m, power)
    if -effect <= table[-1]:
        return max(floor, int(table.searchsorted(-effect)))  # the first number of blocks that sees the effect
    z = float(special.ndtri(1 - alpha / m / 2)) + float(special.ndtri(power))
    return max(floor, _whole((z / effect) ** 2 / EFFICIENCY))


def blocks_for_equivalence(
    sd: float, margin: float, *, effect: float = 0.0, alpha: float = 0.05, m: int = 1, power: float = 0.8
) -> int:
    """Blocks with which two arms are shown to be equivalent with `power`.

    Parameters
    ----------
    sd, margin : float
        As in `blocks_for_difference`.
    effect : float
        The true effect; 0 for arms that do not differ. It uses up part of the margin.
    alpha, m, power
        As in `detectable_effect`. With no effect both one-sided tests must succeed, hence z((1 + power)/2): z(.9) at
        .8.

    Returns
    -------
    int
        ``((z(1 - alpha/m) + z(.9)) sd/margin)^2 / .955``, at least the floor.

    Raises
    ------
    UsageError
        If sd is negative, margin not positive, or the effect not inside the margin.
    """
    if abs(effect) >= margin:
        raise UsageError(
            f"an effect of {effect:g} is not inside the margin {margin:g}: no number of blocks shows equivalence"
        )
    distance = _effect(sd, margin - abs(effect))
    z = float(special.ndtri(1 - alpha / m)) + float(special.ndtri((1 + power) / 2))
    return max(smallest_n(m, alpha, "equivalence"), _whole((z / distance) ** 2 / EFFICIENCY))


def _effect(sd: float, margin: float) -> float:
    if not (sd >= 0 and math.isfinite(sd)) or not margin > 0:
        raise UsageError(f"planning needs a noise of at least 0 and a positive margin, got sd={sd}, margin={margin}")
    return margin / sd if sd > 0 else math.inf


def _whole(n: float) -> int:
    return math.ceil(min(n, 1e9))


def study_seconds(blocks: int, arms: int, seconds_per_run: float) -> float:
    """Wall time of a study: every block deploys and measures every arm once, one after the other.

    Parameters
    ----------
    blocks : int
        Blocks of the plan.
    arms : int
        Treatments, with the baseline and its A/A twin.
    seconds_per_run : float
        Deployment, warm-up, measurement and teardown of one run, in seconds.
    """
    return blocks * arms * seconds_per_run
