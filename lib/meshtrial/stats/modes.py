"""More than one mode: runs that fall into two kinds, such as two placements of a thread or a fast and a slow path."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from meshtrial.stats.signedrank import as_sample
from meshtrial.stats.warning import Warning

# a mode holds at least a fifth of the runs: a few shocks are no second mode
_SMALLEST_SHARE = 0.2
_FEWEST = 12


def separation(values: ArrayLike) -> tuple[float, float]:
    """Ashman's D of the best split into two groups (Ashman, Bird & Zepf 1994), and the value that splits.

    Parameters
    ----------
    values : (n,) array_like
        Residuals of runs.

    Returns
    -------
    d, split : float
        D is the distance of the two means in units of the groups' mean spread; 0 below 12 values.
    """
    x = np.sort(as_sample(values))
    n = len(x)
    least = max(3, math.ceil(_SMALLEST_SHARE * n))
    if n < _FEWEST or x[0] == x[-1]:
        return 0.0, math.nan
    x0 = x - x.mean()
    size = np.arange(least, n - least + 1)
    total, squares = np.cumsum(x0), np.cumsum(x0**2)
    low, high = total[size - 1] / size, (total[-1] - total[size - 1]) / (n - size)
    spread_low = np.maximum(squares[size - 1] / size - low**2, 0.0)
    spread_high = np.maximum((squares[-1] - squares[size - 1]) / (n - size) - high**2, 0.0)
    best = int(np.argmin(spread_low * size + spread_high * (n - size)))
    both = math.sqrt(float(spread_low[best] + spread_high[best]))
    split = float(x[size[best] - 1] + x[size[best]]) / 2
    distance = math.sqrt(2) * float(high[best] - low[best])
    return (distance / both if both > 0 else math.inf), split


def modes(values: ArrayLike) -> tuple[Warning, ...]:
    """Warn of two kinds of runs.

    Parameters
    ----------
    values : (n,) array_like
        Residuals of runs, arms and blocks taken out.

    Returns
    -------
    tuple of Warning
        ``"modes"`` or nothing. The threshold, 3.7 + 52/n, is passed by at most 1 % of unimodal samples (normal, t3,
        uniform and exponential, n = 12 to 200; simulated).
    """
    x = as_sample(values)
    d, split = separation(x)
    if d <= 3.7 + 52 / len(x):
        return ()
    upper = int((x > split).sum())
    text = (
        f"runs are of two kinds, {len(x) - upper} low and {upper} high (Ashman D = {d:.1f}): find what differs "
        "between them (placement, connection reuse, frequency) and fix it or make it a treatment"
    )
    return (Warning("modes", text),)
