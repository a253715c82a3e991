"""The histogram against the access log: two records of the same requests by two ways through fortio."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from meshtrial.errors import UsageError
from meshtrial.load.accesslog import CLOCK_S
from meshtrial.load.histogram import EDGES, Histogram, rebuild
from meshtrial.load.result import FortioResult


def crosscheck(result: FortioResult, log: pl.DataFrame, resolution_s: float | None = None) -> tuple[str, ...]:
    """Everything in which a result and the access log of the same run disagree, in words; empty where they agree."""
    try:
        counted = rebuild(result.latency, resolution_s, name=str(result.path.name))
    except UsageError as error:
        return (f"the histogram could not be checked against the access log: {error}",)
    found = [f"histogram and access log disagree: {d}" for d in agrees_with(counted, log["latency_s"].to_numpy())]
    failed = int((~log["ok"]).sum())
    if failed != result.error_count:
        found.append(f"the access log holds {failed} failed requests, the result says {result.error_count}")
    return tuple(found)


def agrees_with(histogram: Histogram, latencies_s: NDArray[Any]) -> tuple[str, ...]:
    """Compare the histogram with the access log of the same requests; empty where they agree.

    The log is rounded to 1 us and an edge may lie inside that microsecond, so the cumulated count at an
    edge must lie between the log's counts half a microsecond below and above it.
    """
    found = []
    if histogram.count != len(latencies_s):
        found.append(f"the histogram holds {histogram.count} requests, the access log {len(latencies_s)}")
    ordered = np.sort(np.asarray(latencies_s, dtype=np.float64))
    edges = np.array(EDGES, dtype=np.float64) * histogram.resolution_s
    slack = CLOCK_S / 2 + 1e-9
    low = np.searchsorted(ordered, edges - slack, side="right")
    high = np.searchsorted(ordered, edges + slack, side="right")
    cumulated = np.cumsum(histogram.counts[: len(EDGES)])
    for i in np.flatnonzero((cumulated < low) | (cumulated > high))[:1]:
        found.append(
            f"up to {edges[i]:g} s the histogram counts {cumulated[i]} requests, the access log {low[i]} to {high[i]}"
        )
    return tuple(found)
