"""fortio's histogram on its original edges, so that it can be merged and checked.

fortio counts into fixed edges (0..12 by 1, then growing to 100000) times ``-r``. A value on an edge belongs to the
bucket below it, and everything above the last edge is one bucket. The export leaves out empty buckets and replaces the
first start by the smallest value and the last end by the largest. Exported buckets of two runs therefore do not line
up: counts may be added only on the original edges, and only for equal ``-r``.
(fortio.org/fortio/stats, ``histogramBucketValues`` and ``Export``.)

Opinion: a histogram quantile is an estimate inside a bucket, so it always carries its bucket.
Limits: ``-offset`` moves the edges and is refused. Nighthawk's export has edges of its own: quantiles with their bounds
work, merging is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshtrial.errors import UsageError
from meshtrial.lazy import pl
from meshtrial.load.files import CLOCK_S
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
    """A quantile estimated from a histogram."""

    value_s: float  # fortio's interpolation inside the bucket
    low_s: float  # the bucket's ends, between which the true quantile lies
    high_s: float

    @property
    def width_s(self) -> float:
        """The bucket's width, which is the resolution of the value."""
        return self.high_s - self.low_s


@dataclass(frozen=True)
class Histogram:
    """Counts on fortio's edges for one resolution."""

    resolution_s: float  # fortio's ``-r``
    counts: tuple[int, ...]  # for each of EDGES the values up to and including it, then those above the last
    min_s: float
    max_s: float
    sum_s: float

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.counts)

    def export(self) -> ExportedHistogram:
        """Return it in the form of fortio's export, on which fortio's quantiles are defined."""
        edges = (-np.inf, *(edge * self.resolution_s for edge in EDGES), np.inf)
        filled = [i for i, count in enumerate(self.counts) if count]
        buckets = []
        for i in filled:
            # The extremes tighten the outer buckets. After failed requests are subtracted they may lie outside them.
            start = max(self.min_s, edges[i]) if i == filled[0] and i < len(EDGES) else edges[i]
            end = min(self.max_s, edges[i + 1]) if i == filled[-1] else edges[i + 1]
            buckets.append(Bucket(float(start), float(end), self.counts[i]))
        mean = self.sum_s / self.count if self.count else 0.0
        return ExportedHistogram(self.count, self.min_s, self.max_s, mean, self.sum_s, tuple(buckets))


def quantile(histogram: ExportedHistogram, q: float) -> BucketQuantile:
    """Return fortio's ``CalcPercentile`` with the bucket that contains the value; UsageError for an empty histogram.

    The cumulative share is computed from the counts, not from the file's ``Percent``. The two are equal for fortio, but
    Nighthawk's ``Percent`` is the requested percentile. A bucket is limited to the smallest and the largest latency,
    because fortio gives the last one, above all edges, a start far below them (fortio#1080).
    """
    total = histogram.count
    if not total or not histogram.buckets:
        raise UsageError("the histogram is empty: the run made no requests, so it has no quantiles")
    previous = 1.0 / total
    if q <= previous:
        return BucketQuantile(histogram.min_s, histogram.min_s, min(histogram.buckets[0].end_s, histogram.max_s))
    cumulated = 0
    for bucket in histogram.buckets:
        cumulated += bucket.count
        share = cumulated / total
        # 99.9 / 100 differs from 2997 / 3000 in binary; a rank exactly at a bucket's end belongs to it, as in fortio.
        if bucket.count and (q <= share or math.isclose(q, share, rel_tol=1e-12)):
            inside = min(1.0, (q - previous) / (share - previous)) if share > previous else 1.0
            high = min(bucket.end_s, histogram.max_s)
            low = min(max(bucket.start_s, histogram.min_s), high)
            return BucketQuantile(low + inside * (high - low), low, high)
        previous = max(previous, share)
    last = histogram.buckets[-1]
    return BucketQuantile(histogram.max_s, min(last.start_s, histogram.max_s), histogram.max_s)


def resolutions_of(histogram: ExportedHistogram) -> tuple[float, ...]:
    """Return the resolutions whose edges fit the exported buckets: powers of ten, or else any other ``-r``.

    A few buckets may fit several resolutions; each is then a correct reading.
    """
    fitting = tuple(r for r in _POWERS if _indices(histogram, r) is not None)
    if fitting:
        return fitting
    buckets = histogram.buckets
    inner = {bucket.end_s for bucket in buckets[:-1]} | {bucket.start_s for bucket in buckets[1:]}
    guesses = sorted({max(inner) / edge for edge in EDGES[1:]}) if inner else []
    return tuple(r for r in guesses if _indices(histogram, r) is not None)


def rebuild(histogram: ExportedHistogram, resolution_s: float | None = None, *, name: str = "histogram") -> Histogram:
    """Put an exported histogram on its original edges; without ``resolution_s`` infer ``-r`` from the edges."""
    fitting = (resolution_s,) if resolution_s else resolutions_of(histogram)
    indices = _indices(histogram, fitting[0]) if fitting else None
    if indices is None:
        which = f" for -r {resolution_s:g}" if resolution_s else " for any -r"
        raise UsageError(
            f"{name}: its buckets do not lie on fortio's edges{which} (-offset, or another generator's export?); "
            "use the quantiles of this file alone, it cannot be merged"
        )
    counts = [0] * (len(EDGES) + 1)
    for index, bucket in zip(indices, histogram.buckets, strict=True):
        counts[index] += bucket.count
    total = histogram.sum_s if histogram.sum_s is not None else histogram.mean_s * histogram.count
    return Histogram(fitting[0], tuple(counts), histogram.min_s, histogram.max_s, total)


def subtract(histogram: Histogram, errors: Histogram) -> Histogram:
    """Return the histogram without failed requests (of the same ``-r``), which fortio's main histogram includes.

    The extremes remain those of all requests, because counts do not show which requests failed.
    """
    counts = tuple(a - b for a, b in zip(histogram.counts, errors.counts, strict=True))
    if min(counts) < 0:
        raise UsageError("a bucket has more failed requests than requests: the two histograms are of different runs")
    return Histogram(histogram.resolution_s, counts, histogram.min_s, histogram.max_s, histogram.sum_s - errors.sum_s)


def merge(results: Sequence[FortioResult]) -> Histogram:
    """Add the counts of several generators with equal ``-r``.

    Raise UsageError if the resolutions differ: the coarser buckets cannot be split.
    """
    filled = {str(result.path): result for result in results if result.latency.count}
    if not filled:
        return Histogram(1.0, (0,) * (len(EDGES) + 1), 0.0, 0.0, 0.0)
    fitting = {n: {r.resolution_s} if r.resolution_s else {*resolutions_of(r.latency)} for n, r in filled.items()}
    for name in (name for name, resolutions in fitting.items() if not resolutions):
        rebuild(filled[name].latency, name=name)  # raises with the reason
    common = sorted(set.intersection(*fitting.values()))
    if not common:
        found = "; ".join(f"{name}: {' or '.join(f'{r:g}' for r in sorted(c))} s" for name, c in fitting.items())
        raise UsageError(f"results of different -r cannot be merged, because their buckets do not line up ({found})")
    parts = [rebuild(result.latency, common[0], name=name) for name, result in filled.items()]
    return Histogram(
        resolution_s=common[0],
        counts=tuple(int(n) for n in np.sum([part.counts for part in parts], axis=0)),
        min_s=min(part.min_s for part in parts),
        max_s=max(part.max_s for part in parts),
        sum_s=sum(part.sum_s for part in parts),
    )


def crosscheck(result: FortioResult, log: pl.DataFrame, resolution_s: float | None = None) -> tuple[str, ...]:
    """Return every disagreement between a result and the access log of the same run, as sentences."""
    try:
        counted = rebuild(result.latency, resolution_s, name=str(result.path.name))
    except UsageError as error:
        return (f"the histogram could not be checked against the access log: {error}",)
    differences = [f"histogram and access log disagree: {d}" for d in agrees_with(counted, log["latency_s"].to_numpy())]
    failed = int((~log["ok"]).sum())
    if failed != result.error_count:
        differences.append(f"the access log has {failed} failed requests, the result {result.error_count}")
    return tuple(differences)


def agrees_with(histogram: Histogram, latencies_s: NDArray[Any]) -> tuple[str, ...]:
    """Return the disagreements between a histogram and the access log of the same requests.

    The log is rounded to 1 us, and an edge may lie inside that microsecond. So the cumulative count at an edge must lie
    between the log's counts half a microsecond below and above it.
    """
    differences = []
    if histogram.count != len(latencies_s):
        differences.append(f"the histogram has {histogram.count} requests, the access log {len(latencies_s)}")
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


def _indices(histogram: ExportedHistogram, resolution_s: float) -> list[int] | None:
    """Return the original bucket of each exported one; None if one does not fit this resolution."""
    if not histogram.buckets:
        return []
    edges = np.array(EDGES, dtype=np.float64) * resolution_s
    slack = _RELATIVE * np.maximum(edges, resolution_s)
    starts, ends = np.array([(bucket.start_s, bucket.end_s) for bucket in histogram.buckets]).T
    # The export replaced the first start and the last end by the extremes, which lie inside their buckets.
    indices = np.searchsorted(edges + slack, ends)
    has_end = np.abs(np.append(edges, np.inf)[indices] - ends) <= np.append(slack, 0.0)[indices]
    lower, below = np.append(-np.inf, edges)[indices], np.append(0.0, slack)[indices]
    has_start = np.abs(starts - lower) <= below
    if indices[0] < len(EDGES):
        has_start[0] = starts[0] >= lower[0] - below[0]
    fits = has_end[:-1].all() and has_start.all() and (np.diff(indices) > 0).all()
    return indices.tolist() if fits else None
