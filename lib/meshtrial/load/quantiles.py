"""Requests of several generators as one table, their exact quantiles, and how many requests a quantile needs.

Method: ``numpy.quantile`` with its default, linear interpolation between order statistics (Hyndman & Fan 1996, type 7),
on every request. Nothing is binned, so the quantile asked for is the quantile computed (envoyproxy/nighthawk#717 shows
the alternative). Requests of several generators are pooled; the mean of their quantiles would not be a quantile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshtrial.design.responses import QUANTILES, requests_needed
from meshtrial.lazy import pl
from meshtrial.records.columns import REQUESTS, Kinds

# Codes are text in files; there are only a few distinct ones.
COLUMNS = Kinds(REQUESTS | {"code": replace(REQUESTS["code"], type_name="Categorical")})


def merge_requests(frames: Sequence[pl.DataFrame], *, slice_index: int = 0) -> pl.DataFrame:
    """Return one table of all requests with their slice and generator (from 0, in the given order)."""
    marked = [
        frame.with_columns(pl.lit(number).alias("generator"), pl.lit(slice_index).alias("slice"))
        for number, frame in enumerate(frames)
    ]
    return pl.concat([frame.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items()) for frame in marked])


def successful(requests: pl.DataFrame, column: str = "latency_s") -> pl.Series:
    """Return the latencies for quantiles: successful requests, and in corrected columns imputed ones too."""
    # Filter one column only: filtering the frame would copy every request.
    return requests.select(pl.col(column).filter(pl.col("ok").fill_null(True))).to_series().drop_nulls()


def reportable(count: int, q: float, sample_floor: float) -> bool:
    """Return whether N (1 - q) reaches the floor: with a floor of 100, a p99 needs 10,000 requests."""
    return count >= requests_needed(q, sample_floor)


def exact(
    latencies_s: NDArray[Any], sample_floor: float, *, count: int | None = None, wanted: Mapping[str, float] = QUANTILES
) -> dict[str, float]:
    """Return the quantiles, in seconds by name (``p50``), that the sample floor allows.

    ``count`` is the number of real requests, if the latencies also contain imputed ones, which do not count towards
    the floor.
    """
    real = len(latencies_s) if count is None else count
    names = [name for name, q in wanted.items() if len(latencies_s) and reportable(real, q, sample_floor)]
    if not names:
        return {}
    values = np.quantile(latencies_s, [wanted[name] for name in names])
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def upper_limit(latencies_s: NDArray[Any], q: float, confidence: float) -> float:
    """Return the one-sided upper confidence limit of a quantile: an order statistic, for any distribution.

    Conover, Practical Nonparametric Statistics, section 3.2; for independent requests. Infinite if there are too few
    requests for a limit.
    """
    from scipy.stats import binom  # slow to import, and only needed by searches with an objective

    n = len(latencies_s)
    rank = int(binom.ppf(confidence, n, q))  # from 0: with this probability at most `rank` requests lie below it
    return float(np.partition(latencies_s, rank)[rank]) if rank < n else float("inf")
