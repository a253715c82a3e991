"""fortio's histogram with its own edges given back, so that it can be merged and checked.

fortio counts into fixed edges (0..12 by 1, then growing to 100000) times ``-r``; a value on an edge
belongs below it, and everything above the last edge is one bucket. Its export replaces the first start
by the smallest value and the last end by the largest, and leaves out empty buckets, so exported buckets
of two runs do not line up: counts may be added only on the canonical edges, and only for equal ``-r``.
(fortio.org/fortio/stats, ``histogramBucketValues`` and ``Export``.)

Opinion: a histogram quantile is an estimate inside a bucket, so it always carries its bucket.
Limits: ``-offset`` moves the edges and is refused; Nighthawk's export has edges of its own (quantiles
with their bounds work, merging is refused).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from meshtrial.errors import UsageError
from meshtrial.load.accesslog import CLOCK_S
from meshtrial.load.result import Bucket, ExportedHistogram, FortioResult

# fmt: off
EDGES: tuple[int, ...] = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100,
    120, 140, 160, 180, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000,
    2000, 3000, 4000, 5000, 7500, 10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000,
)
# fmt: on
_POWERS = tuple(10.0**k for k in range(-9, 2))
_RELATIVE = 1e-9


@dataclass(frozen=True)
class BucketQuantile:
    """A quantile read from a histogram."""

    value_s: float  # fortio's interpolation inside the bucket
    low_s: float  # the bucket: the true quantile lies between its ends
    high_s: float

    @property
    def width_s(self) -> float:
        """Resolution of the value."""
        return self.high_s - self.low_s


@dataclass(frozen=True)
class Histogram:
    """Counts on the canonical edges of one resolution."""

    resolution_s: float  # fortio's ``-r``
    counts: tuple[int, ...]  # one for each of EDGES (up to and including it), one for what is above the last
    min_s: float
    max_s: float
    sum_s: float

    @property
    def count(self) -> int:
        """Requests in it."""
        return sum(self.counts)

    def export(self) -> ExportedHistogram:
        """As fortio would write it, by which its quantiles are defined."""
        edges = (-np.inf, *(edge * self.resolution_s for edge in EDGES), np.inf)
        filled = [i for i, count in enumerate(self.counts) if count]
        buckets = []
        for i in filled:
            # The extremes tighten the outer buckets; with failed requests subtracted they may lie outside them.
            start = max(self.min_s, edges[i]) if i == filled[0] and i < len(EDGES) else edges[i]
            end = min(self.max_s, edges[i + 1]) if i == filled[-1] else edges[i + 1]
            buckets.append(Bucket(float(start), float(end), self.counts[i]))
        mean = self.sum_s / self.count if self.count else 0.0
        return ExportedHistogram(self.count, self.min_s, self.max_s, mean, self.sum_s, tuple(buckets))


def quantile(histogram: ExportedHistogram, q: float) -> BucketQuantile:
    """fortio's ``CalcPercentile`` with the bucket that the value lies in.

    The cumulated share is taken from the counts, not from the file's ``Percent``: equal for fortio,
    and right for Nighthawk, whose ``Percent`` is the percentile asked for. A bucket ends where the smallest and the
    largest latency say: fortio leaves the start of its last one, above all edges, far below them (fortio#1080).
    """
    total = histogram.count
    if not total or not histogram.buckets:
        raise UsageError("no quantile of an empty histogram: the run made no requests")
    previous = 1.0 / total
    if q <= previous:
        return BucketQuantile(histogram.min_s, histogram.min_s, min(histogram.buckets[0].end_s, histogram.max_s))
    cumulated = 0
    for bucket in histogram.buckets:
        cumulated += bucket.count
        share = cumulated / total
        # 99.9 / 100 is not 2997 / 3000 in binary: a rank at a bucket's very end is that bucket's, as it is for fortio.
        if bucket.count and (q <= share or math.isclose(q, share, rel_tol=1e-12)):
            inside = min(1.0, (q - previous) / (share - previous)) if share > previous else 1.0
            high = min(bucket.end_s, histogram.max_s)
            low = min(max(bucket.start_s, histogram.min_s), high)
            return BucketQuantile(low + inside * (high - low), low, high)
        previous = max(previous, share)
    last = histogram.buckets[-1]
    return BucketQuantile(histogram.max_s, min(last.start_s, histogram.max_s), histogram.max_s)


def resolutions_of(histogram: ExportedHistogram) -> tuple[float, ...]:
    """Every power of ten (and, without one, every other ``-r``) whose edges the exported buckets fit.

    Few buckets fit more than one resolution; each of them is then a faithful reading.
    """
    fitting = tuple(r for r in _POWERS if _indices(histogram, r) is not None)
    if fitting:
        return fitting
    inner = _inner_edges(histogram)
    if not inner:
        return ()
    guesses = sorted({inner[-1] / edge for edge in EDGES[1:]})
    return tuple(r for r in guesses if _indices(histogram, r) is not None)


def rebuild(histogram: ExportedHistogram, resolution_s: float | None = None, *, name: str = "histogram") -> Histogram:
    """Put an exported histogram back on its canonical edges; ``-r``, where it is not known, is inferred from them."""
    fitting = (resolution_s,) if resolution_s else resolutions_of(histogram)
    indices = _indices(histogram, fitting[0]) if fitting else None
    if indices is None:
        asked = f" for -r {resolution_s:g}" if resolution_s else " for any -r"
        raise UsageError(
            f"{name}: its buckets do not lie on fortio's edges{asked} (-offset, or another generator's export?); "
            "quantiles of this file alone still work, merging does not"
        )
    counts = [0] * (len(EDGES) + 1)
    for index, bucket in zip(indices, histogram.buckets, strict=True):
        counts[index] += bucket.count
    total = histogram.sum_s if histogram.sum_s is not None else histogram.mean_s * histogram.count
    return Histogram(fitting[0], tuple(counts), histogram.min_s, histogram.max_s, total)


def subtract(histogram: Histogram, errors: Histogram) -> Histogram:
    """Only the successful requests: fortio's main histogram includes the failed ones.

    The extremes stay those of all requests: which of them failed cannot be known from the counts.
    """
    if histogram.resolution_s != errors.resolution_s:
        raise UsageError(f"-r {histogram.resolution_s:g} and {errors.resolution_s:g} cannot be subtracted")
    counts = tuple(a - b for a, b in zip(histogram.counts, errors.counts, strict=True))
    if min(counts) < 0:
        raise UsageError("more failed requests than requests in a bucket: the two histograms are of different runs")
    return Histogram(histogram.resolution_s, counts, histogram.min_s, histogram.max_s, histogram.sum_s - errors.sum_s)


def merge(
    histograms: Sequence[ExportedHistogram],
    resolutions_s: Sequence[float | None] | None = None,
    names: Sequence[str] | None = None,
) -> Histogram:
    """Add the counts of several runs of equal ``-r``.

    UsageError where the resolutions differ: the coarser buckets cannot be split, so the sum would be invented.
    """
    if not histograms:
        raise UsageError("nothing to merge: give at least one result")
    known = list(resolutions_s or [None] * len(histograms))
    labels = list(names or [f"histogram {i + 1}" for i in range(len(histograms))])
    filled = [(h, r, n) for h, r, n in zip(histograms, known, labels, strict=True) if h.count]
    if not filled:
        return Histogram(1.0, (0,) * (len(EDGES) + 1), 0.0, 0.0, 0.0)
    sets = [{r} if r else set(resolutions_of(h)) for h, r, _ in filled]
    for (item, _, label), candidates in zip(filled, sets, strict=True):
        if not candidates:
            rebuild(item, name=label)  # says why
    common = sorted(set.intersection(*sets))
    if not common:
        said = "; ".join(
            f"{label}: {' or '.join(f'{r:g}' for r in sorted(c))} s"
            for c, (_, _, label) in zip(sets, filled, strict=True)
        )
        raise UsageError(f"results of different -r cannot be merged, their buckets do not line up ({said})")
    parts = [rebuild(h, common[0], name=label) for h, _, label in filled]
    return Histogram(
        resolution_s=common[0],
        counts=tuple(int(n) for n in np.sum([part.counts for part in parts], axis=0)),
        min_s=min(part.min_s for part in parts),
        max_s=max(part.max_s for part in parts),
        sum_s=sum(part.sum_s for part in parts),
    )


def crosscheck(result: FortioResult, log: pl.DataFrame, resolution_s: float | None = None) -> tuple[str, ...]:
    """Everything in which a result and the access log of the same run disagree, in words; empty where they agree."""
    try:
        counted = rebuild(result.latency, resolution_s, name=str(result.path.name))
    except UsageError as error:
        return (f"the histogram could not be checked against the access log: {error}",)
    differences = [f"histogram and access log disagree: {d}" for d in agrees_with(counted, log["latency_s"].to_numpy())]
    failed = int((~log["ok"]).sum())
    if failed != result.error_count:
        differences.append(f"the access log holds {failed} failed requests, the result says {result.error_count}")
    return tuple(differences)


def agrees_with(histogram: Histogram, latencies_s: NDArray[Any]) -> tuple[str, ...]:
    """Compare the histogram with the access log of the same requests; empty where they agree.

    The log is rounded to 1 us and an edge may lie inside that microsecond, so the cumulated count at an
    edge must lie between the log's counts half a microsecond below and above it.
    """
    differences = []
    if histogram.count != len(latencies_s):
        differences.append(f"the histogram holds {histogram.count} requests, the access log {len(latencies_s)}")
    ordered = np.sort(np.asarray(latencies_s, dtype=np.float64))
    edges = np.array(EDGES, dtype=np.float64) * histogram.resolution_s
    slack = CLOCK_S / 2 + 1e-9
    low = np.searchsorted(ordered, edges - slack, side="right")
    high = np.searchsorted(ordered, edges + slack, side="right")
    cumulated = np.cumsum(histogram.counts[: len(EDGES)])
    for i in np.flatnonzero((cumulated < low) | (cumulated > high))[:1]:
        differences.append(
            f"up to {edges[i]:g} s the histogram counts {cumulated[i]} requests, the access log {low[i]} to {high[i]}"
        )
    return tuple(differences)


def _inner_edges(histogram: ExportedHistogram) -> list[float]:
    # All but the first start and the last end, which the export replaced by the extremes.
    buckets = histogram.buckets
    return sorted({b.end_s for b in buckets[:-1]} | {b.start_s for b in buckets[1:]})


def _indices(histogram: ExportedHistogram, resolution_s: float) -> list[int] | None:
    """Canonical bucket of every exported one, or None where one does not fit this resolution."""
    edges = np.array(EDGES, dtype=np.float64) * resolution_s
    slack = _RELATIVE * np.maximum(edges, resolution_s)
    indices: list[int] = []
    last = len(histogram.buckets) - 1
    for position, bucket in enumerate(histogram.buckets):
        if position < last:
            i = int(np.argmin(np.abs(edges - bucket.end_s)))
            if abs(edges[i] - bucket.end_s) > slack[i]:
                return None
        elif bucket.end_s <= edges[-1] + slack[-1]:
            # The last end is the largest value: it lies in (edges[i - 1], edges[i]].
            i = int(np.argmax(edges + slack >= bucket.end_s))
        else:
            i = len(EDGES)
        start = edges[i - 1] if i else -np.inf
        below = slack[i - 1] if i else 0.0
        if position > 0 or i == len(EDGES):
            if abs(bucket.start_s - start) > below:
                return None
        elif bucket.start_s < start - below:
            return None
        if indices and i <= indices[-1]:
            return None
        indices.append(i)
    return indices
