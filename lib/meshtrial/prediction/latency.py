"""Latency that a treatment adds to a path: quantiles over all its calls with the treatment, less those without it.

Every call has the distribution of a single hop in the studies: proxies, network and the study's application. Between
two measured rates the latencies of equal probability are interpolated. Calls in sequence are added by convolution;
of parallel calls, the distribution of the slowest is taken; both on a grid, block by block. The caller's proxy sends
simultaneous requests one after another, so the last of k waits for k - 1 times the proxy's time for one request.
Assumptions: hops are independent of each other, and what a service does itself is the same with and without the
treatment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from meshtrial.design.system import CallStep, Step, calls_of
from meshtrial.inference.values import FloatArray
from meshtrial.prediction.blocks import PROBABILITIES

BINS = 2**13

Pair = tuple[str, str]


@dataclass(frozen=True)
class Hop:
    """A call, for both treatments and every block."""

    latencies: FloatArray  # (..., probabilities), in seconds at `PROBABILITIES`
    sending_s: FloatArray  # (...,): CPU seconds of the caller's proxy for a request without its response


# By call: masses (..., bins), and the steps of the grid (...,) that the caller's proxy takes for a request.
_Gridded = Mapping[Pair, tuple[FloatArray, FloatArray]]


def quantiles_of_path(steps: Sequence[Step], hops: Mapping[Pair, Hop], qs: Sequence[float]) -> FloatArray:
    """Return quantiles (quantiles, ...) in seconds of a path's latency.

    The error by the grid is about its step, which is the largest possible latency over `BINS`.
    """
    most = [float((hops[pair].latencies[..., -1] + hops[pair].sending_s).max()) for pair in calls_of(steps)]
    step = sum(most) / (BINS - 2)
    # Bin j has the latencies around j steps, so that sums of bins are not shifted.
    edges: FloatArray = np.linspace(0.5, BINS - 0.5, BINS) * step
    known = {pair: hops[pair] for pair in calls_of(steps)}
    gridded = {pair: (_masses(hop.latencies, edges), hop.sending_s / step) for pair, hop in known.items()}
    shares = np.cumsum(_sequence(steps, gridded), axis=-1)
    rows = shares.reshape(-1, BINS)
    found = [[np.interp(q, np.append(0.0, row), np.append(0.0, edges)) for row in rows] for q in qs]
    return np.array(found).reshape(len(qs), *shares.shape[:-1])


def _masses(latencies: FloatArray, edges: FloatArray) -> FloatArray:
    rows = latencies.reshape(-1, latencies.shape[-1])
    # The probabilities end below 1; the rest of the mass is added at the last of them.
    probabilities = np.append(PROBABILITIES[:-1], 1.0)
    shares = [np.interp(edges, row, probabilities, left=0.0, right=1.0) for row in rows]
    return np.diff(np.array(shares), axis=-1, prepend=0.0).reshape(*latencies.shape[:-1], len(edges))


def _sequence(steps: Sequence[Step], gridded: _Gridded) -> FloatArray:
    parts = (gridded[one][0] if isinstance(one, CallStep) else _largest(one.branches, gridded) for one in steps)
    return reduce(_sum, parts)


def _largest(branches: Sequence[Sequence[Step]], gridded: _Gridded) -> FloatArray:
    """Return the distribution of the largest, later by the steps for which the last request waits."""
    shares = np.prod([np.cumsum(_sequence(branch, gridded), axis=-1) for branch in branches], axis=0)
    waits = (len(branches) - 1) * np.mean([gridded[next(calls_of(branch))][1] for branch in branches], axis=0)
    source = np.arange(BINS) - np.rint(waits)[..., None].astype(int)
    masses = np.take_along_axis(np.diff(shares, axis=-1, prepend=0.0), np.maximum(source, 0), axis=-1)
    return np.where(source >= 0, masses, 0.0)


def _sum(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the distribution of a sum; the grid is long enough for the whole path."""
    product = np.fft.rfft(one, 2 * BINS) * np.fft.rfft(other, 2 * BINS)
    found: FloatArray = np.maximum(np.fft.irfft(product, 2 * BINS)[..., :BINS], 0.0)
    return found
