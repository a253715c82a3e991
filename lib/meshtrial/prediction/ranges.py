"""Estimates with intervals of sums over studies and blocks, and weights of measured rates for a rate between them.

Every amount is a sum of the values of blocks with fixed weights. Its standard error is therefore that of the means of
blocks, study by study, and its interval is Student's with the degrees of freedom of Welch and Satterthwaite. The
model's own error is one more independent term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from meshtrial import stats
from meshtrial.inference.values import FloatArray

# Largest multiple of the highest measured rate at which an envelope is given, as for sizes.
FARTHEST = 2.0
# Exponent of the proxy's own rate in the rate at which its cost is read, by backend; the rest belongs to its machine's
# rate. On one machine 0.8 predicted the added CPU of five generated systems best of 0.7, 0.75, 0.8, 0.85 and 1. On the
# test cluster 0.2 predicted one system with three meshes best of 0, 0.2, 0.35, 0.5, 0.65 and 0.8. Other systems tested
# both (docs/explanation/results.md, "Predictions").
OWN_EXPONENTS = {"local": 0.8, "kubernetes": 0.2}
# The model's own errors: the root mean square of (measured / predicted - 1) over twenty generated systems with sidecars
# on one machine (docs/explanation/results.md, "Predictions").
CPU_ERROR, LATENCY_ERROR = 0.11, 0.19
_MANY = 1e9  # degrees of freedom, in place of infinitely many


@dataclass(frozen=True)
class Estimate:
    """An amount with its interval. Without a `value` the interval is an envelope: all that the model allows."""

    value: float | None
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """Return the amount times a factor of 0 or more."""
        return Estimate(None if self.value is None else self.value * factor, self.low * factor, self.high * factor)


def combined(parts: Sequence[FloatArray], alpha: float, model_error: float = 0.0, sessions: bool = False) -> Estimate:
    """Return the sum over the studies of each study's mean over its blocks (blocks,).

    With `sessions` every study alone predicts the whole: its part times the number of studies. The interval is then
    that of another session's estimate, if there are three studies and it is wider. `model_error` is the standard
    deviation of measured over predicted amounts; it is added in quadrature.
    """
    value = float(sum(part.mean() for part in parts))
    errors = np.array([part.var(ddof=1) / len(part) for part in parts])
    spread = float((errors**2 / np.array([len(part) - 1 for part in parts])).sum())
    freedom = errors.sum() ** 2 / spread if spread else np.inf
    half = float(special.stdtrit(min(freedom, _MANY), 1 - alpha / 2) * np.sqrt(errors.sum()))
    if sessions and (ends := stats.next_session([len(parts) * part.mean() for part in parts], alpha)) is not None:
        half = max(half, float(ends[1] - ends[0]) / 2)
    half = float(np.hypot(half, special.ndtri(1 - alpha / 2) * model_error * value))
    return Estimate(value, value - half, value + half)


def envelope(low: Estimate, high: Estimate) -> Estimate:
    """Return the range of two estimates that are the ends of what the model allows, with their own intervals."""
    if low == high:
        return low
    return Estimate(None, min(low.low, high.low), max(low.high, high.high))


@dataclass(frozen=True)
class Weights:
    """For each proxy, how much each measured rate counts: (proxies, rates)."""

    nearest: FloatArray  # linear between measured rates; outside of them only the nearest rate counts
    lowest: FloatArray  # for the least CPU per request that the proxy's rate allows; between rates equal to `nearest`
    highest: FloatArray  # for the most
    is_inside: NDArray[np.bool_]  # (proxies,): whether the rate lies between measured ones
    is_too_high: NDArray[np.bool_]  # whether it is above `FARTHEST` times the highest, where nothing is predicted


def rate_weights(
    rates: FloatArray, measured: FloatArray, machine_rps: float = 0.0, own_exponent: float = 1.0
) -> Weights:
    """Return the weights of ascending measured rates (k,) for proxies of rates (n,), linear in the rate's logarithm.

    A proxy whose machine is busier than its own rate makes it costs less per request, because cores sleep less and
    caches stay warm. Its cost is read at ``rates ** own_exponent * machine_rps ** (1 - own_exponent)``, which is kept
    between its own rate and the highest measured one. ``machine_rps`` is 0 if it is not known.

    Outside of the measured rates only this is assumed: CPU per request does not grow with the rate, and CPU per second
    does not shrink. Below the lowest rate, the CPU per request there is the least and the CPU per second there is the
    most. Above the highest rate it is the other way round.
    """
    rates = np.where(rates > 0, rates, measured[0])  # 0 is the rate of a service without a proxy
    last = len(measured) - 1
    inside = np.clip(rates, measured[0], measured[-1])
    busy = np.clip(machine_rps, inside, measured[-1])
    read_at = np.where(rates == inside, inside**own_exponent * busy ** (1 - own_exponent), inside)
    right = np.clip(np.searchsorted(measured, read_at), min(1, last), last)
    left = np.maximum(right - 1, 0)
    logs = np.log(measured)
    gap = np.where(right > left, logs[right] - logs[left], 1.0)
    share = np.where(right > left, (np.log(read_at) - logs[left]) / gap, 0.0)
    nearest = np.zeros((len(rates), len(measured)))
    rows = np.arange(len(rates))
    nearest[rows, left] += 1 - share
    nearest[rows, right] += share
    held = nearest * (inside / rates)[:, None]  # with the CPU per second of the nearest rate
    return Weights(
        nearest,
        np.where((rates > inside)[:, None], held, nearest),
        np.where((rates < inside)[:, None], held, nearest),
        rates == inside,
        rates > FARTHEST * measured[-1],
    )
