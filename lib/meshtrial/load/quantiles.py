"""Requests of several generators as one table, their exact quantiles, and how many requests a quantile needs.

Method: ``numpy.quantile`` with its default, linear interpolation between order statistics (Hyndman & Fan
1996, type 7), on every request. Nothing is binned, so the quantile asked for is the quantile computed
(envoyproxy/nighthawk#717 shows what happens otherwise). Several generators are merged request by request, so that a
quantile is the pooled one; averaging the generators' own quantiles would not be.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from meshtrial.design.responses import QUANTILES, requests_needed
from meshtrial.records.columns import REQUESTS, kinds

COLUMNS = kinds(REQUESTS) | {"code": pl.Categorical()}  # a text in files, few of them in all requests


def merge_requests(frames: Sequence[pl.DataFrame], *, slice_index: int = 0) -> pl.DataFrame:
    """One table of all requests, with slice and generator (from 0, in the order given) beside each."""
    marked = [
        frame.with_columns(pl.lit(number).alias("generator"), pl.lit(slice_index).alias("slice"))
        for number, frame in enumerate(frames)
    ]
    return pl.concat([frame.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()) for frame in marked])


def successful(requests: pl.DataFrame, column: str = "latency_s") -> pl.Series:
    """Latencies that quantiles are taken of: successful requests, and in corrected columns imputed ones."""
    # Of that column alone: a filter of all of them would be a second copy of every request.
    return requests.select(pl.col(column).filter(pl.col("ok").fill_null(True))).to_series().drop_nulls()


def reportable(count: int, q: float, sample_floor: float) -> bool:
    """Whether N (1 - q) reaches the floor: 10 000 requests carry a p99 at a floor of 100."""
    return count >= requests_needed(q, sample_floor)


def exact(
    latencies_s: NDArray[Any], sample_floor: float, *, count: int | None = None, wanted: Mapping[str, float] = QUANTILES
) -> dict[str, float]:
    """Quantiles in seconds that the sample floor allows, by name (``p50``).

    ``count`` is of requests that really happened, where the latencies also hold imputed ones: those do not count
    towards the floor.
    """
    real = len(latencies_s) if count is None else count
    names = [name for name, q in wanted.items() if len(latencies_s) and reportable(real, q, sample_floor)]
    if not names:
        return {}
    values = np.quantile(latencies_s, [wanted[name] for name in names])
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def upper_limit(latencies_s: NDArray[Any], q: float, confidence: float) -> float:
    """One-sided upper confidence limit of a quantile: an order statistic, whatever the distribution.

    Conover, Practical Nonparametric Statistics, section 3.2; for requests that do not depend on each other. Infinite
    where so few cannot show one.
    """
    from scipy.stats import binom  # takes a moment to load, which only searches with an objective need

    n = len(latencies_s)
    rank = int(binom.ppf(confidence, n, q))  # from 0: as many lie below it with that probability, at the most
    return float(np.partition(latencies_s, rank)[rank]) if rank < n else float("inf")
