"""Requests of several generators as one table.

Merging requests is exact: quantiles of the merged table are those of the concatenated requests, which is
the pooled quantile. Averaging the generators' own quantiles would be neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

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
