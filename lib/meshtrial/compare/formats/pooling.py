"""Generators of one run: their requests are laid together before a quantile is taken.

Opinion: a percentile of several generators follows from their requests, or from counts of these, and never from their
percentiles. Counts lie between edges, and those of two files hardly ever agree. The pooled quantile is then known to
lie between two of them, and the distance of these is its resolution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshtrial.design.responses import QUANTILES
from meshtrial.load import quantiles
from meshtrial.load.result import Bucket


@dataclass(frozen=True)
class Requests:
    """The latencies of all good requests of a file."""

    latencies_s: NDArray[Any]
    resolution_s: float

    @property
    def count(self) -> int:
        """Requests in it."""
        return len(self.latencies_s)


@dataclass(frozen=True)
class Counts:
    """How many requests took at most as long as each edge: at least so many, and at most; the edges rise."""

    edges_s: NDArray[Any]
    at_least: NDArray[Any]
    at_most: NDArray[Any]
    count: int  # those beyond the last edge included

    @classmethod
    def of(cls, buckets: Sequence[Bucket]) -> Counts:
        """From buckets that follow each other; the last may have no end."""
        up_to: dict[float, int] = {}
        count = 0
        for bucket in buckets:
            # A bucket of one value begins just below it.
            up_to.setdefault(min(bucket.start_s, math.nextafter(bucket.end_s, 0.0)), count)
            count += bucket.count
            up_to[bucket.end_s] = count
        up_to.pop(math.inf, None)
        edges = sorted(up_to)
        counts = np.array([up_to[edge] for edge in edges])
        return cls(np.array(edges), counts, counts, count)

    def narrowed(self, at_most: Mapping[float, int]) -> Counts:
        """With what else is known: at most so many took at most so long."""
        edges = np.unique([*self.edges_s, *at_most])
        known = np.array([at_most.get(edge, self.count) for edge in edges])
        return Counts(edges, _least(self, edges), np.minimum(known, _most(self, edges)), self.count)


Pool = Requests | Counts


def pooled(parts: Sequence[Pool], sample_floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """Quantiles of all parts together that the sample floor allows, and their resolutions, in seconds, by response.

    The parts are of one kind.
    """
    requests = [part for part in parts if isinstance(part, Requests)]
    counts = [part for part in parts if isinstance(part, Counts) and part.count]
    values: dict[str, float] = {}
    widths: dict[str, float] = {}
    if requests:
        values = quantiles.exact(np.concatenate([part.latencies_s for part in requests]), sample_floor)
        widths = dict.fromkeys(values, max(part.resolution_s for part in requests))
    for key, q in QUANTILES.items() if counts else ():
        if quantiles.reportable(sum(part.count for part in counts), q, sample_floor):
            known = _between(counts, q)
            if known is not None:
                values[key], widths[key] = known
    return {f"latency_{key}_s": value for key, value in values.items()}, {
        f"latency_{key}_s": width for key, width in widths.items()
    }


def _between(parts: Sequence[Counts], q: float) -> tuple[float, float] | None:
    """The quantile by interpolation, and how far apart the edges are that it must lie between.

    None where it lies beyond the last edge of a part.
    """
    edges = np.unique(np.concatenate([part.edges_s for part in parts]))
    # Of how many it is known that they lie up to an edge, of how many it is possible, and what a line between says.
    least, most, likely = (sum(take(part, edges) for part in parts) for take in (_least, _most, _likely))
    rank = q * sum(part.count for part in parts) * (1 - 1e-12)
    above = np.flatnonzero(least >= rank)
    if not len(above):
        return None
    high = edges[above[0]]
    low = max(edges[most < rank], default=0.0)
    value = np.interp(rank, likely, edges)
    return float(np.clip(value, low, high)), float(high - low)


def _least(part: Counts, edges: NDArray[Any]) -> Any:
    before = np.searchsorted(part.edges_s, edges, side="right") - 1
    return np.append(part.at_least, 0)[before]  # before the first edge stands none


def _most(part: Counts, edges: NDArray[Any]) -> Any:
    after = np.searchsorted(part.edges_s, edges, side="left")
    return np.append(part.at_most, part.count)[after]


def _likely(part: Counts, edges: NDArray[Any]) -> Any:
    return np.interp(edges, part.edges_s, part.at_most, left=0)
